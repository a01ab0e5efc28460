"""Random schedules of what users, clusters, networks, clocks and operators do: promises hold, and every job ends."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from support.chaos.broken import BROKEN, Broken, broken_here
from support.schedules.machine import Schedules

STEPS = 20
FEW, MANY = 12, 2000
FOUND_OUT = {
    "charges-disruptions": "1 restarts and 1 disruptions more",
    "never-completes": "the job has not ended",
}
"""Operators that are broken on purpose, and what is said of them."""


def run(schedules: int, *phases: Phase) -> None:
    run_state_machine_as_test(
        Schedules,
        settings=settings(
            max_examples=schedules,
            stateful_step_count=STEPS,
            derandomize=True,
            database=None,
            deadline=None,
            phases=phases or tuple(Phase),
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_whatever_happens_in_whatever_order_every_promise_is_kept() -> None:
    run(FEW)


@pytest.mark.parametrize("broken", [each for each in BROKEN if each.name in FOUND_OUT], ids=lambda broken: broken.name)
def test_an_operator_that_is_broken_on_purpose_is_found_out(broken: Broken) -> None:
    with broken_here(broken), pytest.raises(AssertionError, match=FOUND_OUT[broken.name]):
        run(FEW, Phase.generate)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_whatever_happens_in_whatever_order_every_promise_is_kept_in_many_schedules() -> None:
    run(int(os.environ.get("SCHEDULES", MANY)))
