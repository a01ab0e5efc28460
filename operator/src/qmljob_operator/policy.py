"""What follows from what happened to a gang: wait, succeed, restart, fail.

Pure: time is an argument (seconds since the epoch, as a float), and the same state gives the same decision. The local
run and the operator decide by this one function.

The rules, in the order in which they are tried:

1. Success. Under successPolicy Chief the chief's end with 0 is the job's success, at once; under AllReplicas that of
   every chief and worker. A replica that ended with 0 while others run is simply done.
2. Deadlines of the job and of the attempt's start.
3. Failures. Nobody acts on the first one alone: a node is known lost only after tens of seconds, while its peers give
   up after a few. So there is a settle time, unless every replica has ended, or a disruption shows: it wins over
   whatever else may still come. Then one root cause is chosen, and one charge made at most.

A failure restarts the gang, but for two kinds of replica that may be replaced alone where the caller can do that
(`replace_alone`): an evaluator, whose failure never restarts the gang, and a worker of a job with `ps`, whose peers do
not wait for it.
"""

import hashlib
from dataclasses import dataclass
from typing import overload

from qmljob_api.exitcodes import ExitCode
from qmljob_api.reasons import Reason
from qmljob_api.types import CodeOperator, FailureAction, FailureRule, QMLJob, Role, SuccessPolicy
from qmljob_operator.gangstate import GangState, ReplicaEnd, how_it_ended
from qmljob_operator.topology import listed

LOST_PEER_LIMIT = 3
"""Attempts in a row that may end with lost peers only. The last of them fails the job: replicas that never reach each
other will not do so by another start."""
BACKOFF_BASE_SECONDS = 10.0
BACKOFF_CAP_SECONDS = 360.0
BACKOFF_JITTER = 0.25
"""The share of a delay that is drawn, so that jobs that failed together do not start together."""


@dataclass(frozen=True, slots=True)
class KeepWaiting:
    """Nothing to do now. `until` is the time at which to decide again if nothing happens before; None: no such time."""

    until: float | None


@dataclass(frozen=True, slots=True)
class Succeed:
    """Training is done."""


@dataclass(frozen=True, slots=True)
class RestartGang:
    """End what still runs, and start a new attempt after `delay_seconds`; count a restart where `charged`."""

    charged: bool
    cause: ReplicaEnd
    reason: Reason
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class ReplaceReplica:
    """Start the replica of `cause` anew after `delay_seconds`, and nobody else; count a restart where `charged`."""

    charged: bool
    cause: ReplicaEnd
    reason: Reason
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class FailJob:
    """The job has failed. `message` is one line for people; `cause` is None where no replica is at fault."""

    reason: Reason
    cause: ReplicaEnd | None
    message: str


GangDecision = KeepWaiting | Succeed | RestartGang | FailJob
Decision = GangDecision | ReplaceReplica


@overload
def decide(
    job: QMLJob, gang: GangState, *, now: float, settle_seconds: float, backoff_base: float = ...
) -> GangDecision: ...


@overload
def decide(
    job: QMLJob,
    gang: GangState,
    *,
    now: float,
    settle_seconds: float,
    backoff_base: float = ...,
    replace_alone: bool,
) -> Decision: ...


def decide(
    job: QMLJob,
    gang: GangState,
    *,
    now: float,
    settle_seconds: float,
    backoff_base: float = BACKOFF_BASE_SECONDS,
    replace_alone: bool = False,
) -> Decision:
    """Returns what follows from the state of a gang (see the head of this module).

    Args:
        job: the job.
        gang: its present attempt.
        now: the time, in seconds, of the clock that `gang` was seen by.
        settle_seconds: how long to wait after the first failure for what explains it.
        backoff_base: delay before the first charged restart, in seconds.
        replace_alone: whether the caller can replace one replica of a running gang.
    """
    if _succeeded(job, gang):
        return Succeed()
    overdue = _deadline_exceeded(job, gang, now)
    if overdue is not None:
        return overdue
    times = [time for time, _ in _deadlines(job, gang)]
    alone = [end for end in gang.ended if replace_alone and _is_replaceable(job, gang, end)]
    failures = [end for end in _failures(job, gang) if end not in alone]
    if failures:
        # What would be replaced alone, were it the only one, may still explain why the others failed.
        failures += [end for end in alone if end.replica.role is not Role.EVALUATOR]
    judged = failures or alone
    if judged:
        settled_at = min(end.finished_at for end in judged) + settle_seconds
        if now >= settled_at or not _pending(job, gang, judged) or any(end.disruption for end in judged):
            answer = _after_failure if failures else _replace
            return answer(job, gang, judged, backoff_base)
        times.append(settled_at)
    return KeepWaiting(min(times, default=None))


def backoff_seconds(restarts: int, uid: str, *, base: float = BACKOFF_BASE_SECONDS) -> float:
    """Returns the delay before the next attempt: `base`·2^restarts, at most 360 s, less a jitter of up to a quarter.

    The jitter depends on `uid` and `restarts` alone, so that an operator that restarts finds the same delay again.
    """
    raw = min(BACKOFF_CAP_SECONDS, base * 2.0 ** min(restarts, 64))
    digest = hashlib.sha256(f"{uid}/{restarts}".encode()).digest()
    share = int.from_bytes(digest[:8]) / 2.0**64
    return raw * (1.0 - BACKOFF_JITTER * share)


def _succeeded(job: QMLJob, gang: GangState) -> bool:
    done = {end.replica.name for end in gang.ended if _is_success(end)}
    chief = gang.topology.chief
    if job.spec.success_policy is SuccessPolicy.CHIEF:
        return chief.name in done
    counted = [replica.name for replica in gang.topology.replicas if replica.role in (Role.CHIEF, Role.WORKER)]
    ignored = {end.replica.name for end in gang.ended if _is_ignored(job, gang, end)}
    return all(name in done or name in ignored for name in counted)


def _is_success(end: ReplicaEnd) -> bool:
    return end.exit_code == ExitCode.SUCCESS and not end.disruption


def _deadlines(job: QMLJob, gang: GangState) -> list[tuple[float, FailJob]]:
    policy = job.spec.run_policy
    found = []
    if policy.active_deadline_seconds is not None:
        seconds = policy.active_deadline_seconds
        message = f"the job took longer than runPolicy.activeDeadlineSeconds ({seconds} s)"
        found.append((gang.job_started_at + seconds, FailJob(Reason.DEADLINE_EXCEEDED, None, message)))
    if policy.startup_deadline_seconds is not None and gang.never_started:
        seconds = policy.startup_deadline_seconds
        waiting = [replica.name for replica in gang.topology.replicas if replica.name in gang.never_started]
        since = {name: max(gang.started_at, gang.replaced_at.get(name, gang.started_at)) for name in waiting}
        first = min(since.values())
        late = [name for name in waiting if since[name] == first]
        message = f"{listed(late)} did not start within runPolicy.startupDeadlineSeconds ({seconds} s)"
        found.append((first + seconds, FailJob(Reason.STARTUP_DEADLINE_EXCEEDED, None, message)))
    return found


def _deadline_exceeded(job: QMLJob, gang: GangState, now: float) -> FailJob | None:
    return next((outcome for time, outcome in _deadlines(job, gang) if now >= time), None)


def _pending(job: QMLJob, gang: GangState, judged: list[ReplicaEnd]) -> bool:
    """Whether some replica that could still change the answer has not ended (an evaluator's work is apart).

    A running one may show the root cause. One that has not started may be about to, and whether a restart is charged
    depends on it, so it gets its time; whether the job fails does not.
    """
    ended = {end.replica.name for end in gang.ended}
    members = {replica.name for replica in gang.topology.replicas if replica.role is not Role.EVALUATOR} - ended
    if members <= gang.never_started and any(_action(job, end) is FailureAction.FAIL_JOB for end in judged):
        return False
    return bool(members)


def _failures(job: QMLJob, gang: GangState) -> list[ReplicaEnd]:
    """Returns the ends that call for a decision: neither a success nor ignored."""
    return [end for end in gang.ended if not _is_success(end) and not _is_ignored(job, gang, end)]


def _is_ignored(job: QMLJob, gang: GangState, end: ReplicaEnd) -> bool:
    if _is_success(end) or end.replica == gang.topology.chief:
        return False
    if end.replica.role is Role.EVALUATOR:
        # It only watches: its failure never restarts the gang. It can fail the job, where it says that it will never
        # work or where the user says so.
        return end.disruption or _action(job, end) is not FailureAction.FAIL_JOB
    rule = _matching_rule(job, end)
    return rule is not None and rule.action is FailureAction.IGNORE


def _is_replaceable(job: QMLJob, gang: GangState, end: ReplicaEnd) -> bool:
    if _is_success(end) or (not end.disruption and _action(job, end) is FailureAction.FAIL_JOB):
        return False
    if end.replica.role is Role.EVALUATOR:
        # Nobody waits for it, so it must not use up the gang's restarts: it has as many replacements of its own.
        used = gang.replacements.get(end.replica.name, 0)
        return end.disruption or used < job.spec.run_policy.backoff_limit
    alone = end.replica.role is Role.WORKER and end.replica != gang.topology.chief
    return alone and bool(gang.topology.of(Role.PS)) and not _is_ignored(job, gang, end)


def _replace(job: QMLJob, gang: GangState, ends: list[ReplicaEnd], base: float) -> ReplaceReplica | FailJob:
    # One at a time; what was taken away first, since the others may still find their explanation.
    cause = _earliest(job, gang, [end for end in ends if end.disruption] or ends)
    uid, used = job.metadata.uid, gang.replacements.get(cause.replica.name, 0)
    uncharged = cause.exit_code == ExitCode.LOST_PEER or cause.replica.role is Role.EVALUATOR
    if _is_disruption(job, cause):
        delay = backoff_seconds(used if cause.refused else 0, uid, base=base)
        return ReplaceReplica(False, cause, Reason.DISRUPTED, delay)
    if uncharged:
        return ReplaceReplica(False, cause, Reason.REPLICA_REPLACED, backoff_seconds(used, uid, base=base))
    if is_waited_for(gang):
        return ReplaceReplica(False, cause, Reason.REPLICA_NEVER_STARTED, backoff_seconds(used, uid, base=base))
    charge = _charge(job, gang, cause, base)
    if isinstance(charge, FailJob):
        return charge
    return ReplaceReplica(True, cause, Reason.REPLICA_REPLACED, charge.delay_seconds)


def _matching_rule(job: QMLJob, end: ReplicaEnd) -> FailureRule | None:
    """Returns the user's first rule that matches. Rules judge root causes, so never a disruption or a lost peer."""
    if end.disruption or end.exit_code == ExitCode.LOST_PEER:
        return None
    for rule in job.spec.failure_policy.rules:
        codes = rule.on_exit_codes
        listed = end.exit_code in codes.values
        if listed is (codes.operator is CodeOperator.IN) and (codes.roles is None or end.replica.role in codes.roles):
            return rule
    return None


def _action(job: QMLJob, end: ReplicaEnd) -> FailureAction:
    rule = _matching_rule(job, end)
    if rule is not None:
        return rule.action
    # The same start would fail in the same way: nothing that a restart changes is at fault.
    hopeless = end.exit_code in (ExitCode.INVALID_CONFIGURATION, ExitCode.BAD_ARTIFACT)
    return FailureAction.FAIL_JOB if hopeless else FailureAction.RESTART_GANG


def _is_disruption(job: QMLJob, end: ReplicaEnd) -> bool:
    # "Preempted" is how our program answers SIGTERM, which it gets from the cluster. A user's rule that lists the code
    # takes precedence, since his own program may mean something else by it.
    if end.disruption or end.exit_code != ExitCode.PREEMPTED:
        return end.disruption
    rule = _matching_rule(job, end)
    return rule is None or rule.on_exit_codes.operator is CodeOperator.NOT_IN


def _after_failure(job: QMLJob, gang: GangState, failures: list[ReplicaEnd], base: float) -> RestartGang | FailJob:
    uid = job.metadata.uid
    disruptions = [end for end in failures if _is_disruption(job, end)]
    if disruptions:
        cause = _earliest(job, gang, disruptions)
        # What its node refuses is refused again, as long as nothing changes there.
        delay = backoff_seconds(gang.attempt if cause.refused else 0, uid, base=base)
        return RestartGang(False, cause, Reason.DISRUPTED, delay)
    causes = [end for end in failures if end.exit_code != ExitCode.LOST_PEER]
    cause = _earliest(job, gang, causes or failures)
    if _action(job, cause) is FailureAction.FAIL_JOB:
        return FailJob(_fail_reason(job, cause), cause, _what(gang, cause))
    if is_waited_for(gang):
        # Uncharged restarts have no limit, so the delay grows with the attempts instead.
        return RestartGang(False, cause, Reason.REPLICA_NEVER_STARTED, backoff_seconds(gang.attempt, uid, base=base))
    return _charge(job, gang, cause, base) if causes else _lost_peers_only(job, gang, cause, base)


def _earliest(job: QMLJob, gang: GangState, ends: list[ReplicaEnd]) -> ReplicaEnd:
    """Returns the first of some ends. At the same second, what is bound to fail again explains more than the others."""
    order = {replica.name: position for position, replica in enumerate(gang.topology.replicas)}
    return min(
        ends,
        key=lambda end: (
            end.finished_at,
            _action(job, end) is not FailureAction.FAIL_JOB,
            order[end.replica.name],
        ),
    )


def _lost_peers_only(job: QMLJob, gang: GangState, cause: ReplicaEnd, base: float) -> RestartGang | FailJob:
    if gang.lost_peer_attempts + 1 >= LOST_PEER_LIMIT:
        message = f"{LOST_PEER_LIMIT} attempts in a row ended with lost peers only: check the network between replicas"
        return FailJob(Reason.LOST_PEERS_ONLY, cause, message)
    delay = backoff_seconds(gang.lost_peer_attempts, job.metadata.uid, base=base)
    return RestartGang(False, cause, Reason.LOST_PEERS_ONLY, delay)


def _charge(job: QMLJob, gang: GangState, cause: ReplicaEnd, base: float) -> RestartGang | FailJob:
    limit = job.spec.run_policy.backoff_limit
    if gang.restarts >= limit:
        message = f"{_what(gang, cause)}, and all restarts of runPolicy.backoffLimit ({limit}) are used up"
        return FailJob(Reason.BACKOFF_LIMIT_EXCEEDED, cause, message)
    delay = backoff_seconds(gang.restarts, job.metadata.uid, base=base)
    return RestartGang(True, cause, Reason.REPLICA_FAILED, delay)


def is_waited_for(gang: GangState) -> bool:
    """Returns whether a peer that others need has not started: not an evaluator, and not one that is replaced."""
    members = {replica.name for replica in gang.topology.replicas if replica.role is not Role.EVALUATOR}
    return bool(members & gang.never_started - gang.replacements.keys())


def _what(gang: GangState, cause: ReplicaEnd) -> str:
    return f"{how_it_ended(cause)} in attempt {gang.attempt}"


def _fail_reason(job: QMLJob, cause: ReplicaEnd) -> Reason:
    if _matching_rule(job, cause) is not None:
        return Reason.FAILURE_RULE
    if cause.exit_code == ExitCode.BAD_ARTIFACT:
        return Reason.BAD_ARTIFACT
    return Reason.INVALID_CONFIGURATION
