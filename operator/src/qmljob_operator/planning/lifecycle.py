"""The one entrance: what to do about a job, whatever happened to it before.

Level-triggered: the plan follows from the observation alone. A pass that ends in the middle of its writes, an event
that is lost or comes twice, an operator that starts anew: the next pass sees what is there, and goes on.
"""

from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.parse import ParseResult
from qmljob_api.reasons import Reason
from qmljob_operator.observation import Answer, Observation, Verdict
from qmljob_operator.planning.attempts import has_succeeded, plan_training, remember, runs_on, succeed
from qmljob_operator.planning.draft import Draft
from qmljob_operator.planning.finished import is_finished, plan_finished
from qmljob_operator.planning.gang import keep_successes
from qmljob_operator.planning.objects import clear_pods
from qmljob_operator.planning.plan import Ask, Count, Plan, Total
from qmljob_operator.planning.summary import count_nothing, show_refusal


def plan(seen: Observation, now: float) -> Plan | Ask:
    """Returns what to write, or what must be read before that can be said.

    Args:
        seen: the job and what exists of it.
        now: the time, in seconds.
    """
    if seen.deleted:
        # What the job owns goes with it: the garbage collector sees to that, and nothing of ours may hold it up.
        return Plan(seen.status)
    draft = Draft(seen, now, seen.status)
    _first_look(draft)
    ask = _plan(draft)
    return ask if ask is not None else draft.plan()


def _first_look(draft: Draft) -> None:
    known = draft.status.observed_generation
    if known is None:
        draft.counts.append(Count(Total.CREATED))
    if draft.seen.parsed.unknown and known != draft.seen.generation:
        fields = ", ".join(error.path for error in draft.seen.parsed.unknown)
        draft.event(
            Reason.UNKNOWN_FIELDS,
            f"The job has fields that this operator does not know, and ignores: {fields}",
            warning=True,
        )


def _plan(draft: Draft) -> Ask | None:
    if is_finished(draft):
        return plan_finished(draft)
    if draft.seen.parsed.job is None:
        # What runs goes on: nothing can be said about it, and stopping it would help nobody.
        gang = draft.status.gang
        answer = Answer(Verdict.INVALID, _errors(draft.seen.parsed))
        show_refusal(draft, answer, aside=runs_on(gang) if gang is not None else "")
        if gang is None:
            draft.update(phase=Phase.INVALID)
        else:
            keep_successes(draft, gang)
        return None
    if draft.job.spec.suspend:
        return _suspend(draft)
    return plan_training(draft)


def _suspend(draft: Draft) -> Ask | None:
    gang = draft.status.gang
    if gang is not None:
        if has_succeeded(draft, gang):
            return succeed(draft, gang)
        remember(draft, gang.attempt, Reason.JOB_SUSPENDED, "the job was suspended")
    # The clock of activeDeadlineSeconds starts again with the job, as in a batch Job.
    draft.update(gang=None, next_attempt_time=None, start_time=None, phase=Phase.SUSPENDED)
    message = "The job has no pods; set spec.suspend to false to go on from the checkpoint"
    gone = not draft.seen.pods
    moved = gone and draft.condition(ConditionType.SUSPENDED, True, Reason.JOB_SUSPENDED, message)
    if gang is not None or (moved and draft.status.attempt is None):
        progress = draft.status.progress
        kept = f"; epoch {progress.epoch} was done" if progress and progress.epoch else ""
        # The attempt makes it news each time: events of the same words are told once.
        after = f" after attempt {gang.attempt}" if gang is not None else ""
        draft.event(Reason.JOB_SUSPENDED, f"The job is suspended{after}{kept}")
    draft.condition(ConditionType.BLOCKED, False, Reason.RESOLVED, "The job is suspended.")
    invalid = draft.status.condition(ConditionType.INVALID)
    if invalid is not None and invalid.observed_generation != draft.seen.generation:
        draft.condition(ConditionType.INVALID, False, Reason.RESOLVED, "The job was edited; it is judged when resumed.")
    if draft.status.condition(ConditionType.RUNNING) is not None:
        words = "The job is suspended" if gone else "The job is suspended; its pods are being deleted"
        draft.condition(ConditionType.RUNNING, False, Reason.JOB_SUSPENDED, words)
    count_nothing(draft)
    return clear_pods(draft, [(pod, None) for pod in draft.seen.pods.values()])


def _errors(parsed: ParseResult) -> str:
    return "; ".join(str(error) for error in parsed.errors)
