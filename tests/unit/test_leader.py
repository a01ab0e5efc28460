"""At most one operator writes at any moment, whatever the network, the clock and the event loop do."""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob_operator.controller.leader import STOP_SECONDS, Leadership, LeaseLost, NotLeading, lead, new_identity
from support.lease_server import Fault, LeaseClient, LeaseServer
from support.virtual_time import virtual_loop, virtual_run

RENEW, LEASE, RETRY = 10.0, 15, 2.0


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Candidate:
    """A process that wants to lead, and what happened to it."""

    client: LeaseClient
    identity: str
    leadership: Leadership
    began: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    linger: float = 0.0
    fails_with: Exception | None = None
    returns_after: float | None = None
    task: "asyncio.Task[None]" = field(init=False)

    async def work(self) -> None:
        self.began.append(now())
        self.leadership.check()
        try:
            if self.returns_after is not None:
                await asyncio.sleep(self.returns_after)
                if self.fails_with is not None:
                    raise self.fails_with
                return
            await asyncio.Event().wait()
        finally:
            self.ended.append(now())
            if self.linger:
                await asyncio.sleep(self.linger)

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError, LeaseLost):
            await self.task

    @property
    def may_write(self) -> bool:
        with suppress(NotLeading):
            self.leadership.check()
            return True
        return False


def candidate(
    server: LeaseServer, identity: str, leadership: Leadership | None = None, **settings: object
) -> Candidate:
    loop = asyncio.get_running_loop()
    leadership = leadership or Leadership(renew_seconds=RENEW, clock=loop.time)
    made = Candidate(server.client(), identity, leadership, **settings)  # type: ignore[arg-type]
    made.task = loop.create_task(
        lead(
            made.client,
            made.leadership,
            namespace="system",
            name="operator",
            identity=identity,
            on_started=made.work,
            lease_seconds=LEASE,
            retry_seconds=RETRY,
        )
    )
    return made


@asynccontextmanager
async def leader_and_standby(**settings: object) -> AsyncIterator[tuple[LeaseServer, Candidate, Candidate]]:
    server = LeaseServer()
    first = candidate(server, "first", **settings)
    await asyncio.sleep(1)
    second = candidate(server, "second")
    await asyncio.sleep(20)
    assert (first.may_write, second.may_write) == (True, False)
    yield server, first, second
    await first.stop()
    await second.stop()


def test_the_first_one_leads_and_goes_on_leading() -> None:
    async def run() -> None:
        async with leader_and_standby() as (server, first, second):
            await asyncio.sleep(3600)
            assert (first.may_write, second.may_write, server.holder) == (True, False, "first")
            assert first.leadership.leading_seconds() == pytest.approx(3621, abs=1)
            assert (second.leadership.leading_seconds(), second.leadership.remaining_seconds()) == (0, 0)

    virtual_run(run())


def test_the_lease_tells_people_who_leads_since_when() -> None:
    async def run() -> None:
        async with leader_and_standby() as (server, first, second):
            (path,) = server.leases
            assert path == "/apis/coordination.k8s.io/v1/namespaces/system/leases/operator"
            before = server.leases[path]["spec"]
            assert (before["leaseDurationSeconds"], before["leaseTransitions"]) == (LEASE, 0)
            await first.stop()
            await asyncio.sleep(RETRY + 1)
            after = server.leases[path]["spec"]
            assert (after["holderIdentity"], after["leaseTransitions"]) == ("second", 1)
            assert before["acquireTime"] < before["renewTime"] < after["acquireTime"]
            assert after["acquireTime"].endswith("+00:00")
            assert second.may_write

    virtual_run(run())


def test_a_leader_that_stops_gives_the_lease_back_when_its_work_has_ended() -> None:
    async def run() -> None:
        async with leader_and_standby(linger=6.0) as (server, first, second):
            stopped_at = now()
            await first.stop()
            assert now() == pytest.approx(stopped_at + 6, abs=0.1)
            assert server.holder == ""
            await asyncio.sleep(RETRY + 0.1)
            assert second.may_write

    virtual_run(run())


def test_a_leader_may_write_while_its_work_ends() -> None:
    async def run() -> None:
        async with leader_and_standby(linger=6.0) as (_, first, second):
            stopping = asyncio.create_task(first.stop())
            await asyncio.sleep(5)
            assert (first.may_write, second.may_write) == (True, False)
            await stopping
            assert not first.may_write

    virtual_run(run())


def test_work_that_does_not_end_keeps_the_lease_until_it_runs_out(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with leader_and_standby(linger=1000.0) as (server, first, second):
            await first.stop()
            assert (first.may_write, server.holder) == (False, "first")
            await asyncio.sleep(LEASE - 2 * RETRY)
            assert not second.may_write
            await asyncio.sleep(3 * RETRY)
            assert second.may_write

    virtual_run(run())
    assert f"did not end within {STOP_SECONDS:g} s" in caplog.text


@pytest.mark.parametrize("fault", Fault)
def test_a_leader_that_can_not_renew_stops_before_another_one_begins(fault: Fault) -> None:
    async def run() -> None:
        async with leader_and_standby() as (_, first, second):
            first.client.fault = fault
            cut_at, over_at = now(), now() + first.leadership.remaining_seconds()
            with pytest.raises(LeaseLost, match=r"renewed for 10 s|second holds"):
                await first.task
            assert first.ended == [pytest.approx(over_at, abs=0.05)]
            assert now() == pytest.approx(over_at, abs=0.05)
            assert not first.may_write
            while not second.began:
                await asyncio.sleep(0.1)
            # A renewal that was served without an answer counts for the others.
            assert cut_at + LEASE - RETRY <= second.began[0] <= cut_at + RENEW + LEASE + 2 * RETRY
            assert second.began[0] - first.ended[0] >= LEASE - RENEW - RETRY

    virtual_run(run())


def test_a_renewal_counts_from_before_it_was_sent() -> None:
    async def run() -> None:
        server = LeaseServer()
        only = candidate(server, "only")
        only.client.latency = 1.5  # for the read and again for the write
        for _ in range(600):
            await asyncio.sleep(0.1)
            assert only.leadership.remaining_seconds() < RENEW - 2 * 1.5 + 0.01
        assert only.may_write
        await only.stop()

    virtual_run(run())


def test_a_pause_shorter_than_the_deadline_costs_nothing() -> None:
    async def run() -> None:
        async with leader_and_standby() as (_, first, second):
            for fault in Fault:
                first.client.fault = fault
                await asyncio.sleep(RENEW - RETRY - 4)
                first.client.fault = None
                await asyncio.sleep(30)
            assert (first.may_write, second.began) == (True, [])

    virtual_run(run())


def test_a_wedged_event_loop_can_not_write_late() -> None:
    async def run() -> None:
        async with leader_and_standby() as (_, first, _second):
            virtual_loop().block(RENEW)
            # No task has run since: only the clock can tell.
            assert not first.leadership.is_leader
            with pytest.raises(NotLeading, match="another operator may lead by now"):
                first.leadership.check()
            with pytest.raises(LeaseLost, match="this process could not run"):
                await first.task

    virtual_run(run())


@pytest.mark.parametrize("jump", [86_400.0, -86_400.0])
def test_setting_the_wall_clock_takes_the_lease_from_nobody(jump: float, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time

    async def run() -> None:
        async with leader_and_standby() as (_, first, second):
            monkeypatch.setattr(time, "time", lambda: real() + jump)
            await asyncio.sleep(60)
            assert (first.may_write, second.began) == (True, [])
            first.client.fault = Fault.SILENT
            await asyncio.sleep(LEASE + 2 * RETRY)
            assert (first.may_write, second.may_write) == (False, True)

    virtual_run(run())


def test_a_lease_that_somebody_else_took_ends_the_leadership_at_the_next_look() -> None:
    async def run() -> None:
        async with leader_and_standby() as (server, first, _second):
            (path,) = server.leases
            taken = server.leases[path]
            taken["spec"]["holderIdentity"] = "a person"
            _, _ = server.serve("PUT", path, taken)
            with pytest.raises(LeaseLost, match="a person holds the lease"):
                async with asyncio.timeout(RETRY + 0.1):
                    await first.task

    virtual_run(run())


def test_a_lease_that_somebody_deletes_is_made_anew() -> None:
    async def run() -> None:
        async with leader_and_standby() as (server, first, second):
            server.leases.clear()
            await asyncio.sleep(60)
            assert first.may_write + second.may_write == 1

    virtual_run(run())


def test_an_operator_that_died_is_followed_when_its_lease_runs_out() -> None:
    async def run() -> None:
        server = LeaseServer()
        dead = candidate(server, "dead")
        await asyncio.sleep(5)
        dead.client.fault = Fault.SILENT
        await dead.stop()
        began = now()
        following = candidate(server, "new")
        await asyncio.sleep(LEASE + 2 * RETRY)
        assert following.began == [pytest.approx(began + LEASE + 1, abs=RETRY)]
        await following.stop()

    virtual_run(run())


def test_a_candidate_whose_acquisition_got_no_answer_leads_by_it_later() -> None:
    async def run() -> None:
        server = LeaseServer()
        server.serve("POST", "/apis/coordination.k8s.io/v1/namespaces/system/leases", _lease(""))
        only = candidate(server, "only")
        only.client.latency = 1.0
        await asyncio.sleep(1.5)  # between its first read and its first write
        only.client.fault = Fault.DEAF
        await asyncio.sleep(5)
        assert (server.holder, only.began) == ("only", [])
        only.client.fault = None
        await asyncio.sleep(5)
        assert only.may_write
        await only.stop()
        assert server.holder == ""

    virtual_run(run())


def test_a_candidate_that_stops_while_it_acquires_gives_back_what_it_may_have_got() -> None:
    async def run() -> None:
        server = LeaseServer()
        only = candidate(server, "only")
        only.client.latency = 1.0
        await asyncio.sleep(1.5)
        only.client.fault = Fault.DEAF
        await asyncio.sleep(1)
        assert (server.holder, only.began) == ("only", [])
        only.client.fault = None
        await only.stop()
        assert server.holder == ""

    virtual_run(run())


def test_a_candidate_that_may_not_write_has_nothing_to_give_back() -> None:
    async def run() -> None:
        only = candidate(LeaseServer(), "only")
        only.client.fault = Fault.READ_ONLY
        await asyncio.sleep(10.5)
        calls = only.client.calls
        await only.stop()
        assert only.client.calls == calls

    virtual_run(run())


def test_times_of_whole_seconds_are_written_as_the_api_server_wants_them() -> None:
    async def run() -> None:
        server = LeaseServer()
        lease = _lease("only")
        lease["spec"]["acquireTime"] = "2026-01-01T00:00:00.000000Z"
        server.serve("POST", "/apis/coordination.k8s.io/v1/namespaces/system/leases", lease)
        only = candidate(server, "only")
        await asyncio.sleep(1)
        assert only.may_write
        await only.stop()
        assert server.holder == ""

    virtual_run(run())


def test_a_standby_that_stops_asks_nothing_of_the_api_server() -> None:
    async def run() -> None:
        async with leader_and_standby() as (_, _first, second):
            calls = second.client.calls
            second.client.fault = Fault.SILENT
            stopped_at = now()
            await second.stop()
            assert (second.client.calls, now()) == (calls, stopped_at)

    virtual_run(run())


def test_the_end_of_the_work_is_the_end_of_the_leadership() -> None:
    async def run() -> None:
        server = LeaseServer()
        only = candidate(server, "only", returns_after=30.0)
        await only.task
        assert (only.may_write, server.holder) == (False, "")
        failing = candidate(server, "failing", returns_after=3.0, fails_with=ZeroDivisionError("a bug"))
        with pytest.raises(ZeroDivisionError):
            await failing.task
        assert (failing.may_write, server.holder) == (False, "")

    virtual_run(run())


def test_a_write_that_sees_the_end_first_is_a_lost_lease_too() -> None:
    async def run() -> None:
        server = LeaseServer()
        only = candidate(server, "only", returns_after=3.0, fails_with=NotLeading("too old"))
        with pytest.raises(LeaseLost, match="too old"):
            await only.task

    virtual_run(run())


def test_a_standby_tells_its_news_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "qmljob_operator")

    async def run() -> None:
        async with leader_and_standby() as (_, _first, second):
            await asyncio.sleep(60)
            second.client.fault = Fault.FORBIDDEN
            await asyncio.sleep(60)

    virtual_run(run())
    told = [record.getMessage() for record in caplog.records if record.name.startswith("qmljob_operator")]
    assert told == [
        "this operator leads",
        "standing by: first leads",
        'the lease system/operator could not be read: 403 leases "operator" is forbidden',
    ]


@pytest.mark.parametrize(("renew", "lease", "retry"), [(15.0, 15, 2.0), (2.0, 15, 2.0), (10.0, 15, 0.5)])
def test_times_that_do_not_fit_each_other_are_refused(renew: float, lease: int, retry: float) -> None:
    async def run() -> None:
        with pytest.raises(ValueError, match="must be greater"):
            await lead(
                LeaseServer().client(),
                Leadership(renew_seconds=renew),
                namespace="system",
                name="operator",
                identity="only",
                on_started=lambda: asyncio.sleep(1),
                lease_seconds=lease,
                retry_seconds=retry,
            )

    virtual_run(run())


def test_a_leadership_alone_never_ends() -> None:
    leadership = Leadership.alone()
    leadership.check()
    assert leadership.is_leader
    assert leadership.leading_seconds() >= 0


def test_a_standby_must_not_write() -> None:
    with pytest.raises(NotLeading, match="does not lead"):
        Leadership().check()


def test_every_process_has_an_identity_of_its_own() -> None:
    assert new_identity() != new_identity()


_FAULTS = st.lists(
    st.tuples(st.integers(0, 2), st.none() | st.sampled_from(Fault), st.floats(0.5, 20.0)), min_size=1, max_size=25
)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(faults=_FAULTS, starts=st.lists(st.floats(0, 10), min_size=3, max_size=3))
def test_never_two_leaders_and_always_one_in_the_end(
    faults: list[tuple[int, Fault | None, float]], starts: list[float]
) -> None:
    async def run() -> None:
        server = LeaseServer()
        candidates: dict[int, Candidate] = {}
        processes = [asyncio.create_task(_process(server, candidates, place, starts[place])) for place in range(3)]
        await asyncio.sleep(15)
        for place, fault, pause in faults:
            candidates[place].client.fault = fault
            await asyncio.sleep(pause)
        for made in candidates.values():
            made.client.fault = None
        await asyncio.sleep(RENEW + LEASE + 3 * RETRY)
        assert sum(made.may_write for made in candidates.values()) == 1
        for task in processes:
            task.cancel()
        for ended in await asyncio.gather(*processes, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError), ended

    virtual_run(run())


class _Only(Leadership):
    """A leadership that begins, or is renewed, while another candidate's has not ended, is the defect to find."""

    def __init__(self, candidates: dict[int, Candidate]) -> None:
        super().__init__(renew_seconds=RENEW, clock=asyncio.get_running_loop().time)
        self._candidates = candidates

    def renewed(self, asked_at: float) -> None:
        super().renewed(asked_at)
        writing = [made.identity for made in self._candidates.values() if made.may_write]
        assert len(writing) <= 1, f"two leaders: {writing}"


async def _process(server: LeaseServer, candidates: dict[int, Candidate], place: int, start: float) -> None:
    """A container that is started again whenever its operator ends."""
    await asyncio.sleep(start)
    for count in itertools.count():
        fault = candidates[place].client.fault if count else None
        made = candidates[place] = candidate(server, f"{place}-{count}", leadership=_Only(candidates))
        made.client.fault = fault
        with suppress(LeaseLost):
            await made.task
        await asyncio.sleep(1)


def _lease(holder: str) -> dict[str, Any]:
    return {"metadata": {"name": "operator"}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 1}}
