"""What holds of every decision, whatever happened to the gang."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob_api.exitcodes import ExitCode
from qmljob_api.types import FailureAction, QMLJob, Role, SuccessPolicy
from qmljob_operator.gangstate import GangState
from qmljob_operator.policy import (
    LOST_PEER_LIMIT,
    Decision,
    KeepWaiting,
    ReplaceReplica,
    RestartGang,
    decide,
)
from qmljob_operator.testing import STARTED, make_gang, make_job, make_rule
from qmljob_operator.topology import build_topology

SETTLE = 45.0


def after(job: QMLJob, gang: GangState, seconds: float, alone: bool) -> Decision:
    return decide(job, gang, now=STARTED + seconds, settle_seconds=SETTLE, replace_alone=alone)


_CODES = st.sampled_from([0, 1, 3, 64, 65, 69, 74, 75, 137, 143, -9])
_RULES = st.builds(
    lambda action, values, roles, negate: make_rule(action, *values, roles=roles, negate=negate),
    st.sampled_from(FailureAction),
    st.lists(st.sampled_from([1, 3, 64, 65, 75, 143]), min_size=1, max_size=2, unique=True),
    st.none() | st.sampled_from(Role).map(lambda role: (role,)),
    st.booleans(),
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[QMLJob, GangState, float]:
    """Draws a job, an attempt of it and a time."""
    job = make_job(
        draw(st.sampled_from([{"worker": 1}, {"worker": 3}, {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}])),
        tuple(draw(st.lists(_RULES, max_size=2))),
        draw(st.sampled_from(SuccessPolicy)),
        backoff_limit=draw(st.integers(0, 3)),
        **({"active_deadline_seconds": 120} if draw(st.booleans()) else {}),
        **({"startup_deadline_seconds": 60} if draw(st.booleans()) else {}),
    )
    ends, never_started = [], []
    for replica in build_topology(job).replicas:
        name = replica.name.removeprefix("qcnn-")
        match draw(st.sampled_from(["runs", "ended", "never started"])):
            case "ended":
                ends.append((name, draw(_CODES), float(draw(st.integers(0, 90))), draw(st.booleans())))
            case "never started":
                never_started.append(name)
    state = {"restarts": draw(st.integers(0, 4)), "lost_peer_attempts": draw(st.integers(0, LOST_PEER_LIMIT - 1))}
    gang = make_gang(job, *ends, never_started=tuple(never_started), **state)
    return job, gang, float(draw(st.integers(90, 200)))


PROPERTY = settings(derandomize=True, deadline=None, max_examples=120)
ALONE = pytest.mark.parametrize("alone", [False, True], ids=["the gang as one", "some alone"])


@ALONE
@PROPERTY
@given(situation=situations())
def test_a_disruption_is_never_charged(situation: tuple[QMLJob, GangState, float], alone: bool) -> None:
    job, gang, at = situation
    decision = after(job, gang, at, alone)
    if isinstance(decision, RestartGang) and decision.charged:
        assert not any(end.disruption for end in gang.ended if end.replica.role is not Role.EVALUATOR)
        assert decision.cause.exit_code not in (0, ExitCode.LOST_PEER)


@ALONE
@PROPERTY
@given(situation=situations())
def test_charges_never_exceed_the_backoff_limit(situation: tuple[QMLJob, GangState, float], alone: bool) -> None:
    job, gang, at = situation
    decision = after(job, gang, at, alone)
    if isinstance(decision, RestartGang | ReplaceReplica) and decision.charged:
        assert gang.restarts + 1 <= job.spec.run_policy.backoff_limit


@ALONE
@PROPERTY
@given(situation=situations())
def test_the_order_in_which_ends_are_seen_changes_nothing(
    situation: tuple[QMLJob, GangState, float], alone: bool
) -> None:
    job, gang, at = situation
    decision = after(job, gang, at, alone)
    for order in itertools.islice(itertools.permutations(gang.ended), 24):
        assert after(job, replace(gang, ended=order), at, alone) == decision


@ALONE
@PROPERTY
@given(situation=situations())
def test_a_wait_ends_in_the_future_and_then_brings_a_decision(
    situation: tuple[QMLJob, GangState, float], alone: bool
) -> None:
    job, gang, at = situation
    decision = after(job, gang, at, alone)
    if isinstance(decision, KeepWaiting) and decision.until is not None:
        assert decision.until > STARTED + at
        later = decide(job, gang, now=decision.until, settle_seconds=SETTLE, replace_alone=alone)
        assert not isinstance(later, KeepWaiting)


@ALONE
@PROPERTY
@given(situation=situations())
def test_an_evaluator_never_restarts_the_gang(situation: tuple[QMLJob, GangState, float], alone: bool) -> None:
    job, gang, at = situation
    decision = after(job, gang, at, alone)
    if isinstance(decision, RestartGang):
        assert decision.cause.replica.role is not Role.EVALUATOR


@ALONE
@PROPERTY
@given(situation=situations())
def test_a_gang_in_which_everyone_ended_is_never_waited_for(
    situation: tuple[QMLJob, GangState, float], alone: bool
) -> None:
    job, gang, at = situation
    if len(gang.ended) == len(gang.topology.replicas):
        assert not isinstance(after(job, gang, at, alone), KeepWaiting)


@ALONE
@PROPERTY
@given(situation=situations())
def test_what_is_replaced_alone_is_one_replica_that_can_be(
    situation: tuple[QMLJob, GangState, float], alone: bool
) -> None:
    job, gang, at = situation
    decision = after(job, gang, at, alone)
    if isinstance(decision, ReplaceReplica):
        assert alone
        assert decision.cause in gang.ended
        assert decision.cause.replica.role in (Role.WORKER, Role.EVALUATOR)
        assert decision.cause.replica != gang.topology.chief
        assert not (decision.charged and (decision.cause.disruption or decision.cause.replica.role is Role.EVALUATOR))
