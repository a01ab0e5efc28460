"""A plan in the making. It lives for one pass, inside of `lifecycle.plan`, and nobody else sees it."""

from dataclasses import dataclass, field
from typing import Any, Literal

from qmljob_api.conditions import ConditionType
from qmljob_api.reasons import Reason
from qmljob_api.status import Condition, JobStatus
from qmljob_api.timestamps import format_time
from qmljob_api.types import QMLJob
from qmljob_operator.observation import Answer, Document, Observation
from qmljob_operator.planning.plan import Count, Delete, Event, Plan, Relabel

MESSAGE_LIMIT = 1024
"""Characters of a condition's message and of an event's note (Kubernetes' own limit of a note)."""
_PATIENT_FIELDS = ("ready", "replicas", "replica_statuses", "progress")


@dataclass(slots=True)
class Draft:
    """The observation, and what the pass wants so far.

    `refusal` is why objects can't be created now, if they can't; `slow` names pods that take longer to go than they
    were given, on nodes that answer.
    """

    seen: Observation
    now: float
    status: JobStatus
    events: list[Event] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    relabels: list[Relabel] = field(default_factory=list)
    repairs: list[Document] = field(default_factory=list)
    creates: list[Document] = field(default_factory=list)
    wake_times: list[float] = field(default_factory=list)
    refusal: Answer | None = None
    slow: tuple[str, ...] = ()

    @property
    def job(self) -> QMLJob:
        """The job. Raises ValueError where it did not parse: that is looked at first."""
        if self.seen.parsed.job is None:
            raise ValueError("a job that can't be parsed has no plan but `lifecycle.plan`'s own")
        return self.seen.parsed.job

    def update(self, **changes: Any) -> None:
        """Changes fields of the status."""
        self.status = self.status.model_copy(update=changes)

    def holds(self, kind: ConditionType) -> bool:
        """Returns whether a condition is True."""
        return self.status.holds(kind)

    def condition(self, kind: ConditionType, value: bool, reason: Reason, message: str) -> bool:
        """Sets a condition and returns whether its status is another one than was observed.

        One that never held is not added as False. What a pass says last of a condition is what counts: it may say that
        something is well before it finds that it is not, and neither time nor event must tell of that.
        """
        text: Literal["True", "False"] = "True" if value else "False"
        before = self.seen.status.condition(kind)
        if not value and kind is not ConditionType.RUNNING and (before is None or before.status == text):
            self._put(kind, before)
            return False
        moved = before is None or before.status != text
        new = Condition(
            type=kind,
            status=text,
            reason=reason.value,
            message=shorten(message),
            observed_generation=self.seen.generation,
            last_transition_time=format_time(self.now) if before is None or moved else before.last_transition_time,
        )
        self._put(kind, new)
        return moved

    def _put(self, kind: ConditionType, condition: Condition | None) -> None:
        kept = [other for other in self.status.conditions if other.type is not kind]
        if condition is not None:
            kept.append(condition)
        order = list(ConditionType)
        self.update(conditions=tuple(sorted(kept, key=lambda condition: order.index(condition.type))))

    def event(self, reason: Reason, note: str, *, warning: bool = False) -> None:
        """Adds an event, which is sent once the status is written."""
        self.events.append(Event(reason, shorten(note), warning))

    def wake(self, at: float | None) -> None:
        """Asks for another pass at a time. One that is over is what this pass is about: it asks for nothing."""
        if at is not None and at > self.now:
            self.wake_times.append(at)

    def plan(self) -> Plan:
        """Returns the plan."""
        self.update(observed_generation=self.seen.generation)
        return Plan(
            status=self.status,
            urgent=_without_patience(self.status) != _without_patience(self.seen.status),
            events=tuple(self.events),
            counts=tuple(self.counts),
            deletes=tuple(self.deletes),
            relabels=tuple(self.relabels),
            repairs=tuple(self.repairs),
            creates=tuple(self.creates),
            wake_at=min(self.wake_times, default=None),
        )


def shorten(text: str) -> str:
    """Returns a text of at most MESSAGE_LIMIT characters."""
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


def _without_patience(status: JobStatus) -> JobStatus:
    gang = status.gang
    # That all pods exist may be written a little later: until then a missing one is created, not counted as lost.
    patient: dict[str, Any] = {
        name: JobStatus.model_fields[name].get_default(call_default_factory=True) for name in _PATIENT_FIELDS
    }
    running = [
        condition.model_copy(update={"message": ""}) if condition.type is ConditionType.RUNNING else condition
        for condition in status.conditions
    ]
    return status.model_copy(
        update={
            **patient,
            "gang": gang.model_copy(update={"complete": False}) if gang else None,
            "conditions": tuple(running),
        }
    )
