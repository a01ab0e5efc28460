"""Red is what a new process would repair, and nothing else."""

import asyncio
from dataclasses import dataclass, field

import pytest

from qmljob_operator.controller.health import (
    BLOCKED_SECONDS,
    LONGEST_PASS_SECONDS,
    REMEMBER_SECONDS,
    STALLED_SECONDS,
    Health,
    Sources,
)
from support.virtual_time import virtual_loop, virtual_run


@dataclass
class World:
    """What the checks ask, as values to set."""

    now: float = 1000.0
    stalled: float = 0.0
    longest: float = 0.0
    leading: float = 0.0
    stale: list[str] = field(default_factory=list)
    unsynced: list[str] = field(default_factory=list)
    api: str | None = None

    def health(self) -> Health:
        sources = Sources(
            queue_stalled_seconds=lambda: self.stalled,
            longest_pass_seconds=lambda: self.longest,
            leading_seconds=lambda: self.leading,
            stale_streams=lambda: self.stale,
            unsynced_caches=lambda: self.unsynced,
            api_problem=lambda: self.api,
        )
        return Health(sources, clock=lambda: self.now)

    def settled(self) -> Health:
        """A health that has seen the API server answer for an hour."""
        health = self.health()
        self.now += 3600
        return health


LONG = 10_000.0


def test_an_operator_without_problems_is_live_and_ready() -> None:
    health = World().settled()
    assert (health.live_problems(), health.ready_problems()) == ([], [])


@pytest.mark.parametrize(
    ("world", "problem"),
    [
        pytest.param(
            World(stalled=STALLED_SECONDS + 1, leading=LONG),
            "queue: jobs wait, and none was taken up for 121 s",
            id="a queue that stands still",
        ),
        pytest.param(
            World(longest=LONGEST_PASS_SECONDS + 1, leading=LONG),
            "queue: a pass over a job has been running for 301 s",
            id="a pass without end",
        ),
        pytest.param(
            World(stale=["pods", "services"]),
            "watch-streams: no longer delivered: pods, services",
            id="streams that deliver nothing",
        ),
    ],
)
def test_what_a_new_process_repairs_is_red(world: World, problem: str) -> None:
    health = world.settled()
    assert health.live_problems() == [problem]
    assert health.ready_problems() == []


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(World(stalled=LONG, leading=0), id="a standby's queue"),
        pytest.param(World(stalled=LONG, leading=100), id="the queue that a new leader finds"),
        pytest.param(World(stalled=STALLED_SECONDS, leading=LONG), id="a queue that was worked on two minutes ago"),
        pytest.param(World(longest=LONGEST_PASS_SECONDS, leading=LONG), id="a slow pass"),
        pytest.param(World(unsynced=["pods"]), id="caches that are not synced"),
    ],
)
def test_what_needs_patience_is_green(world: World) -> None:
    assert world.settled().live_problems() == []


def test_an_api_server_out_of_reach_means_not_ready_but_live() -> None:
    world = World(stalled=LONG, longest=LONG, leading=LONG, stale=["pods"], api="connection refused")
    health = world.settled()
    assert health.live_problems() == []
    assert health.ready_problems() == ["api-server: connection refused"]


def test_time_without_the_api_server_does_not_count_afterwards() -> None:
    world = World(stalled=LONG, longest=LONG, leading=LONG, api="connection refused")
    health = world.settled()
    assert health.live_problems() == []
    world.api = None
    world.now += STALLED_SECONDS - 1
    assert health.live_problems() == []
    world.now += 2
    assert health.live_problems() == ["queue: jobs wait, and none was taken up for 121 s"]
    world.stalled = 0
    world.now += LONGEST_PASS_SECONDS
    assert health.live_problems() == ["queue: a pass over a job has been running for 421 s"]


def test_an_outage_between_two_probes_is_seen_by_the_heartbeat() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        world = World(stalled=LONG, leading=LONG)
        health = world.health()
        beating = asyncio.create_task(health.beat())
        for _ in range(100):
            world.now = 1000 + loop.time()
            world.api = "timed out" if 50 < loop.time() < 60 else None
            await asyncio.sleep(2)
        assert health.live_problems() == ["queue: jobs wait, and none was taken up for 140 s"]
        beating.cancel()

    virtual_run(run())


def test_caches_that_are_not_synced_are_named() -> None:
    assert World(unsynced=["qmljobs", "pods"]).settled().ready_problems() == ["caches: not synced yet: qmljobs, pods"]


def test_a_blocked_event_loop_is_told_after_the_fact_and_then_forgotten() -> None:
    async def run() -> None:
        loop = virtual_loop()
        health = Health(_quiet(), clock=loop.time)
        assert health.live_problems() == []  # The heartbeat has not begun.
        beating = asyncio.create_task(health.beat())
        await asyncio.sleep(100.25)  # a quarter of a second after a beat
        loop.block(BLOCKED_SECONDS + 5)
        # This is what a probe hears whose answer is made before the late heartbeat …
        assert health.live_problems() == ["event-loop: blocked for 15 s"]
        await asyncio.sleep(5)
        # … and what it hears after it.
        assert health.live_problems() == ["event-loop: was blocked for 15 s, 5 s ago"]
        await asyncio.sleep(REMEMBER_SECONDS)
        assert health.live_problems() == []
        beating.cancel()

    virtual_run(run())


def test_a_busy_event_loop_is_not_a_blocked_one() -> None:
    async def run() -> None:
        loop = virtual_loop()
        health = Health(_quiet(), clock=loop.time)
        beating = asyncio.create_task(health.beat())
        for _ in range(20):
            await asyncio.sleep(1)
            loop.block(BLOCKED_SECONDS - 2)
            assert health.live_problems() == []
        beating.cancel()

    virtual_run(run())


def test_a_loop_that_is_blocked_again_and_again_is_red_at_every_probe() -> None:
    async def run() -> None:
        loop = virtual_loop()
        health = Health(_quiet(), clock=loop.time)
        beating = asyncio.create_task(health.beat())
        await asyncio.sleep(1)
        for _ in range(10):
            loop.block(BLOCKED_SECONDS + 1)
            await asyncio.sleep(3)
            assert health.live_problems() != []
        beating.cancel()

    virtual_run(run())


def test_checks_of_ones_own_are_told_by_their_names() -> None:
    health = World().settled()
    health.live["disk"] = lambda: "full"
    health.ready["moon"] = lambda: None
    assert health.live_problems() == ["disk: full"]
    assert health.ready_problems() == []


def _quiet() -> Sources:
    return Sources(
        queue_stalled_seconds=lambda: 0.0,
        longest_pass_seconds=lambda: 0.0,
        leading_seconds=lambda: 0.0,
        stale_streams=tuple,
        unsynced_caches=tuple,
        api_problem=lambda: None,
    )
