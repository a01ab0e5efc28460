"""What follows from what happened to a gang. The rows are sentences of the operator's promises."""

from dataclasses import dataclass, field

import pytest

from qmljob_api.exitcodes import ExitCode
from qmljob_api.reasons import Reason
from qmljob_api.types import FailureAction, QMLJob, Role, SuccessPolicy
from qmljob_operator.gangstate import GangState
from qmljob_operator.policy import (
    BACKOFF_CAP_SECONDS,
    LOST_PEER_LIMIT,
    Decision,
    FailJob,
    KeepWaiting,
    RestartGang,
    Succeed,
    backoff_seconds,
    decide,
)
from qmljob_operator.testing import STARTED, make_gang, make_job, make_rule

SETTLE = 45.0
CRASH = 1
W0, W1, W2, PS, CHIEF, EVALUATOR = "worker-0", "worker-1", "worker-2", "ps-0", "chief-0", "evaluator-0"


def after(job: QMLJob, gang: GangState, seconds: float) -> Decision:
    return decide(job, gang, now=STARTED + seconds, settle_seconds=SETTLE)


def summary(decision: Decision) -> tuple[object, ...]:
    match decision:
        case KeepWaiting(until):
            return ("wait", None if until is None else until - STARTED)
        case Succeed():
            return ("succeed",)
        case RestartGang(charged, cause, reason, _):
            return ("restart", "charged" if charged else "free", cause.replica.name.removeprefix("qcnn-"), reason)
        case FailJob(reason, cause, _):
            return ("fail", cause and cause.replica.name.removeprefix("qcnn-"), reason)


@dataclass(frozen=True)
class Row:
    expected: tuple[object, ...]
    ended: tuple[tuple, ...] = ()
    at: float = 100.0
    job: dict = field(default_factory=dict)
    state: dict = field(default_factory=dict)


ALL = {"success": SuccessPolicy.ALL_REPLICAS}
CHARGED_W1 = ("restart", "charged", W1, Reason.REPLICA_FAILED)

ROWS = {
    # Success
    "a gang that runs is left alone": Row(("wait", None)),
    "Chief: worker 0's success is the job's, at once": Row(("succeed",), ((W0, 0, 99),)),
    "Chief: the chief is the replica of that role where there is one": Row(
        ("wait", None), ((W0, 0, 99),), job={"roles": {"chief": 1, "worker": 1}}
    ),
    "Chief: its success counts even if another replica failed": Row(("succeed",), ((W1, CRASH, 98), (W0, 0, 99))),
    "a replica that ended with 0 while others run is simply done": Row(("wait", None), ((W1, 0, 50),)),
    "AllReplicas: one success is not enough": Row(("wait", None), ((W0, 0, 99),), job=ALL),
    "AllReplicas: every worker's success is": Row(("succeed",), tuple((w, 0, 99) for w in (W0, W1, W2)), job=ALL),
    "AllReplicas: a ps and an evaluator go on for ever and don't count": Row(
        ("succeed",),
        ((W0, 0, 99), (CHIEF, 0, 99)),
        job={**ALL, "roles": {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}},
    ),
    "a success is not lost to a deadline that passed": Row(
        ("succeed",), ((W0, 0, 10),), at=999, job={"active_deadline_seconds": 60}
    ),
    "exit 0 of a disrupted replica is no success: it answered SIGTERM": Row(
        ("restart", "free", W0, Reason.DISRUPTED), ((W0, 0, 10, True),)
    ),
    # Deadlines
    "the job's deadline is waited for": Row(("wait", 600), job={"active_deadline_seconds": 600}),
    "the job's deadline fails it": Row(
        ("fail", None, Reason.DEADLINE_EXCEEDED), at=600, job={"active_deadline_seconds": 600}
    ),
    "the job's deadline counts from attempt 0": Row(
        ("fail", None, Reason.DEADLINE_EXCEEDED),
        job={"active_deadline_seconds": 600},
        state={"job_started_at": STARTED - 500},
    ),
    "the start's deadline counts while some replica never ran": Row(
        ("wait", 120), job={"startup_deadline_seconds": 120}, state={"never_started": (W1,)}
    ),
    "the start's deadline fails the job": Row(
        ("fail", None, Reason.STARTUP_DEADLINE_EXCEEDED),
        at=120,
        job={"startup_deadline_seconds": 120},
        state={"never_started": (W1,)},
    ),
    "the start's deadline counts from each attempt": Row(
        ("wait", 120),
        job={"startup_deadline_seconds": 120},
        state={"never_started": (W1,), "job_started_at": STARTED - 500},
    ),
    "the start's deadline is over once all replicas ran": Row(
        ("wait", None), at=999, job={"startup_deadline_seconds": 120}
    ),
    "a deadline comes before the settle time": Row(
        ("wait", 110), ((W1, CRASH, 99),), job={"active_deadline_seconds": 110}
    ),
    # Settling
    "after the first failure the operator waits a bounded settle time": Row(("wait", 99 + SETTLE), ((W1, CRASH, 99),)),
    "the settle time counts from the first failure": Row(
        ("wait", 80 + SETTLE), ((W1, ExitCode.LOST_PEER, 99), (W2, CRASH, 80))
    ),
    "the settle time is over": Row(CHARGED_W1, ((W1, CRASH, 100 - SETTLE),)),
    "nobody is left who could explain it": Row(
        CHARGED_W1, ((W1, CRASH, 98), (W0, ExitCode.LOST_PEER, 99), (W2, ExitCode.LOST_PEER, 99))
    ),
    "an evaluator that still runs explains nothing": Row(
        ("restart", "charged", W0, Reason.REPLICA_FAILED),
        ((W0, CRASH, 99),),
        job={"roles": {"worker": 1, "evaluator": 1}},
    ),
    "a replica that has not started gets its time": Row(
        ("wait", 144), ((W0, CRASH, 99),), state={"never_started": (W1, W2)}
    ),
    "a replica that never ran explains nothing": Row(
        ("restart", "free", W0, Reason.REPLICA_NEVER_STARTED),
        ((W0, CRASH, 99),),
        at=144,
        state={"never_started": (W1, W2)},
    ),
    "a replica that has not started does not hold up what fails the job": Row(
        ("fail", W0, Reason.INVALID_CONFIGURATION),
        ((W0, ExitCode.INVALID_CONFIGURATION, 99),),
        state={"never_started": (W1, W2)},
    ),
    # Root cause
    "lost peer is never a root cause": Row(
        ("restart", "charged", W2, Reason.REPLICA_FAILED), ((W1, ExitCode.LOST_PEER, 10), (W2, CRASH, 20))
    ),
    "of equal ends the first replica's is charged": Row(CHARGED_W1, ((W2, CRASH, 10), (W1, CRASH, 10))),
    "the earliest end is charged": Row(CHARGED_W1, ((W2, 137, 20), (W1, CRASH, 10))),
    "at the same second, what is bound to fail again explains more": Row(
        ("fail", W2, Reason.INVALID_CONFIGURATION), ((W1, CRASH, 10), (W2, ExitCode.INVALID_CONFIGURATION, 10))
    ),
    "a disruption anywhere in the gang wins and is not charged": Row(
        ("restart", "free", W2, Reason.DISRUPTED), ((W1, CRASH, 10), (W2, 143, 50, True))
    ),
    "a disruption wins over a code that fails the job": Row(
        ("restart", "free", W2, Reason.DISRUPTED), ((W1, ExitCode.INVALID_CONFIGURATION, 10), (W2, 143, 50, True))
    ),
    "a replica that answered SIGTERM was disrupted": Row(
        ("restart", "free", W1, Reason.DISRUPTED), ((W1, ExitCode.PREEMPTED, 10), (W0, ExitCode.PREEMPTED, 11))
    ),
    "a disruption is free even with no restart left": Row(
        ("restart", "free", W1, Reason.DISRUPTED), ((W1, 137, 10, True),), job={"backoff_limit": 0}
    ),
    "a replica can be disrupted before it ran": Row(
        ("restart", "free", W1, Reason.DISRUPTED), ((W1, 137, 10, True),), state={"never_started": (W1,)}
    ),
    "a failure while some replica of the attempt never ran is not charged": Row(
        ("restart", "free", W1, Reason.REPLICA_NEVER_STARTED),
        ((W1, CRASH, 10),),
        job={"backoff_limit": 0},
        state={"never_started": (W2,)},
    ),
    "a replica that gave up on one that never ran has not lost a peer": Row(
        ("restart", "free", W1, Reason.REPLICA_NEVER_STARTED),
        ((W1, ExitCode.LOST_PEER, 10),),
        state={"never_started": (W2,), "lost_peer_attempts": 99},
    ),
    "nobody waits for an evaluator that never ran": Row(
        ("restart", "charged", W0, Reason.REPLICA_FAILED),
        ((W0, CRASH, 10),),
        job={"roles": {"worker": 1, "evaluator": 1}},
        state={"never_started": (EVALUATOR,)},
    ),
    # Lost peers only
    "an attempt that ends with lost peers only is not charged": Row(
        ("restart", "free", W1, Reason.LOST_PEERS_ONLY), ((W1, ExitCode.LOST_PEER, 10),), job={"backoff_limit": 0}
    ),
    "attempts that end with lost peers only have a cap of their own": Row(
        ("fail", W1, Reason.LOST_PEERS_ONLY),
        ((W1, ExitCode.LOST_PEER, 10),),
        state={"lost_peer_attempts": LOST_PEER_LIMIT - 1},
    ),
    # Default rules
    "our own invalid configuration fails the job": Row(
        ("fail", W1, Reason.INVALID_CONFIGURATION), ((W1, ExitCode.INVALID_CONFIGURATION, 10),)
    ),
    "a damaged artifact will be as damaged at the next attempt": Row(
        ("fail", W1, Reason.BAD_ARTIFACT), ((W1, ExitCode.BAD_ARTIFACT, 10),)
    ),
    "a code that fails the job does so while some replica never ran": Row(
        ("fail", W1, Reason.INVALID_CONFIGURATION),
        ((W1, ExitCode.INVALID_CONFIGURATION, 10),),
        state={"never_started": (W2,)},
    ),
    **{
        f"any other code restarts the gang: {code}": Row(CHARGED_W1, ((W1, code, 10),))
        for code in (CRASH, 2, ExitCode.STORE_FAILED, 137, 139, -9, 255)
    },
    "the last restart of the limit": Row(CHARGED_W1, ((W1, CRASH, 10),), state={"restarts": 2}),
    "no restart is left": Row(
        ("fail", W1, Reason.BACKOFF_LIMIT_EXCEEDED), ((W1, CRASH, 10),), state={"restarts": 3, "attempt": 9}
    ),
    "a limit of 0 means one attempt": Row(
        ("fail", W1, Reason.BACKOFF_LIMIT_EXCEEDED), ((W1, CRASH, 10),), job={"backoff_limit": 0}
    ),
    # The user's rules
    "a rule fails the job": Row(
        ("fail", W1, Reason.FAILURE_RULE), ((W1, 3, 10),), job={"rules": (make_rule(FailureAction.FAIL_JOB, 3),)}
    ),
    "a rule restarts where the default would fail the job": Row(
        CHARGED_W1,
        ((W1, ExitCode.BAD_ARTIFACT, 10),),
        job={"rules": (make_rule(FailureAction.RESTART_GANG, ExitCode.BAD_ARTIFACT),)},
    ),
    "the first match wins": Row(
        CHARGED_W1,
        ((W1, 3, 10),),
        job={"rules": (make_rule(FailureAction.RESTART_GANG, 3), make_rule(FailureAction.FAIL_JOB, 3))},
    ),
    "a rule can name what it is not about": Row(
        ("fail", W1, Reason.FAILURE_RULE),
        ((W1, 4, 10),),
        job={"rules": (make_rule(FailureAction.FAIL_JOB, 3, negate=True),)},
    ),
    "a rule that names other codes does not match": Row(
        CHARGED_W1, ((W1, 3, 10),), job={"rules": (make_rule(FailureAction.FAIL_JOB, 3, negate=True),)}
    ),
    "a rule for other roles does not match": Row(
        CHARGED_W1, ((W1, 3, 10),), job={"rules": (make_rule(FailureAction.FAIL_JOB, 3, roles=(Role.CHIEF,)),)}
    ),
    "no rule is asked about a lost peer": Row(
        ("restart", "free", W1, Reason.LOST_PEERS_ONLY),
        ((W1, ExitCode.LOST_PEER, 10),),
        job={"rules": (make_rule(FailureAction.FAIL_JOB, 3, negate=True),)},
    ),
    "not even whether to ignore it": Row(
        ("restart", "free", W1, Reason.LOST_PEERS_ONLY),
        ((W1, ExitCode.LOST_PEER, 10),),
        job={"rules": (make_rule(FailureAction.IGNORE, 3, negate=True),)},
    ),
    "no rule ignores a disruption": Row(
        ("restart", "free", W1, Reason.DISRUPTED),
        ((W1, 143, 10, True),),
        job={"rules": (make_rule(FailureAction.IGNORE, 143),)},
    ),
    "no rule is asked about a disruption": Row(
        ("restart", "free", W1, Reason.DISRUPTED),
        ((W1, 143, 10, True),),
        job={"rules": (make_rule(FailureAction.FAIL_JOB, 143),)},
    ),
    "a rule about 75 says that the user's program means something else by it": Row(
        ("fail", W1, Reason.FAILURE_RULE),
        ((W1, ExitCode.PREEMPTED, 10),),
        job={"rules": (make_rule(FailureAction.FAIL_JOB, ExitCode.PREEMPTED),)},
    ),
    "a rule about all codes but some is not about 75": Row(
        ("restart", "free", W1, Reason.DISRUPTED),
        ((W1, ExitCode.PREEMPTED, 10),),
        job={"rules": (make_rule(FailureAction.FAIL_JOB, 3, negate=True),)},
    ),
    "an ignored failure leaves the others running": Row(
        ("wait", None), ((W1, 3, 10),), job={"rules": (make_rule(FailureAction.IGNORE, 3),)}
    ),
    "an ignored failure is not the root cause of another": Row(
        ("restart", "charged", W2, Reason.REPLICA_FAILED),
        ((W1, 3, 10), (W2, CRASH, 20)),
        job={"rules": (make_rule(FailureAction.IGNORE, 3),)},
    ),
    "AllReplicas: an ignored failure counts as ended": Row(
        ("succeed",),
        ((W0, 0, 20), (W1, 3, 10), (W2, 0, 20)),
        job={**ALL, "rules": (make_rule(FailureAction.IGNORE, 3),)},
    ),
    "the chief's failure can't be ignored": Row(
        ("restart", "charged", W0, Reason.REPLICA_FAILED),
        ((W0, 3, 10),),
        job={"rules": (make_rule(FailureAction.IGNORE, 3),)},
    ),
    # Roles
    "a lost ps restarts the gang": Row(
        ("restart", "charged", PS, Reason.REPLICA_FAILED), ((PS, CRASH, 10),), job={"roles": {"worker": 2, "ps": 1}}
    ),
    **{
        f"an evaluator's failure never restarts the gang: {name}": Row(
            ("wait", None), ((EVALUATOR, *end),), job={"roles": {"worker": 2, "evaluator": 1}, "rules": rules}
        )
        for name, end, rules in [
            ("a crash", (CRASH, 10), ()),
            ("a disruption", (137, 10, True), ()),
            ("a lost peer", (ExitCode.LOST_PEER, 10), ()),
            ("preempted", (ExitCode.PREEMPTED, 10), ()),
            ("not even by a rule", (CRASH, 10), (make_rule(FailureAction.RESTART_GANG, CRASH),)),
        ]
    },
    "an evaluator that can't work as configured fails the job": Row(
        ("fail", EVALUATOR, Reason.INVALID_CONFIGURATION),
        ((EVALUATOR, ExitCode.INVALID_CONFIGURATION, 10),),
        job={"roles": {"worker": 2, "evaluator": 1}},
    ),
    "an evaluator's disruption does not excuse a worker": Row(
        CHARGED_W1, ((EVALUATOR, 137, 5, True), (W1, CRASH, 10)), job={"roles": {"worker": 2, "evaluator": 1}}
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_the_decision(row: Row) -> None:
    job = make_job(**row.job)
    gang = make_gang(job, *row.ended, **row.state)
    assert summary(after(job, gang, row.at)) == row.expected


def test_a_failure_message_says_who_what_and_why() -> None:
    job = make_job(backoff_limit=1)
    decision = after(job, make_gang(job, (W1, 137, 10), restarts=1, attempt=4), 100)
    assert isinstance(decision, FailJob)
    assert decision.message == (
        "qcnn-worker-1 exited with 137 (killed by SIGKILL) in attempt 4, and all restarts of "
        "runPolicy.backoffLimit (1) are used up"
    )


def test_a_startup_message_names_a_few_of_many() -> None:
    job = make_job({"worker": 9}, startup_deadline_seconds=5)
    gang = make_gang(job, never_started=tuple(f"worker-{n}" for n in range(3, 9)))
    decision = after(job, gang, 5)
    assert isinstance(decision, FailJob)
    assert decision.message == (
        "qcnn-worker-3, qcnn-worker-4, qcnn-worker-5 and 3 more did not start within "
        "runPolicy.startupDeadlineSeconds (5 s)"
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (64, "exited with 64 (invalid configuration) in attempt 0"),
        (7, "exited with 7 in attempt 0"),
        (-9, "was killed by SIGKILL in attempt 0"),
    ],
)
def test_an_exit_code_is_said_in_words(code: int, words: str) -> None:
    job = make_job(rules=(make_rule(FailureAction.FAIL_JOB, 3, negate=True),))
    decision = after(job, make_gang(job, (W1, code, 10)), 100)
    assert isinstance(decision, FailJob)
    assert decision.message == f"qcnn-worker-1 {words}"


@pytest.mark.parametrize(
    ("ended", "never_started", "message"),
    [
        (((W1, 1, 1), (W1, 1, 2)), (), "ended twice"),
        ((), ("worker-9",), "not in the topology"),
        (((W1, 1, 1),), (W1,), "never started can't have ended"),
    ],
    ids=["an end twice", "a stranger", "ended before it started"],
)
def test_a_state_that_cannot_occur_is_refused(ended: tuple, never_started: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_gang(make_job(), *ended, never_started=never_started)


def test_the_delay_doubles_up_to_its_cap() -> None:
    delays = [backoff_seconds(restarts, "u-1") for restarts in range(200)]
    for restarts, delay in enumerate(delays):
        raw = min(BACKOFF_CAP_SECONDS, 10 * 2.0 ** min(restarts, 60))
        assert 0.75 * raw <= delay <= raw


def test_the_delay_is_the_same_when_asked_again_and_another_for_another_job() -> None:
    assert backoff_seconds(2, "u-1") == backoff_seconds(2, "u-1")
    assert len({backoff_seconds(2, f"u-{n}") for n in range(50)}) == 50
    assert backoff_seconds(2, "u-1", base=0) == 0


@pytest.mark.parametrize(
    ("end", "state", "exponent"),
    [
        ((W1, CRASH, 10), {}, 2),
        ((W1, CRASH, 10, True), {}, 0),
        ((W1, ExitCode.LOST_PEER, 10), {}, 1),
        ((W1, CRASH, 10), {"never_started": (W2,)}, 7),
    ],
    ids=[
        "charges",
        "a disruption is nobody's fault",
        "attempts with lost peers only",
        "attempts, where nothing is charged",
    ],
)
def test_the_delay_grows_with_what_repeats_itself(end: tuple, state: dict, exponent: int) -> None:
    job = make_job()
    gang = make_gang(job, end, restarts=2, attempt=7, lost_peer_attempts=1, **state)
    decision = after(job, gang, 100)
    assert isinstance(decision, RestartGang)
    assert decision.delay_seconds == backoff_seconds(exponent, "u-1")
