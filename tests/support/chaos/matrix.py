"""All cases: each scenario, each of its calls, each fault that can happen to such a call."""

import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from qmljob_api import names
from support.chaos.cases import Case, Outcome, run_case
from support.chaos.ends import End, differences
from support.chaos.laboratory import Laboratory, laboratory
from support.chaos.scenarios import SCENARIOS, Scenario
from support.chaos.zygote import running_zygote
from support.control_plane import ControlPlane, running_control_plane
from support.injector.calls import Call
from support.injector.faults import CRASHES, WATCH_FAULTS, Fault, FaultKind
from support.operator_process import install_operator

_CRD = Path(__file__).resolve().parents[3] / "manifests" / "crd" / "qmljobs.qml.dev.yaml"
_READ_FAULTS = (FaultKind.LOSE, FaultKind.UNAVAILABLE, FaultKind.KILL_AFTER)
_GUARDED = ("update:", "delete:", "patch:")
"""Writes that say which version or which object they mean. A creation can't: docs/chaos.md, "What is not proved"."""
_LIKE_EACH_OTHER = (FaultKind.BUSY, FaultKind.BROKEN, FaultKind.UNAVAILABLE, FaultKind.DELAY)
"""To the operator these are one: try again. Each call meets one of them, by its name."""


@dataclass(frozen=True)
class Reference:
    """A scenario without a fault: its calls and its end."""

    scenario: Scenario
    calls: tuple[Call, ...]
    end: End


def undisturbed(lab: Laboratory, scenario: Scenario, *, runs: int = 2) -> Reference:
    """Plays a scenario without a fault, so often.

    Raises:
        AssertionError: it breaks a promise, or ends in two ways.
    """
    outcomes = [run_case(lab, Case(scenario)) for _ in range(runs)]
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    problems += differences(outcomes[0].end, outcomes[-1].end)
    if problems:
        raise AssertionError("\n  ".join([f"scenario={scenario.name} without any fault:", *problems]))
    return Reference(scenario, tuple(sorted({call for each in outcomes for call in each.calls})), outcomes[0].end)


def cases_of(reference: Reference) -> list[Case]:
    """Returns every case of a scenario."""
    first = reference.scenario is SCENARIOS[0]
    silent = "inference" not in reference.scenario.spec  # no event ever comes of a Job, so nothing can be lost
    calls = [call for call in reference.calls if not (silent and call.name == "watch:jobs")]
    return [Case(reference.scenario, fault) for call in calls for fault in _faults(call, starts=first)]


def _faults(call: Call, *, starts: bool) -> Iterator[Fault]:
    """Yields what can happen to a call; how an operator starts is the same in all scenarios, and tried in one."""
    if call.is_watch:
        yield from (Fault(call, kind) for kind in WATCH_FAULTS)
        yield from (Fault(call, kind, event=2) for kind in (FaultKind.REPLAY, FaultKind.SKIP))
    elif call.is_write:
        yield from (Fault(call, kind) for kind in (*CRASHES, FaultKind.CONFLICT, FaultKind.TIMEOUT))
        yield Fault(call, random.Random(str(call)).choice(_LIKE_EACH_OTHER))
        if call.name.startswith(_GUARDED):
            yield Fault(call, FaultKind.KILL_LATE)
    elif starts or call.name.startswith("get:pods/"):
        yield from (Fault(call, kind) for kind in _READ_FAULTS)


def sample_of(cases: Sequence[Case], seed: int, count: int) -> list[Case]:
    """Returns a few of a scenario's cases, of different kinds."""
    chance = random.Random(f"{seed} {cases[0].scenario.name}")
    shuffled = chance.sample(cases, len(cases))
    kinds = {case.fault.kind: case for case in shuffled if case.fault is not None}
    return [kinds[kind] for kind in chance.sample(sorted(kinds), min(count, len(kinds)))]


def run_all(lab: Laboratory, cases: Iterable[Case], end: End, *, side_by_side: int) -> Iterator[Outcome]:
    """Runs cases of one scenario, so many at once, and yields their outcomes as they come."""
    with ThreadPoolExecutor(side_by_side) as pool:
        for done in as_completed([pool.submit(run_case, lab, case, end) for case in cases]):
            yield done.result()


@contextmanager
def laboratory_on(plane: ControlPlane) -> Iterator[Laboratory]:
    """A laboratory on a control plane where `install_operator` was done, until the block ends."""
    token = plane.service_account_token(names.OPERATOR_NAMESPACE, names.OPERATOR)
    with (
        running_zygote() as zygote,
        TemporaryDirectory() as folder,
        laboratory(plane, zygote, token, Path(folder)) as lab,
    ):
        yield lab


@contextmanager
def fresh_laboratory() -> Iterator[Laboratory]:
    """A laboratory on a control plane of its own, until the block ends."""
    with running_control_plane() as plane:
        plane.define_kind(_CRD)
        install_operator(plane)
        with laboratory_on(plane) as lab:
            yield lab
