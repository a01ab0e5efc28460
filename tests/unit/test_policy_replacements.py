"""Which replicas are replaced alone, what that costs, and when their end decides over the whole gang instead."""

from dataclasses import replace
from typing import Any

import pytest

from qmljob_api.exitcodes import ExitCode
from qmljob_api.reasons import Reason
from qmljob_api.types import FailureAction, QMLJob, Role, SuccessPolicy
from qmljob_operator.gangstate import GangState, ReplicaEnd, how_it_ended
from qmljob_operator.policy import (
    Decision,
    FailJob,
    KeepWaiting,
    ReplaceReplica,
    RestartGang,
    Succeed,
    backoff_seconds,
    decide,
)
from qmljob_operator.testing import STARTED, make_gang, make_job, make_rule
from qmljob_operator.topology import Replica

SETTLE = 45.0
CRASH = 1
W0, W1, W2, PS, CHIEF, EVALUATOR = "worker-0", "worker-1", "worker-2", "ps-0", "chief-0", "evaluator-0"
PS_JOB = {"worker": 3, "ps": 1}
CHIEF_JOB = {"chief": 1, "worker": 2, "ps": 1}
WATCHED = {"worker": 2, "evaluator": 1}


def after(job: QMLJob, gang: GangState, seconds: float = 100) -> Decision:
    return decide(job, gang, now=STARTED + seconds, settle_seconds=SETTLE, replace_alone=True)


def summary(decision: Decision) -> tuple[object, ...]:
    match decision:
        case KeepWaiting(until):
            return ("wait", None if until is None else until - STARTED)
        case Succeed():
            return ("succeed",)
        case RestartGang(charged, cause, reason, _):
            return ("restart", "charged" if charged else "free", cause.replica.name.removeprefix("qcnn-"), reason)
        case ReplaceReplica(charged, cause, reason, _):
            return ("replace", "charged" if charged else "free", cause.replica.name.removeprefix("qcnn-"), reason)
        case FailJob(reason, cause, _):
            return ("fail", cause and cause.replica.name.removeprefix("qcnn-"), reason)


def row(
    roles: dict[str, int], *ended: tuple[Any, ...], at: float = 100.0, job: Any = None, **state: Any
) -> tuple[Any, ...]:
    return roles, ended, at, job or {}, state


ROWS: dict[str, tuple[tuple[Any, ...], tuple[object, ...]]] = {
    # Who
    "a worker of a job with ps": (
        row(PS_JOB, (W1, CRASH, 50)),
        ("replace", "charged", W1, Reason.REPLICA_REPLACED),
    ),
    "not where there is no ps": (
        row({"worker": 3}, (W1, CRASH, 50)),
        ("restart", "charged", W1, Reason.REPLICA_FAILED),
    ),
    "not worker 0, where it leads": (row(PS_JOB, (W0, CRASH, 50)), ("restart", "charged", W0, Reason.REPLICA_FAILED)),
    "worker 0, where a chief leads": (
        row(CHIEF_JOB, (W0, CRASH, 50)),
        ("replace", "charged", W0, Reason.REPLICA_REPLACED),
    ),
    "not the chief": (row(CHIEF_JOB, (CHIEF, CRASH, 50)), ("restart", "charged", CHIEF, Reason.REPLICA_FAILED)),
    "not a ps": (row(PS_JOB, (PS, CRASH, 50)), ("restart", "charged", PS, Reason.REPLICA_FAILED)),
    "an evaluator, free": (
        row(WATCHED, (EVALUATOR, CRASH, 50)),
        ("replace", "free", EVALUATOR, Reason.REPLICA_REPLACED),
    ),
    # When
    "after the settle time": (row(PS_JOB, (W1, CRASH, 60)), ("wait", 105)),
    "at once where the cluster took it": (
        row(PS_JOB, (W1, 143, 99, True)),
        ("replace", "free", W1, Reason.DISRUPTED),
    ),
    "what was taken goes before what failed": (
        row(PS_JOB, (W1, CRASH, 98), (W2, 143, 99, True)),
        ("replace", "free", W2, Reason.DISRUPTED),
    ),
    "the earliest first": (
        row(PS_JOB, (W1, CRASH, 20), (W2, CRASH, 10)),
        ("replace", "charged", W2, Reason.REPLICA_REPLACED),
    ),
    "a success is no reason": (row(CHIEF_JOB, (W1, 0, 10)), ("wait", None)),
    "success comes first": (row(CHIEF_JOB, (CHIEF, 0, 99), (W1, CRASH, 10)), ("succeed",)),
    # What it costs
    "a disruption is free, with no restart left": (
        row(PS_JOB, (W1, 137, 99, True), job={"backoff_limit": 0}),
        ("replace", "free", W1, Reason.DISRUPTED),
    ),
    "a program that answered SIGTERM was disrupted": (
        row(PS_JOB, (W1, ExitCode.PREEMPTED, 10)),
        ("replace", "free", W1, Reason.DISRUPTED),
    ),
    "a lost peer is free": (
        row(PS_JOB, (W1, ExitCode.LOST_PEER, 10)),
        ("replace", "free", W1, Reason.REPLICA_REPLACED),
    ),
    "a failure while a ps never ran is free": (
        row(PS_JOB, (W1, CRASH, 10), never_started=(PS,)),
        ("replace", "free", W1, Reason.REPLICA_NEVER_STARTED),
    ),
    "one while another worker is being replaced is not": (
        row(PS_JOB, (W1, CRASH, 10), never_started=(W2,), replacements={"qcnn-worker-2": 1}),
        ("replace", "charged", W1, Reason.REPLICA_REPLACED),
    ),
    "no restart is left": (
        row(PS_JOB, (W1, CRASH, 10), job={"backoff_limit": 1}, restarts=1),
        ("fail", W1, Reason.BACKOFF_LIMIT_EXCEEDED),
    ),
    "an evaluator has as many replacements as the gang has restarts": (
        row(WATCHED, (EVALUATOR, CRASH, 10), job={"backoff_limit": 1}, restarts=1),
        ("replace", "free", EVALUATOR, Reason.REPLICA_REPLACED),
    ),
    "and then stays away": (
        row(WATCHED, (EVALUATOR, CRASH, 10), job={"backoff_limit": 1}, replacements={"qcnn-evaluator-0": 1}),
        ("wait", None),
    ),
    "but for disruptions": (
        row(WATCHED, (EVALUATOR, 137, 10, True), job={"backoff_limit": 1}, replacements={"qcnn-evaluator-0": 1}),
        ("replace", "free", EVALUATOR, Reason.DISRUPTED),
    ),
    # Rules
    "what can never work fails the job": (
        row(PS_JOB, (W1, ExitCode.INVALID_CONFIGURATION, 10)),
        ("fail", W1, Reason.INVALID_CONFIGURATION),
    ),
    "an evaluator's, too": (
        row(WATCHED, (EVALUATOR, ExitCode.BAD_ARTIFACT, 10)),
        ("fail", EVALUATOR, Reason.BAD_ARTIFACT),
    ),
    "a rule fails the job": (
        row(PS_JOB, (W1, 3, 10), job={"rules": (make_rule(FailureAction.FAIL_JOB, 3, roles=(Role.WORKER,)),)}),
        ("fail", W1, Reason.FAILURE_RULE),
    ),
    "what is ignored stays away": (
        row(PS_JOB, (W1, 3, 10), job={"rules": (make_rule(FailureAction.IGNORE, 3),)}),
        ("wait", None),
    ),
    # The gang
    "where a ps failed, too, all is judged as one": (
        row(PS_JOB, (W1, CRASH, 10), (PS, CRASH, 20)),
        ("restart", "charged", W1, Reason.REPLICA_FAILED),
    ),
    "and waits for its explanation as one": (row(PS_JOB, (W1, CRASH, 70), (PS, CRASH, 80)), ("wait", 115)),
    "a worker's disruption excuses the ps": (
        row(PS_JOB, (W1, 143, 99, True), (PS, CRASH, 98)),
        ("restart", "free", W1, Reason.DISRUPTED),
    ),
    "an evaluator's disruption excuses nobody": (
        row({**PS_JOB, "evaluator": 1}, (EVALUATOR, 143, 99, True), (PS, CRASH, 98)),
        ("wait", 143),
    ),
    "AllReplicas: an evaluator that failed is replaced, and does not count": (
        row(WATCHED, (EVALUATOR, CRASH, 10), (W1, 0, 10), job={"success": SuccessPolicy.ALL_REPLICAS}),
        ("replace", "free", EVALUATOR, Reason.REPLICA_REPLACED),
    ),
}


@pytest.mark.parametrize(("given", "expected"), ROWS.values(), ids=ROWS.keys())
def test_the_decision(given: tuple[Any, ...], expected: tuple[object, ...]) -> None:
    roles, ended, at, more, state = given
    job = make_job(roles, **more)
    assert summary(after(job, make_gang(job, *ended, **state), at)) == expected


@pytest.mark.parametrize(
    ("ended", "state", "exponent"),
    [
        ((W1, CRASH, 10), {"restarts": 2, "replacements": {"qcnn-worker-1": 5}}, 2),
        ((W1, ExitCode.LOST_PEER, 10), {"restarts": 2, "replacements": {"qcnn-worker-1": 5}}, 5),
        ((W1, 143, 10, True), {"restarts": 2, "replacements": {"qcnn-worker-1": 5}}, 0),
    ],
    ids=["charges", "the replica's own replacements, where nothing is charged", "a disruption is nobody's fault"],
)
def test_the_delay_grows_with_what_repeats_itself(ended: tuple[Any, ...], state: dict[str, Any], exponent: int) -> None:
    job = make_job(PS_JOB, backoff_limit=9)
    decision = after(job, make_gang(job, ended, **state))
    assert isinstance(decision, ReplaceReplica)
    assert decision.delay_seconds == backoff_seconds(exponent, "u-1")


@pytest.mark.parametrize(
    ("roles", "replica", "exponent"),
    [({"worker": 2}, W1, 4), (PS_JOB, W1, 3)],
    ids=["the gang", "the replica"],
)
def test_what_a_node_refuses_is_tried_again_ever_later(roles: dict[str, int], replica: str, exponent: int) -> None:
    job = make_job(roles)
    gang = make_gang(job, (replica, 137, 10, True), attempt=4, replacements={f"qcnn-{replica}": 3})
    refused = replace(gang, ended=tuple(replace(end, refused=True) for end in gang.ended))
    decision = after(job, refused)
    assert isinstance(decision, RestartGang | ReplaceReplica)
    assert (decision.charged, decision.delay_seconds) == (False, backoff_seconds(exponent, "u-1"))


def test_the_wait_for_a_start_begins_anew_with_a_replacement() -> None:
    job = make_job(WATCHED, startup_deadline_seconds=60)
    gang = make_gang(
        job,
        never_started=(EVALUATOR,),
        replacements={"qcnn-evaluator-0": 1},
        replaced_at={"qcnn-evaluator-0": STARTED + 500},
    )
    assert summary(after(job, gang, 505)) == ("wait", 560)
    decision = after(job, gang, 560)
    assert isinstance(decision, FailJob)
    assert decision.message == "qcnn-evaluator-0 did not start within runPolicy.startupDeadlineSeconds (60 s)"


def test_only_who_is_late_is_named() -> None:
    job = make_job({"worker": 2, "evaluator": 1}, startup_deadline_seconds=60)
    gang = make_gang(
        job,
        never_started=(W1, EVALUATOR),
        replacements={"qcnn-evaluator-0": 1},
        replaced_at={"qcnn-evaluator-0": STARTED + 50},
    )
    decision = after(job, gang, 60)
    assert isinstance(decision, FailJob)
    assert decision.message == "qcnn-worker-1 did not start within runPolicy.startupDeadlineSeconds (60 s)"


ENDS = {
    "exited with 7": ReplicaEnd(Replica(Role.WORKER, 1, "qcnn-worker-1"), 7, 0.0),
    "exited with 137 (killed by SIGKILL)": ReplicaEnd(Replica(Role.WORKER, 1, "qcnn-worker-1"), 137, 0.0),
    "exited with 137 (out of memory)": ReplicaEnd(
        Replica(Role.WORKER, 1, "qcnn-worker-1"), 137, 0.0, detail="out of memory"
    ),
    "exited with 69 (lost peer)": ReplicaEnd(Replica(Role.WORKER, 1, "qcnn-worker-1"), 69, 0.0),
    "was killed by SIGTERM": ReplicaEnd(Replica(Role.WORKER, 1, "qcnn-worker-1"), -15, 0.0),
    "was taken away (Eviction API: evicting)": ReplicaEnd(
        Replica(Role.WORKER, 1, "qcnn-worker-1"), 143, 0.0, disruption=True, detail="Eviction API: evicting"
    ),
    "was taken away (killed by SIGTERM)": ReplicaEnd(
        Replica(Role.WORKER, 1, "qcnn-worker-1"), 143, 0.0, disruption=True
    ),
}


@pytest.mark.parametrize(("words", "end"), ENDS.items(), ids=ENDS.keys())
def test_an_end_is_said_as_a_person_would(words: str, end: ReplicaEnd) -> None:
    assert how_it_ended(end) == f"qcnn-worker-1 {words}"
