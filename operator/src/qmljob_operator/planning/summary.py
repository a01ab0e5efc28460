"""What a status says to people: phase, counts of replicas, and the conditions that tell what a job waits for."""

from collections.abc import Mapping

from qmljob_api import names
from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.reasons import Reason
from qmljob_api.status import Gang, ReplicaStatus
from qmljob_api.types import Role
from qmljob_operator.gangstate import GangState
from qmljob_operator.observation import Answer, PodState, PodView, Verdict
from qmljob_operator.planning.draft import Draft
from qmljob_operator.topology import listed

_IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
_UNSCHEDULABLE_REASONS = frozenset({"Unschedulable", "SchedulingGated", "SchedulerError"})


def summarize(draft: Draft, gang: Gang, state: GangState, pods: Mapping[str, PodView]) -> None:
    """Counts the attempt's replicas, and says whether they run and what they wait for."""
    running = count_replicas(draft, gang, state, pods)
    workers = {replica.name for replica in state.topology.of(Role.WORKER)}
    draft.update(
        replicas=len(workers & pods.keys()),
        selector=f"{names.LABEL_JOB}={draft.job.metadata.name},{names.LABEL_ROLE}={Role.WORKER.value}",
    )
    _running(draft, gang, state, running)
    _stuck(draft, pods)


def count_replicas(draft: Draft, gang: Gang, state: GangState, pods: Mapping[str, PodView]) -> int:
    """Counts the attempt's replicas: how many run (this is returned), and how many have ended in which way."""
    succeeded = set(gang.succeeded)
    running = {name for name, pod in pods.items() if pod.state is PodState.RUNNING and not pod.deleting}
    failed = {end.replica.name for end in state.ended if not end.disruption} & pods.keys() - succeeded
    counts = {}
    for role in Role:
        members = {replica.name for replica in state.topology.of(role)}
        if members:
            counts[role] = ReplicaStatus(
                replicas=len(members),
                running=len(members & running),
                succeeded=len(members & succeeded),
                failed=len(members & failed),
            )
    draft.update(replica_statuses=counts, ready=f"{len(running)}/{len(state.topology.replicas)}")
    return len(running)


def count_nothing(draft: Draft) -> None:
    """Says that none of the job's replicas run."""
    idle = {role: counts.model_copy(update={"running": 0}) for role, counts in draft.status.replica_statuses.items()}
    total = sum(counts.replicas for counts in idle.values())
    draft.update(replica_statuses=idle, ready=f"0/{total}" if total else "", replicas=0)


def _running(draft: Draft, gang: Gang, state: GangState, running: int) -> None:
    total, ended = len(state.topology.replicas), len(state.ended)
    # A replica that has ended does not end the phase: what follows from it is decided after the settle time.
    if not state.never_started:
        all_run = f"All {total} replicas of attempt {gang.attempt} run" if total > 1 else f"Attempt {gang.attempt} runs"
        some_ended = f"Attempt {gang.attempt}: {total - ended} of {total} replicas run, {ended} ended"
        draft.update(phase=Phase.RUNNING, next_attempt_time=None)
        if draft.condition(
            ConditionType.RUNNING, True, Reason.REPLICAS_RUNNING, some_ended if ended and total > 1 else all_run
        ):
            draft.event(Reason.REPLICAS_RUNNING, all_run)
        return
    waiting = draft.status.next_attempt_time is not None or any(
        pod.attempt != gang.attempt for pod in draft.seen.pods.values()
    )
    restarting = waiting and gang.attempt > 0
    draft.update(phase=Phase.RESTARTING if restarting else Phase.STARTING)
    reason = Reason.RESTARTING if restarting else Reason.REPLICAS_STARTING
    message = f"{running} of {total} replicas of attempt {gang.attempt} run"
    if draft.slow:
        message += f"; {listed(draft.slow)} had to be gone by now (a finalizer, or a node that is slow)"
    draft.condition(ConditionType.RUNNING, False, reason, message)


def _stuck(draft: Draft, pods: Mapping[str, PodView]) -> None:
    """Says what keeps replicas from starting, or that nothing does any more."""
    if draft.refusal is not None:
        show_refusal(draft, draft.refusal)
        return
    if draft.seen.dry_run is not None and draft.seen.dry_run.verdict is Verdict.FORBIDDEN:
        return
    if draft.seen.refused is not None and draft.creates:
        # What was refused is tried again now; until that is answered, it is as it was.
        return
    stuck = {name: pod.stuck for name, pod in sorted(pods.items()) if pod.stuck is not None and not pod.deleting}
    if not stuck:
        draft.condition(ConditionType.BLOCKED, False, Reason.RESOLVED, "Nothing keeps the job from going on.")
        return
    name, (word, said) = next(iter(stuck.items()))
    reason = (
        Reason.IMAGE_UNAVAILABLE
        if word in _IMAGE_REASONS
        else Reason.UNSCHEDULABLE
        if word in _UNSCHEDULABLE_REASONS
        else Reason.CONTAINER_CANNOT_START
    )
    more = f" (and {len(stuck) - 1} more replicas)" if len(stuck) > 1 else ""
    block(draft, reason, f"{name}{more}: {word}: {said or 'no further word'}", who=name)


def show_refusal(draft: Draft, answer: Answer, *, aside: str = "") -> None:
    """Says why the API server does not take the job's objects, and `aside`, what goes on all the same."""
    message = f"{answer.message}{aside}"
    if answer.verdict is Verdict.INVALID:
        again = draft.status.observed_generation != draft.seen.generation
        moved = draft.condition(ConditionType.INVALID, True, Reason.INVALID_SPEC, message)
        draft.condition(ConditionType.BLOCKED, False, Reason.RESOLVED, "The job is invalid; see the condition Invalid.")
        if moved or again:
            draft.event(Reason.INVALID_SPEC, f"The job can't run as it is written: {message}", warning=True)
        return
    draft.wake(answer.retry_at)
    taken = answer.verdict is Verdict.NAME_TAKEN
    block(draft, Reason.NAME_TAKEN if taken else Reason.FORBIDDEN, message)


def block(draft: Draft, reason: Reason, message: str, *, who: str = "") -> None:
    """Says that something outside the job keeps it from going on.

    Kubelet's words for one trouble alternate (ErrImagePull, ImagePullBackOff): as long as the reason and the replica
    (`who`) are the same, the first message stays, and nothing is written.
    """
    before = draft.seen.status.condition(ConditionType.BLOCKED)
    same = before is not None and before.status == "True" and before.reason == reason.value
    if before is not None and same and who and before.message.startswith(who):
        message = before.message
    draft.condition(ConditionType.BLOCKED, True, reason, message)
    if not same:
        draft.event(reason, message, warning=True)


def listed_roles(gang: Gang) -> str:
    """Returns the replicas of an attempt in words: `1 chief, 4 workers`."""
    plural = {Role.WORKER: "workers", Role.CHIEF: "chiefs", Role.PS: "ps", Role.EVALUATOR: "evaluators"}
    parts = [
        f"{count} {plural[role] if count != 1 else role.value}" for role in Role if (count := gang.roles.get(role, 0))
    ]
    return ", ".join(parts)
