"""Stories of jobs on a real API server, as tables of steps: somebody does something, then this is seen.

    Story(
        "a failed replica restarts the gang as one",
        [
            *begins(),
            step("one fails", finish("worker-1", 1), phase=Phase.STARTING, attempt=1, restarts=1, pods=gang(1), …),
        ],
    )

A step says what differs from the step before. Everything else in `Seen` must be as it was, but for events: a step has
exactly those that it names. When that is reached, the operator is made to look again, and must not write. At the end of
each story the promises are checked that hold for all of them (`support.promises`), and the operator's rights: it has
asked for nothing that they do not cover. What may happen is in `support.story_actions`.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

from qmljob_api import names
from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.reasons import Reason
from qmljob_api.status import JobStatus, parse_status
from qmljob_api.testing import manifest
from support.api_client import LIMIT_SECONDS, MERGE_PATCH, Object
from support.audit_log import describe, is_forbidden
from support.control_plane import ControlPlane
from support.controllers import running_controllers
from support.kubelet import Kubelet, Policy, goes
from support.operator_process import OperatorProcess
from support.promises import broken_promises
from support.timeline import PATHS, Timeline, running_timeline

JOB = "qcnn"
_MOST_ROUNDS = 10
_LOOK_AGAIN_SECONDS = 0.01
_TOUCHES = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a person sees of a job. Objects go by their names without the job's: `worker-0`.

    Attributes:
        exists: whether the job is there.
        phase: status.phase.
        holds: the conditions that are True, and why.
        attempt: status.attempt.
        restarts: those that were charged.
        disruptions: those that the cluster caused.
        ready: replicas that run, of all.
        pods: the pods that exist, and the attempt of each; None: it is no replica's.
        ending: those of them that are Terminating.
        again: replicas that got more than one pod in one attempt.
        services: the Services that exist.
        jobs: the batch Jobs that exist.
        failure: replica, exit code and reason of the last failure.
        epoch: the epoch that the last progress tells of.
        mse: the error that inference reported.
    """

    exists: bool = False
    phase: Phase | None = None
    holds: Mapping[ConditionType, Reason] = field(default_factory=dict)
    attempt: int | None = None
    restarts: int = 0
    disruptions: int = 0
    ready: str = ""
    pods: Mapping[str, int | None] = field(default_factory=dict)
    ending: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()
    failure: tuple[str, int | None, Reason] | None = None
    epoch: int | None = None
    mse: float | None = None


@dataclass(frozen=True)
class Step:
    """Something that happens, and what is seen after it.

    Attributes:
        what: in words.
        does: what happens.
        changes: fields of `Seen` that differ from the step before.
        events: the reasons of all new events on the job.
        notes: their texts, word for word; None: whatever they say.
        says: what the messages of conditions have in them.
    """

    what: str
    does: "Action"
    changes: Mapping[str, Any]
    events: tuple[Reason, ...]
    notes: tuple[str, ...] | None
    says: Mapping[ConditionType, str]


@dataclass(frozen=True)
class Story:
    """A promise, and the steps that show it. `spec` adds to that of a job of two workers; `kubelet` plays by itself."""

    promise: str
    steps: Sequence[Step]
    spec: Mapping[str, Any] = field(default_factory=dict)
    kubelet: Policy | None = goes


def step(
    what: str,
    does: "Action",
    *,
    events: Sequence[Reason] = (),
    notes: Sequence[str] | None = None,
    says: Mapping[ConditionType, str] | None = None,
    **changes: Any,
) -> Step:
    """Returns a step. `changes` are fields of `Seen` that differ from the step before."""
    unknown = changes.keys() - {each.name for each in fields(Seen)}
    if unknown:
        raise TypeError(f"step {what!r}: Seen has no {', '.join(sorted(unknown))}")
    return Step(what, does, changes, tuple(events), None if notes is None else tuple(notes), says or {})


def gang(attempt: int, *, worker: int = 2, **roles: int) -> dict[str, int]:
    """Returns the pods of a whole gang, each of this attempt."""
    return {f"{role}-{index}": attempt for role, count in {"worker": worker, **roles}.items() for index in range(count)}


class Scene:
    """A namespace with a job, an operator, and what plays the cluster."""

    def __init__(self, kubelet: Kubelet, operator: OperatorProcess, timeline: Timeline) -> None:
        """Puts the parts together; nothing happens yet."""
        self.plane: ControlPlane = kubelet.plane
        self.namespace = kubelet.namespace
        self.kubelet = kubelet
        self.operator = operator
        self.timeline = timeline
        self.manifest: Object = manifest({"name": JOB})
        self.bystanders: frozenset[str] = frozenset()
        """The uids of objects that are not of the story."""
        self.patience = LIMIT_SECONDS
        self._log = len(operator.log())
        self._begin = self.plane.audit_mark()

    def tell(self, story: Story) -> None:
        """Plays a story and checks each of its steps, then the promises that hold for all stories."""
        with self.playing(story):
            expected, told = Seen(), 0
            for number, each in enumerate(story.steps):
                expected = replace(expected, **each.changes)
                each.does(self)
                where = f"step {number}, {each.what}"
                self._reach(where, expected, each, told)
                if self.operator.running:
                    self.come_to_rest(where)
                    self._reach(f"{where}, looked at again", expected, each, told)
                told += len(each.events)
        self.check_promises()

    @contextmanager
    def playing(self, story: Story) -> Iterator[None]:
        """Has the story's job ready to be made, and its cluster played, until the block ends."""
        self.manifest = manifest({"name": JOB}, **story.spec)
        with ExitStack() as stack:
            stack.enter_context(running_controllers(self.plane, self.namespace))
            if story.kubelet is not None:
                stack.enter_context(self.kubelet.playing(story.kubelet))
            yield

    def check_promises(self) -> None:
        """Checks what holds whatever the story: the operator's promises, and that its rights cover what it asks for."""
        broken = broken_promises(self.timeline.happenings())
        requests = self.operator.requests(since=self._begin)
        beyond = [f"no right to {describe(each)}" for each in requests if is_forbidden(each)]
        assert not broken + beyond, "\n".join(broken + beyond)

    def path(self, kind: str, name: str = "") -> str:
        """Returns the path of an object by its name without the job's, or of all of a kind."""
        prefix = PATHS[kind].format(self.namespace)
        return f"{prefix}/{full_name(name)}" if name else prefix

    def job_path(self) -> str:
        """Returns the job's path."""
        return f"{PATHS[names.PLURAL].format(self.namespace)}/{JOB}"

    def job(self) -> Object | None:
        """Returns the job as the watches show it, or None where there is none."""
        found = (each for each in self.timeline.present(names.PLURAL) if each["metadata"]["name"] == JOB)
        return next(found, None)

    def status(self) -> JobStatus:
        """Returns the job's status as the watches show it."""
        return parse_status((self.job() or {}).get("status"))

    def seen(self) -> Seen:
        """Returns what the watches show now."""
        status = self.status()
        failure = status.last_failure
        pods = self.present("pods")
        return Seen(
            exists=self.job() is not None,
            phase=status.phase,
            holds={each.type: Reason(each.reason) for each in status.conditions if each.status == "True"},
            attempt=status.attempt,
            restarts=status.restarts,
            disruptions=status.disruptions,
            ready=status.ready,
            pods={_short(pod): _attempt(pod) for pod in pods},
            ending=frozenset(_short(pod) for pod in pods if pod["metadata"].get("deletionTimestamp")),
            again=frozenset(self._made_again()),
            services=frozenset(map(_short, self.present("services"))),
            jobs=frozenset(map(_short, self.present("jobs"))),
            failure=failure and (failure.replica.removeprefix(f"{JOB}-"), failure.exit_code, Reason(failure.reason)),
            epoch=status.progress.epoch if status.progress else None,
            mse=status.results.mse if status.results else None,
        )

    def present(self, kind: str) -> list[Object]:
        """Returns the objects of a kind that the watches show, bystanders aside."""
        found = self.timeline.present(kind)
        return [each for each in found if each["metadata"]["uid"] not in self.bystanders]

    def events(self) -> list[Object]:
        """Returns all events on the job, in their order."""
        told = [each.object for each in self.timeline.happenings() if each.kind == "events" and each.type == "ADDED"]
        return [each for each in told if each["involvedObject"]["kind"] == names.KIND]

    def reach(self, what: str, **changes: Any) -> None:
        """Waits until these fields of `Seen` are so, whatever the others are."""
        wanted = step(what, lambda scene: None, **changes).changes

        def reached() -> bool:
            seen = self.seen()
            return all(getattr(seen, name) == value for name, value in wanted.items())

        if not self.timeline.until(reached, self.patience):
            raise AssertionError("\n  ".join([f"{what}:", *self._differences(replace(self.seen(), **wanted))]))

    def _made_again(self) -> Iterator[str]:
        created = Counter(
            (_owner(each.object), _short(each.object), _attempt(each.object))
            for each in self.timeline.happenings()
            if each.kind == "pods" and each.type == "ADDED" and _attempt(each.object) is not None
        )
        return (name for (_, name, _), count in created.items() if count > 1)

    def _reach(self, where: str, expected: Seen, wanted: Step, told: int) -> None:
        def reached() -> bool:
            return self.seen() == expected and not any(self._untold(wanted, told))

        if not self.timeline.until(reached):
            problems = [*self._differences(expected), *self._untold(wanted, told)]
            raise AssertionError("\n  ".join([f"{where}:", *problems]))

    def _differences(self, expected: Seen) -> Iterator[str]:
        seen = self.seen()
        for each in fields(Seen):
            wanted, is_now = getattr(expected, each.name), getattr(seen, each.name)
            if wanted != is_now:
                yield f"{each.name}: expected {_plain(wanted)}, is {_plain(is_now)}"
        yield from (f"operator: {line.get('message', line)}" for line in self.operator.complaints(self._log)[-3:])

    def _untold(self, wanted: Step, told: int) -> Iterator[str]:
        """Yields what differs in the words of events and conditions."""
        events = self.events()[told:]
        reasons = [Reason(each["reason"]) for each in events]
        if Counter(reasons) != Counter(wanted.events):
            yield f"events: expected {_plain(wanted.events)}, are {_plain(reasons)}"
        notes = [each["message"] for each in events]
        if wanted.notes is not None and Counter(notes) != Counter(wanted.notes):
            yield f"notes: expected {_plain(wanted.notes)}, are {_plain(notes)}"
        for kind, text in wanted.says.items():
            condition = self.status().condition(kind)
            if condition is None or text not in condition.message:
                yield f"{kind} does not say {text!r} but {condition.message if condition else None!r}"

    def come_to_rest(self, where: str = "at the end") -> None:
        """Has the operator make another pass, until one writes nothing: what it put off comes first, and ends."""
        written: list[str] = []
        for _ in range(_MOST_ROUNDS):
            mark = self.plane.audit_mark()
            if not self.touch():
                return
            written = [describe(each) for each in self.operator.writes(self.namespace, since=mark)]
            if not written:
                return
        raise AssertionError(f"{where}: the operator does not come to rest; its last pass wrote {written}")

    def touch(self) -> bool:
        """Changes an annotation of the job and waits for the pass that follows; returns whether the job is there."""
        passes = self.operator.passes()
        body = {"metadata": {"annotations": {"example.com/touched": str(next(_TOUCHES))}}}
        response = self.plane.request("PATCH", self.job_path(), body, content_type=MERGE_PATCH)
        again = threading.Event()
        deadline = time.monotonic() + self.patience
        while response.ok and self.operator.passes() <= passes:
            if time.monotonic() > deadline:
                raise TimeoutError("the operator made no pass over a job that had changed")
            again.wait(_LOOK_AGAIN_SECONDS)
        return response.ok


@contextmanager
def scene(plane: ControlPlane, kubelet: Kubelet, operator: OperatorProcess) -> Iterator[Scene]:
    """A scene in the kubelet's namespace, whose happenings are followed until the block ends."""
    with running_timeline(plane, kubelet.namespace) as timeline:
        yield Scene(kubelet, operator, timeline)


Action: TypeAlias = Callable[[Scene], None]
"""Something that may happen in a scene."""


def full_name(short: str) -> str:
    """Returns an object's name from its name without the job's."""
    return f"{JOB}-{short}"


def _short(item: Object) -> str:
    return str(item["metadata"]["name"]).removeprefix(f"{JOB}-")


def _owner(item: Object) -> str:
    return next((str(each["uid"]) for each in item["metadata"].get("ownerReferences") or ()), "")


def _attempt(pod: Object) -> int | None:
    text = (pod["metadata"].get("labels") or {}).get(names.LABEL_ATTEMPT)
    return int(text) if text is not None else None


def _plain(value: Any) -> str:
    """Returns a value as a person writes it, enumerations by their words."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_plain(key)}: {_plain(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple | frozenset):
        return "[" + ", ".join(map(_plain, sorted(value, key=str) if isinstance(value, frozenset) else value)) + "]"
    return str(value)
