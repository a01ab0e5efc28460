"""Attempts: how one begins, and what follows from what happens to it (docs/operator.md, "Promises")."""

from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.progress import parse_progress
from qmljob_api.reasons import Reason
from qmljob_api.status import AttemptRecord, Gang, LastFailure, Replacing, progress_status
from qmljob_api.timestamps import format_time
from qmljob_operator.gangstate import GangState, ReplicaEnd, how_it_ended
from qmljob_operator.observation import ATTEMPT_LIMIT, Answer, PodState, Verdict
from qmljob_operator.planning.draft import Draft
from qmljob_operator.planning.finished import plan_finished
from qmljob_operator.planning.gang import (
    fingerprint_of,
    gang_state,
    last_attempt,
    lost_node,
    pods_of,
    record_successes,
    roles_of,
    spec_changed,
    unknown_nodes,
    usable,
)
from qmljob_operator.planning.objects import reach
from qmljob_operator.planning.plan import Ask, Count, Total
from qmljob_operator.planning.summary import listed_roles, show_refusal
from qmljob_operator.policy import FailJob, KeepWaiting, ReplaceReplica, RestartGang, Succeed, decide, is_waited_for

SETTLE_SECONDS = 65.0
"""How long after a first failure the explanation may take: Kubernetes calls a node lost 50 s after its last sign of
life (kube-controller-manager's --node-monitor-grace-period), which it looks for every 5 s. No wait where every replica
that started has ended, which is the rule: survivors give up after 7 to 10 s."""
PROGRESS_SECONDS = 15.0
"""How often a job's chief is asked for its progress."""
_TAIL_LIMIT = 4000


def plan_training(draft: Draft) -> Ask | None:
    """Plans for a job that is neither finished nor suspended; returns what must be read first, if anything."""
    status, gang = draft.status, draft.status.gang
    draft.condition(ConditionType.SUSPENDED, False, Reason.JOB_RESUMED, "spec.suspend is false.")
    newest = max((pod.attempt for pod in draft.seen.pods.values() if pod.attempt < ATTEMPT_LIMIT), default=-1)
    lost = newest > (-1 if status.attempt is None else status.attempt)
    if lost or gang is None or not usable(gang, status.attempt):
        return _begin(draft, newest, None)
    if has_succeeded(draft, gang):
        # Before anything else: an edit must not restart what is done.
        return succeed(draft, gang)
    if spec_changed(draft, gang):
        answer = _answered(draft)
        if answer is None:
            return Ask(dry_run=True)
        if answer.verdict is Verdict.ACCEPTED:
            return _begin(draft, newest, Reason.SPEC_CHANGED)
        # What runs goes on as it was built, and the condition says why the edit has no effect.
        show_refusal(draft, answer, aside=runs_on(gang))
    elif gang.roles != roles_of(draft.job):
        return _begin(draft, newest, None)
    else:
        if gang.complete:
            # Else the attempt may have followed a failure under an edit that no pod can be made from.
            draft.condition(ConditionType.INVALID, False, Reason.RESOLVED, "The job can be run as it is written.")
        if gang.generation != draft.seen.generation:
            gang = gang.model_copy(update={"generation": draft.seen.generation})
            draft.update(gang=gang)
    return _judge(draft, gang)


def runs_on(gang: Gang) -> str:
    """Returns what is to be added to the words on an edit that can't be followed."""
    return f" (attempt {gang.attempt} goes on as it was built)"


def _answered(draft: Draft) -> Answer | None:
    """Returns what the API server said of the job's pods, None where it has to be asked (again)."""
    answer = draft.seen.dry_run
    old = answer is not None and answer.verdict is Verdict.FORBIDDEN and draft.now >= answer.retry_at
    return None if old else answer


def _begin(draft: Draft, newest: int, reason: Reason | None) -> Ask | None:
    """Begins an attempt that no failure made necessary: the first one, or one after an edit or a suspension."""
    answer, status = _answered(draft), draft.status
    if answer is None:
        return Ask(dry_run=True)
    last = last_attempt(status, newest)
    if answer.verdict is not Verdict.ACCEPTED:
        show_refusal(draft, answer)
        if status.gang is None:
            waiting = Phase.PENDING if last < 0 else Phase.RESTARTING
            draft.update(phase=Phase.INVALID if answer.verdict is Verdict.INVALID else waiting)
        return None
    draft.condition(ConditionType.INVALID, False, Reason.RESOLVED, "The job can be run as it is written.")
    first, attempt = last < 0, last + 1
    if not first:
        suspended = status.gang is None and bool(status.history) and status.history[-1].reason == Reason.JOB_SUSPENDED
        why = Reason.JOB_RESUMED if suspended else reason or Reason.STATUS_LOST
        words = {
            Reason.JOB_RESUMED: "the job goes on",
            Reason.SPEC_CHANGED: "the job was edited",
            Reason.STATUS_LOST: "the status did not describe the pods that are there",
        }[why]
        if not suspended:
            remember(draft, last, why, words)
        draft.event(why, f"Planned restart (attempt {attempt}): {words}{_resumes(draft)}")
    gang = _new_attempt(draft, attempt, 0.0)
    if first:
        draft.event(Reason.STARTING, f"Attempt 0 starts: {listed_roles(gang)}")
    return reach(draft, gang, gang_state(draft, gang))


def _new_attempt(draft: Draft, attempt: int, delay: float) -> Gang:
    """Writes an attempt down, before anything of it is created or of the older one deleted."""
    starts_at = format_time(draft.now + delay)
    gang = Gang(
        attempt=attempt,
        generation=draft.seen.generation,
        fingerprint=fingerprint_of(draft.seen.document["spec"]),
        roles=roles_of(draft.job),
        complete=False,
        start_time=starts_at,
    )
    draft.update(
        attempt=attempt,
        gang=gang,
        start_time=draft.status.start_time or format_time(draft.now),
        completion_time=None,
        next_attempt_time=starts_at if delay else None,
    )
    return gang


def _judge(draft: Draft, gang: Gang) -> Ask | None:
    """Decides what follows from the state of the attempt, and plans it."""
    ask = _questions(draft, gang)
    if ask is not None:
        return ask
    state = gang_state(draft, gang)
    gang = record_successes(draft, gang, state)
    _read_progress(draft, state)
    decision = decide(draft.job, state, now=draft.now, settle_seconds=SETTLE_SECONDS, replace_alone=True)
    if isinstance(decision, KeepWaiting):
        draft.wake(decision.until)
        return reach(draft, gang, state)
    if isinstance(decision, Succeed):
        return succeed(draft, gang)
    ask = _evidence(draft, gang, state, decision.cause)
    if ask is not None:
        return ask
    if isinstance(decision, FailJob):
        return _fail(draft, gang, decision)
    return _replace(draft, gang, decision) if isinstance(decision, ReplaceReplica) else _restart(draft, gang, decision)


def _questions(draft: Draft, gang: Gang) -> Ask | None:
    """Returns what has to be read before the attempt can be judged."""
    pods = pods_of(draft, gang)
    state = gang_state(draft, gang)
    chief = pods.get(state.topology.chief.name)
    # As long as they wait for each other, there is nothing to report.
    reports = chief is not None and chief.state is PodState.RUNNING and not is_waited_for(state)
    patience = draft.job.spec.run_policy.unreachable_seconds
    # A program that has just begun has nothing to report either.
    due_at = max(draft.seen.progress_due_at, state.started_at + PROGRESS_SECONDS)
    due = draft.now >= due_at and chief is not None and reports and chief.name not in draft.seen.log_tails
    # Nobody can read the log of a pod whose node is away, and asking takes long.
    watched = pods.values() if patience is not None else [chief] if chief is not None and due else []
    silent = {pod.node for pod in watched if pod.state is PodState.RUNNING and not pod.ready} - {""}
    unknown = silent - draft.seen.nodes.keys()
    if unknown:
        return Ask(nodes=frozenset(unknown))
    for node in (draft.seen.nodes[name] for name in silent):
        if patience is not None and not node.ready:
            draft.wake(node.since + patience)
    if reports:
        draft.wake(draft.now + PROGRESS_SECONDS if due else due_at)
    if chief is None or not due or lost_node(draft, chief):
        return None
    return Ask(log_of=chief.name)


def _evidence(draft: Draft, gang: Gang, state: GangState, cause: ReplicaEnd | None) -> Ask | None:
    """Returns what must be read before a failure is charged: whether a node is behind it, and what its program said."""
    if cause is None or cause.disruption:
        return None
    pods = pods_of(draft, gang)
    nodes = unknown_nodes(draft, state.topology, pods)
    if nodes:
        return Ask(nodes=nodes)
    pod = pods.get(cause.replica.name)
    unread = pod is not None and pod.name not in draft.seen.log_tails and lost_node(draft, pod) is None
    return Ask(log_of=cause.replica.name) if unread else None


def _read_progress(draft: Draft, state: GangState) -> None:
    chief = state.topology.chief.name
    ended = next((end.message for end in state.ended if end.replica.name == chief), "")
    lines = [*draft.seen.log_tails.get(chief, "").splitlines(), *ended.splitlines()]
    found = next((progress for line in reversed(lines) if (progress := parse_progress(line))), None)
    if found is None:
        return
    old = draft.status.progress
    new = progress_status(found, format_time(draft.now))
    if old is None or new != old.model_copy(update={"time": new.time}):
        draft.update(progress=new)


def has_succeeded(draft: Draft, gang: Gang) -> bool:
    """Returns whether the attempt, as it is seen, is the job's success."""
    if not usable(gang, draft.status.attempt):
        return False
    state = gang_state(draft, gang)
    return isinstance(decide(draft.job, state, now=draft.now, settle_seconds=SETTLE_SECONDS), Succeed)


def succeed(draft: Draft, gang: Gang) -> Ask | None:
    """Plans a job's success."""
    state = gang_state(draft, gang)
    record_successes(draft, gang, state)
    _read_progress(draft, state)
    message = f"Training succeeded in attempt {gang.attempt}"
    draft.condition(ConditionType.SUCCEEDED, True, Reason.TRAINING_SUCCEEDED, message)
    progress = draft.status.progress
    loss = (
        "" if progress is None or progress.loss is None else f"; loss {progress.loss:.4g} after epoch {progress.epoch}"
    )
    draft.event(Reason.TRAINING_SUCCEEDED, f"{message}{loss}")
    draft.counts.append(Count(Total.SUCCEEDED))
    return _finish(draft, Reason.TRAINING_SUCCEEDED, message)


def _fail(draft: Draft, gang: Gang, decision: FailJob) -> Ask | None:
    if decision.cause is not None:
        _keep_failure(draft, gang, decision.cause, decision.reason)
    remember(draft, gang.attempt, decision.reason, decision.message, decision.cause)
    draft.condition(ConditionType.FAILED, True, decision.reason, decision.message)
    draft.event(decision.reason, f"The job failed: {decision.message}", warning=True)
    draft.counts.append(Count(Total.FAILED, decision.reason.value))
    return _finish(draft, decision.reason, decision.message)


def _finish(draft: Draft, reason: Reason, message: str) -> Ask | None:
    draft.update(completion_time=format_time(draft.now), next_attempt_time=None)
    draft.condition(ConditionType.RUNNING, False, reason, message)
    # What kept a replica from starting, or an edit from being followed, matters to nobody any more.
    draft.condition(ConditionType.INVALID, False, Reason.RESOLVED, "The job has ended.")
    draft.condition(ConditionType.BLOCKED, False, Reason.RESOLVED, "The job has ended.")
    return plan_finished(draft)


def _restart(draft: Draft, gang: Gang, decision: RestartGang) -> Ask | None:
    status, cause = draft.status, decision.cause
    _keep_failure(draft, gang, cause, decision.reason)
    remember(draft, gang.attempt, decision.reason, how_it_ended(cause), cause, charged=decision.charged)
    limit = draft.job.spec.run_policy.backoff_limit
    draft.update(
        restarts=status.restarts + decision.charged,
        disruptions=status.disruptions + (decision.reason is Reason.DISRUPTED),
        lost_peer_attempts=status.lost_peer_attempts + 1 if decision.reason is Reason.LOST_PEERS_ONLY else 0,
    )
    count = f"Restart {status.restarts + 1} of {limit}" if decision.charged else "Restart, not charged"
    soon = f" in {decision.delay_seconds:.0f} s" if decision.delay_seconds >= 1 else ""
    draft.event(
        decision.reason,
        f"{count} (attempt {gang.attempt + 1}{soon}): {how_it_ended(cause)}{_resumes(draft)}",
        warning=True,
    )
    draft.counts.append(Count(Total.RESTARTED, decision.reason.value, decision.charged))
    new = _new_attempt(draft, gang.attempt + 1, decision.delay_seconds)
    return reach(draft, new, gang_state(draft, new))


def _replace(draft: Draft, gang: Gang, decision: ReplaceReplica) -> Ask | None:
    name = decision.cause.replica.name
    _keep_failure(draft, gang, decision.cause, decision.reason)
    pod = draft.seen.pods.get(name)
    count = 1 + sum(entry.count for entry in gang.replacing if entry.replica == name)
    entry = Replacing(
        replica=name,
        uid=pod.uid if pod else "",
        count=count,
        time=format_time(draft.now + decision.delay_seconds),
    )
    others = tuple(entry for entry in gang.replacing if entry.replica != name)
    gang = gang.model_copy(update={"replacing": (*others, entry)})
    draft.update(
        gang=gang,
        restarts=draft.status.restarts + decision.charged,
        disruptions=draft.status.disruptions + (decision.reason is Reason.DISRUPTED),
    )
    limit = draft.job.spec.run_policy.backoff_limit
    charge = f"restart {draft.status.restarts} of {limit}" if decision.charged else "not charged"
    draft.event(decision.reason, f"{how_it_ended(decision.cause)} and starts anew alone ({charge})", warning=True)
    draft.counts.append(Count(Total.RESTARTED, decision.reason.value, decision.charged))
    return reach(draft, gang, gang_state(draft, gang))


def _keep_failure(draft: Draft, gang: Gang, cause: ReplicaEnd, reason: Reason) -> None:
    tail = draft.seen.log_tails.get(cause.replica.name) or cause.message
    draft.update(
        last_failure=LastFailure(
            replica=cause.replica.name,
            attempt=gang.attempt,
            exit_code=None if cause.disruption else cause.exit_code,
            reason=reason.value,
            message=tail[-_TAIL_LIMIT:] or how_it_ended(cause),
            # A pod that vanished has no time of its own, nor has one whose node did not say.
            time=format_time(cause.finished_at or draft.now),
        )
    )


def remember(
    draft: Draft, attempt: int, reason: Reason, message: str, cause: ReplicaEnd | None = None, *, charged: bool = False
) -> None:
    """Adds an attempt that has ended to the history."""
    record = AttemptRecord(
        attempt=attempt,
        reason=reason.value,
        charged=charged,
        replica=cause.replica.name if cause else None,
        message=message,
        time=format_time(draft.now),
    )
    draft.update(history=(*draft.status.history, record)[-5:])


def _resumes(draft: Draft) -> str:
    progress = draft.status.progress
    return f"; training resumes from epoch {progress.epoch}" if progress and progress.epoch else ""
