"""A sample of `make chaos`: faults at calls of every scenario, and operators that are broken on purpose.

Everything that is played here is played side by side, before the first test.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from support.chaos.broken import BROKEN, Broken
from support.chaos.cases import Case, Outcome, parse_case, run_case
from support.chaos.laboratory import Laboratory
from support.chaos.matrix import cases_of, laboratory_on, sample_of, undisturbed
from support.chaos.scenarios import SCENARIOS, Scenario
from support.control_plane import ControlPlane

pytestmark = pytest.mark.usefixtures("operator_rights")

SEED = 1
SIDE_BY_SIDE = 8
IMPATIENT_SECONDS = 12.0
"""How long to wait for what a broken operator does not do."""
MENDED = [
    # A conflict was taken for the end of what was to be deleted: pods of two attempts at once, Services that stayed.
    "scenario=fail call=delete:services/qcnn-worker-0@1 fault=409",
    "scenario=suspend call=delete:pods/qcnn-worker-0@1 fault=409",
]
QUICK = ("adopts", "takes-strangers")
"""Broken operators that are found out in a second."""


@pytest.fixture(scope="module")
def lab(control_plane: ControlPlane, operator_rights: None) -> Iterator[Laboratory]:
    """A laboratory on the session's control plane."""
    with laboratory_on(control_plane) as running:
        yield running


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for what is played side by side."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as running:
        yield running


def sampled(lab: Laboratory, scenario: Scenario) -> list[Outcome]:
    reference = undisturbed(lab, scenario, runs=1)
    return [run_case(lab, case, reference.end) for case in sample_of(cases_of(reference), SEED, 1)]


def judged(lab: Laboratory, case: Case, broken: Broken | None = None) -> Outcome:
    end = run_case(lab, Case(case.scenario)).end
    if broken is None:
        return run_case(lab, case, end)
    return run_case(lab, replace(case, broken=broken.name), end, patience=IMPATIENT_SECONDS)


@pytest.fixture(scope="module")
def samples(lab: Laboratory, pool: ThreadPoolExecutor) -> Mapping[str, Future[list[Outcome]]]:
    """A case of each scenario, under way."""
    return {scenario.name: pool.submit(sampled, lab, scenario) for scenario in SCENARIOS}


@pytest.fixture(scope="module")
def mended(lab: Laboratory, pool: ThreadPoolExecutor) -> Mapping[str, Future[Outcome]]:
    """The cases that have once found something, under way."""
    return {line: pool.submit(judged, lab, parse_case(line)) for line in MENDED}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_promise_is_kept_whatever_happens_to_a_call(
    scenario: Scenario, samples: Mapping[str, Future[list[Outcome]]]
) -> None:
    for outcome in samples[scenario.name].result():
        assert outcome.problems == (), f"make chaos ARGS='{outcome.case}'"


@pytest.mark.parametrize("line", MENDED)
def test_what_was_once_broken_stays_mended(line: str, mended: Mapping[str, Future[Outcome]]) -> None:
    outcome = mended[line].result()
    assert outcome.struck, f"the call is not made any more: {line}"
    assert outcome.problems == (), f"make chaos ARGS='{line}'"


def check_it_is_found_out(lab: Laboratory, broken: Broken) -> None:
    case = parse_case(broken.case)
    right, wrong = judged(lab, case), judged(lab, case, broken)
    assert right.struck, f"the call is not made any more: {broken.case}"
    assert right.problems == (), "without the patch nothing is broken"
    assert any(broken.says in problem for problem in wrong.problems), wrong.problems


@pytest.mark.parametrize("broken", [each for each in BROKEN if each.name in QUICK], ids=lambda broken: broken.name)
def test_an_operator_that_is_broken_on_purpose_is_found_out(lab: Laboratory, broken: Broken) -> None:
    check_it_is_found_out(lab, broken)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [each for each in BROKEN if each.name not in QUICK], ids=lambda broken: broken.name)
def test_each_operator_that_is_broken_on_purpose_is_found_out(lab: Laboratory, broken: Broken) -> None:
    check_it_is_found_out(lab, broken)
