"""A case: a scenario, at most one fault, at most one broken operator; and what came of it.

    scenario=fail call=update:qmljobs/qcnn/status@3 fault=kill-after

is a case as it is printed, and as it is read again.
"""

import contextlib
import json
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus

from qmljob_api.testing import manifest
from support.api_client import LIMIT_SECONDS, Object
from support.chaos.bystanders import make_bystanders
from support.chaos.ends import End, differences, end_of
from support.chaos.laboratory import Laboratory, Place
from support.chaos.scenarios import BY_NAME, JOB, Scenario
from support.hurried_operator import PATIENCE_SECONDS
from support.injector.calls import Call
from support.injector.faults import Fault, parse_fault, parse_words
from support.kubelet import Kubelet, Policy
from support.operator_process import OperatorProcess
from support.pod_promises import touched
from support.promises import broken_promises
from support.stories import Scene

_MOST_ROUNDS = 8
_LOOK_AGAIN_SECONDS = 0.03


@dataclass(frozen=True)
class Case:
    """What is tried."""

    scenario: Scenario
    fault: Fault | None = None
    broken: str = ""

    def __str__(self) -> str:
        """Returns the one line that names it."""
        parts = [f"scenario={self.scenario.name}", str(self.fault or ""), self.broken and f"broken={self.broken}"]
        return " ".join(part for part in parts if part)


def parse_case(line: str) -> Case:
    """Returns the case that a line names.

    Raises:
        ValueError: it names none.
    """
    words = parse_words(line)
    name, broken = words.pop("scenario", ""), words.pop("broken", "")
    if name not in BY_NAME:
        raise ValueError(f"scenario={name}: there are {', '.join(BY_NAME)}")
    return Case(BY_NAME[name], parse_fault(words) if words else None, broken)


@dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Attributes:
        problems: what is wrong, a sentence each; empty: all promises were kept.
        struck: whether the fault's call was made; where it was not, the case has shown nothing.
        calls: the operator's calls.
        end: how it ended.
    """

    case: Case
    problems: tuple[str, ...]
    struck: bool
    calls: tuple[Call, ...]
    end: End


def run_case(lab: Laboratory, case: Case, wanted: End | None = None, *, patience: float = 2 * LIMIT_SECONDS) -> Outcome:
    """Plays a case and judges it.

    Args:
        lab: where.
        case: what.
        wanted: how it has to end, from a run without a fault; None: this is that run.
        patience: how long to wait for each thing that has to come, in seconds.
    """
    faults = () if case.fault is None else (case.fault,)
    with lab.place(*faults, broken=case.broken) as place:
        stage = Scene(place.kubelet, place.operator, place.timeline)
        stage.patience = patience
        stage.bystanders = make_bystanders(lab.plane, stage.namespace, JOB)
        stage.manifest = manifest({"name": JOB}, **case.scenario.spec)
        place.cluster.policy = _but_for(stage.bystanders, case.scenario.kubelet)
        place.injector.on_kill = lambda: _start_again(place)
        place.injector.on_rival = place.rival.begin
        problems: list[str] = []
        try:
            _play(place, stage, case.scenario, wanted)
        except Exception as error:  # whatever a case runs into is told with its line, and the next one goes on
            problems.append(str(error) if isinstance(error, AssertionError) else repr(error))
        end = end_of(stage)
        place.operator.kill()
        place.rival.kill()
        happenings = place.timeline.happenings()
        problems += broken_promises([each for each in happenings if each.uid not in stage.bystanders])
        problems += touched(happenings, stage.bystanders)
        problems += [f"the operator's log: {json.dumps(line)}" for line in _complaints(place.operator)]
        problems += [f"the cluster: {failure!r}" for failure in place.cluster.failures]
        struck = case.fault is None or case.fault in place.injector.struck
        return Outcome(case, tuple(problems), struck, tuple(place.injector.calls), end)


def _play(place: Place, stage: Scene, scenario: Scenario, wanted: End | None) -> None:
    place.operator.begin()
    _await_ready(place.operator, stage.patience)
    scenario.play(stage)
    stage.reach("at the end", **scenario.ends)
    if wanted is not None:
        _reach(stage, wanted)
    place.injector.await_late()
    _come_to_rest(place, stage)
    stage.reach("at the end, looked at again", **scenario.ends)
    if wanted is not None:
        _reach(stage, wanted)


def _reach(stage: Scene, wanted: End) -> None:
    if not stage.timeline.until(lambda: not differences(wanted, end_of(stage)), stage.patience):
        raise AssertionError("\n  ".join(["another end than without the fault:", *differences(wanted, end_of(stage))]))


def _start_again(place: Place) -> None:
    """Kills the operator, and starts another one, as its Deployment does."""
    place.operator.kill()
    place.operator.begin()


def _await_ready(operator: OperatorProcess, patience: float) -> None:
    """Waits until an operator is ready: this one, or the one that begins where the fault kills it on its way."""
    deadline, again = time.monotonic() + patience, threading.Event()
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # not listening yet
            if operator.get("/readyz")[0] == HTTPStatus.OK:
                return
        again.wait(_LOOK_AGAIN_SECONDS)
    raise TimeoutError(f"the operator is not ready after {patience:.0f} s")


def _complaints(operator: OperatorProcess) -> list[Object]:
    """Returns what the operator's log has of bugs. kopf tells of each failed request, which is our doing."""
    return [line for line in operator.complaints() if not str(line.get("logger", "")).startswith("kopf.")]


def _come_to_rest(place: Place, stage: Scene) -> None:
    """Has the operator look again, until it has nothing more to write, what it is patient with included."""
    quiet, again = 0, threading.Event()
    for _ in range(_MOST_ROUNDS):
        before = len(place.injector.writes)
        try:
            there = stage.touch()
        except OSError:
            # The fault's call came as late as this, and another operator begins.
            _await_ready(place.operator, stage.patience)
            continue
        quiet = quiet + 1 if len(place.injector.writes) == before else 0
        if not there or quiet == 2:
            return
        again.wait(PATIENCE_SECONDS)
    raise AssertionError(f"the operator does not come to rest: {', '.join(map(str, place.injector.writes[-5:]))}")


def _but_for(bystanders: frozenset[str], policy: Policy) -> Policy:
    def act(kubelet: Kubelet, pod: Object) -> None:
        if pod["metadata"]["uid"] not in bystanders:
            policy(kubelet, pod)

    return act
