"""A finished job: what is cleaned up, its inference, and its end. Nothing here ever starts a replica again."""

from qmljob_api import names
from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.progress import InferenceResult, parse_result
from qmljob_api.reasons import Reason
from qmljob_api.status import results_status
from qmljob_api.timestamps import format_time, parse_time
from qmljob_api.types import CleanPodPolicy, Role
from qmljob_operator.kinds import Kind
from qmljob_operator.observation import PodState, PodView, Verdict, termination_message
from qmljob_operator.planning.draft import Draft
from qmljob_operator.planning.gang import gang_state, pods_of, record_successes, usable
from qmljob_operator.planning.objects import clear_pods, guard, services_to_delete
from qmljob_operator.planning.plan import Ask, Delete
from qmljob_operator.planning.summary import count_nothing, count_replicas, show_refusal
from qmljob_operator.resources.inference import build_inference_job

LINGER_SECONDS = 30.0
"""How long replicas go on after the chief's success: they are about to end too, and an evaluator looks once more."""
RESULT_SECONDS = 10.0
"""How long after the inference Job's end its pod's last word may take to be seen."""


def is_finished(draft: Draft) -> bool:
    """Returns whether the job has succeeded or failed."""
    return draft.holds(ConditionType.SUCCEEDED) or draft.holds(ConditionType.FAILED)


def plan_finished(draft: Draft) -> Ask | None:
    """Plans for a job that has succeeded or failed; returns what must be read first, if anything."""
    ask = _finish(draft)
    if ask is None and not draft.creates and not draft.deletes:
        _guard(draft)
    return ask


def _guard(draft: Draft) -> None:
    """Sees to the policy of pods that run on. Only where nothing else is created: it must not hold that up."""
    refused = draft.seen.refused
    runs_on = any(pod.state is not PodState.ENDED or pod.busy for pod in draft.seen.pods.values())
    if runs_on and draft.seen.parsed.job is not None:
        if refused is None or draft.now >= refused.retry_at:
            guard(draft)
        else:
            draft.wake(refused.retry_at)


def _finish(draft: Draft) -> Ask | None:
    finished_at = parse_time(draft.status.completion_time)
    if finished_at is None:
        finished_at = draft.now
        draft.update(completion_time=format_time(draft.now))
    draft.update(phase=Phase.SUCCEEDED if draft.holds(ConditionType.SUCCEEDED) else Phase.FAILED)
    _count(draft)
    if draft.seen.parsed.job is None:
        return None
    ask = _clean(draft, finished_at)
    if ask is not None:
        return ask
    if draft.holds(ConditionType.SUCCEEDED) and draft.job.spec.inference is not None:
        _infer(draft)
        if not _inference_is_over(draft):
            return None
    _expire(draft, finished_at)
    return None


def _count(draft: Draft) -> None:
    """Counts the replicas of the last attempt, some of which may still end; how many failed outlives their pods."""
    gang = draft.status.gang
    if gang is None or draft.seen.parsed.job is None or not usable(gang, draft.status.attempt):
        count_nothing(draft)
        return
    before = draft.status.replica_statuses
    state, pods = gang_state(draft, gang), pods_of(draft, gang)
    count_replicas(draft, record_successes(draft, gang, state), state, pods)
    counted = {
        role: counts.model_copy(update={"failed": max(counts.failed, before[role].failed if role in before else 0)})
        for role, counts in draft.status.replica_statuses.items()
    }
    workers = {replica.name for replica in state.topology.of(Role.WORKER)}
    draft.update(replica_statuses=counted, replicas=len(workers & pods.keys()))


def _clean(draft: Draft, finished_at: float) -> Ask | None:
    policy = draft.job.spec.run_policy.clean_pod_policy
    if policy is CleanPodPolicy.NONE:
        return clear_pods(draft, [])
    pods = list(draft.seen.pods.values())
    going = [pod for pod in pods if pod.deleting]
    running = [pod for pod in pods if not pod.deleting and (pod.state is not PodState.ENDED or pod.busy)]
    if draft.holds(ConditionType.SUCCEEDED) and running and draft.now < finished_at + LINGER_SECONDS:
        draft.wake(finished_at + LINGER_SECONDS)
        return None
    doomed: list[PodView] = pods if policy is CleanPodPolicy.ALL else [*running, *going]
    ask = clear_pods(draft, [(pod, None) for pod in doomed])
    if ask is None and not running and not going:
        draft.deletes += services_to_delete(draft.seen.services)
    return ask


def _inference_is_over(draft: Draft) -> bool:
    return draft.holds(ConditionType.INFERENCE_SUCCEEDED) or draft.holds(ConditionType.INFERENCE_FAILED)


def _infer(draft: Draft) -> None:
    if _inference_is_over(draft):
        return
    name = names.inference_job_name(draft.job.metadata.name)
    existing = draft.seen.inference_job
    if existing is None:
        _start_inference(draft, name)
        return
    draft.condition(ConditionType.BLOCKED, False, Reason.RESOLVED, "Nothing keeps inference from running.")
    conditions = (existing.get("status") or {}).get("conditions") or []
    outcome = {condition["type"]: condition for condition in conditions if condition.get("status") == "True"}
    if "Complete" in outcome:
        _report(draft, name, parse_time(outcome["Complete"].get("lastTransitionTime")) or 0.0)
    elif "Failed" in outcome:
        said = _last_words(draft) or str(outcome["Failed"].get("message") or "no further word")
        draft.condition(ConditionType.INFERENCE_FAILED, True, Reason.INFERENCE_FAILED, f"Job {name} failed: {said}")
        draft.event(Reason.INFERENCE_FAILED, f"Inference failed: {said}", warning=True)


def _start_inference(draft: Draft, name: str) -> None:
    refused = draft.seen.refused
    if refused is not None and not refused.message.startswith(f"Job {name}"):
        # It is about a replica's pod or Service, which nobody needs any more.
        refused = None
    if refused is not None and refused.verdict is Verdict.INVALID:
        # What the API server can never take will not become right by waiting, and training has succeeded anyway.
        draft.condition(ConditionType.INFERENCE_FAILED, True, Reason.INVALID_SPEC, refused.message)
        draft.event(Reason.INVALID_SPEC, f"Inference can't run as it is written: {refused.message}", warning=True)
        return
    if refused is not None and draft.now < refused.retry_at:
        show_refusal(draft, refused)
        return
    draft.creates.append(build_inference_job(draft.job, name=name))
    if refused is None:
        draft.event(Reason.INFERENCE_STARTED, f"Inference starts: Job {name} evaluates what was trained")


def _report(draft: Draft, name: str, ended_at: float) -> None:
    result = _result(draft)
    if result is None and draft.now < ended_at + RESULT_SECONDS:
        # Jobs and pods are watched apart: the pod's last word may be under way.
        draft.wake(ended_at + RESULT_SECONDS)
        return
    if result is None:
        said = f"Job {name} has ended with success and left no result line"
    else:
        draft.update(results=results_status(result, format_time(draft.now)))
        said = f"Mean squared error {result.mse:.6g} on {result.examples} examples"
    if draft.condition(ConditionType.INFERENCE_SUCCEEDED, True, Reason.INFERENCE_SUCCEEDED, said):
        draft.event(Reason.INFERENCE_SUCCEEDED, f"Inference succeeded: {said}")


def _result(draft: Draft) -> InferenceResult | None:
    for pod in draft.seen.inference_pods:
        for line in termination_message(pod, names.INFERENCE_CONTAINER_NAMES).splitlines():
            result = parse_result(line)
            if result is not None:
                return result
    return None


def _last_words(draft: Draft) -> str:
    texts = [termination_message(pod, names.INFERENCE_CONTAINER_NAMES) for pod in draft.seen.inference_pods]
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def _expire(draft: Draft, finished_at: float) -> None:
    """Deletes the job when its time is over. It counts from the end of inference, where there is one."""
    seconds = draft.job.spec.run_policy.ttl_seconds_after_finished
    if seconds is None:
        return
    ends = [
        parse_time(condition.last_transition_time) or finished_at
        for kind in (ConditionType.INFERENCE_SUCCEEDED, ConditionType.INFERENCE_FAILED)
        if (condition := draft.status.condition(kind)) is not None
    ]
    expires_at = max([finished_at, *ends]) + seconds
    if draft.now < expires_at:
        draft.wake(expires_at)
        return
    draft.deletes.append(Delete(Kind.QMLJOB, draft.job.metadata.name, draft.seen.uid))
    draft.event(Reason.DELETED, f"The job ended {seconds} s ago (runPolicy.ttlSecondsAfterFinished) and is deleted")
