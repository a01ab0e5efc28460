"""What holds after every write of an operator, whatever happened: the promises of docs/operator.md as assertions."""

from collections.abc import Mapping, Sequence
from typing import Any

from qmljob_api import names
from qmljob_api.conditions import ConditionType
from qmljob_api.status import JobStatus, parse_status, to_document
from qmljob_operator.kinds import Kind
from qmljob_operator.observation import is_owned_by
from qmljob_operator.planning.plan import Delete, Plan

Document = Mapping[str, Any]
_FINAL = (ConditionType.SUCCEEDED, ConditionType.FAILED)


class Promises:
    """The promises, and what has to be remembered to see one broken."""

    def __init__(self) -> None:
        """Begins with a job of which nothing is known yet."""
        self._limited = True
        self.created: dict[tuple[str, int], int] = {}

    def limits_changed(self) -> None:
        """The user edited the job: its backoff limit may be below what was charged already."""
        self._limited = False

    def check_status(self, before: JobStatus, after: JobStatus, job: Document, now: float) -> None:
        """A status that is about to be written."""
        assert parse_status(to_document(after)) == after, f"the API server would not keep this status: {after}"
        if before.attempt is not None:
            assert after.attempt is not None, "an attempt was lost"
            assert after.attempt >= before.attempt, "an attempt went down"
        for kind in _FINAL:
            assert not before.holds(kind) or after.holds(kind), f"{kind} flipped"
        if not any(before.holds(kind) for kind in _FINAL):
            assert sum(after.holds(kind) for kind in _FINAL) <= 1, "a job can't both succeed and fail"
        charged, free = after.restarts - before.restarts, after.disruptions - before.disruptions
        assert min(charged, free) >= 0, "a count went down"
        assert charged + free <= 1, "more than one charge for an attempt"
        limit = (job["spec"].get("runPolicy") or {}).get("backoffLimit", 3)
        assert not self._limited or after.restarts <= limit, "more was charged than runPolicy.backoffLimit allows"
        for condition in after.conditions:
            old = before.condition(condition.type)
            moved = old is None or old.status != condition.status
            kept = old is not None and old.last_transition_time == condition.last_transition_time
            assert moved or kept, f"lastTransitionTime of {condition.type} moved without its status"
        assert len(after.history) <= 5
        if after.gang is not None and after.gang != before.gang:
            assert after.gang.attempt == after.attempt, "the gang is of another attempt"

    def check_create(self, pod: Document, job: Document | None, present: Sequence[Document]) -> None:
        """A pod that is about to be created."""
        assert job is not None
        status, attempt = parse_status(job.get("status")), _attempt(pod)
        if attempt is None:
            return
        assert not any(status.holds(kind) for kind in _FINAL), "a finished job creates a pod"
        assert not job["spec"].get("suspend"), "a suspended job creates a pod"
        assert status.attempt == attempt, "an attempt was not written ahead"
        assert status.gang is not None, "an attempt was not written ahead"
        others = {_attempt(other) for other in present if is_owned_by(other, job["metadata"]["uid"])}
        assert others <= {attempt}, f"a pod of attempt {attempt} beside pods of attempts {others}"
        name = pod["metadata"]["name"]
        replaced = next((entry for entry in status.gang.replacing if entry.replica == name), None)
        assert not status.gang.complete or replaced is not None, f"{name} is made anew in a complete gang"
        assert name not in status.gang.succeeded, f"{name} has succeeded, and starts again"

    def check_delete(self, found: Document, wanted: Delete, job: Document | None) -> None:
        """An object that is about to be deleted."""
        assert job is not None
        assert is_owned_by(found, job["metadata"]["uid"]), f"{wanted} is somebody else's"
        if wanted.kind is Kind.POD and found["metadata"].get("deletionTimestamp") is not None:
            assert wanted.grace_seconds == 0, f"{wanted} is being deleted already"

    def check_pass(self, now: float, wanted: Plan) -> None:
        """A plan that is about to be carried out."""
        assert wanted.wake_at is None or wanted.wake_at > now, f"a loop: wake at {wanted.wake_at}, now it is {now}"
        for event in wanted.events:
            assert 0 < len(event.note) <= 1024, event.note
            assert "None" not in event.note, event.note
        paths = [f"{one.kind}/{one.name}" for one in wanted.deletes]
        assert len(set(paths)) == len(paths), f"something is deleted twice: {paths}"
        made = [(document["kind"], document["metadata"]["name"]) for document in wanted.creates]
        assert len(set(made)) == len(made), f"something is created twice: {made}"


def _attempt(pod: Document) -> int | None:
    text = (pod["metadata"].get("labels") or {}).get(names.LABEL_ATTEMPT)
    return int(text) if text is not None and text.isdigit() else None
