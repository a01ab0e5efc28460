"""Every event is followed by a pass that began after it, and no job ever has two passes at once."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob_operator.controller.workqueue import RETRY_CAP_SECONDS, JobKey, WorkQueue
from support.virtual_time import virtual_run

A, B, C = (JobKey("team", name) for name in "abc")


def scenario(test: Callable[[], Coroutine[object, object, None]]) -> Callable[[], None]:
    """Lets a coroutine function be a test, in virtual time."""

    def run() -> None:
        virtual_run(test())

    run.__doc__ = test.__doc__
    return run


def now() -> float:
    return asyncio.get_running_loop().time()


async def hands_out(queue: WorkQueue[JobKey]) -> tuple[JobKey, float]:
    """The next key and the time at which it came; the key is given back."""
    key = await queue.get()
    queue.done(key)
    return key, now()


async def is_idle(queue: WorkQueue[JobKey], seconds: float = 10_000.0) -> bool:
    """Whether the queue hands out nothing for so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            queue.done(await queue.get())
            return False
    return True


def test_a_key_reads_as_namespace_and_name() -> None:
    assert str(A) == "team/a"


@scenario
async def test_keys_come_in_the_order_in_which_they_were_added() -> None:
    queue: WorkQueue[JobKey] = WorkQueue()
    for key in (B, A, C, A):
        queue.add(key)
    assert queue.depth == 3
    assert [(await hands_out(queue))[0] for _ in range(3)] == [B, A, C]


@scenario
async def test_many_events_of_a_waiting_key_make_one_pass() -> None:
    queue: WorkQueue[JobKey] = WorkQueue()
    for _ in range(5):
        queue.add(A)
    assert await hands_out(queue) == (A, 0)
    assert await is_idle(queue)


@scenario
async def test_an_event_during_a_pass_makes_one_more_pass_after_it() -> None:
    queue: WorkQueue[JobKey] = WorkQueue()
    queue.add(A)
    held = await queue.get()
    queue.add(A)
    queue.add(A)
    assert queue.depth == 0
    assert await is_idle(queue, 100)
    queue.done(held)
    assert await hands_out(queue) == (A, 100)
    assert await is_idle(queue)


@scenario
async def test_an_event_after_a_pass_began_and_before_it_ended_is_not_lost_to_a_timer() -> None:
    queue: WorkQueue[JobKey] = WorkQueue()
    queue.add(A)
    held = await queue.get()
    queue.add_after(A, 5)
    await asyncio.sleep(8)
    queue.done(held)
    assert await hands_out(queue) == (A, 8)


@scenario
async def test_the_earliest_timer_wins_whatever_the_order() -> None:
    for delays in ((30, 20), (20, 30)):
        queue: WorkQueue[JobKey] = WorkQueue()
        start = now()
        for delay in delays:
            queue.add_after(A, delay)
        assert await hands_out(queue) == (A, start + 20)
        queue.add_after(A, 100)
        assert await hands_out(queue) == (A, start + 120), "the one that was replaced fired too"
        assert await is_idle(queue)


@scenario
async def test_an_add_does_not_cancel_a_timer() -> None:
    queue: WorkQueue[JobKey] = WorkQueue()
    queue.add_after(A, 20)
    queue.add(A)
    assert await hands_out(queue) == (A, 0)
    assert await hands_out(queue) == (A, 20)


@scenario
async def test_a_forgotten_timer_lets_a_later_one_stand() -> None:
    queue: WorkQueue[JobKey] = WorkQueue()
    queue.add_after(A, 20)
    queue.forget_timer(A)
    queue.forget_timer(B)
    queue.add_after(A, 30)
    assert await hands_out(queue) == (A, 30)
    assert await is_idle(queue)


@pytest.mark.parametrize("seconds", [0.0, -3.0])
def test_a_time_that_is_over_means_now(seconds: float) -> None:
    async def run() -> None:
        queue: WorkQueue[JobKey] = WorkQueue()
        queue.add_after(A, seconds)
        assert queue.depth == 1

    virtual_run(run())


@scenario
async def test_retries_come_later_each_time_up_to_a_minute_and_start_anew_when_forgotten() -> None:
    queue: WorkQueue[JobKey] = WorkQueue(draw=lambda: 0.0)
    delays = []
    for _ in range(10):
        delays.append(queue.retry(A))
        before = now()
        assert await hands_out(queue) == (A, pytest.approx(before + delays[-1]))
    assert delays == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert queue.retry(B) == 0.5
    queue.forget(A)
    assert queue.retry(A) == 0.5


@given(st.integers(0, 3000), st.floats(0, 1, exclude_max=True))
@settings(derandomize=True, deadline=None)
def test_jitter_only_shortens_a_delay_and_at_most_by_half(failures: int, drawn: float) -> None:
    async def run() -> None:
        queue: WorkQueue[JobKey] = WorkQueue(draw=lambda: drawn)
        plain: WorkQueue[JobKey] = WorkQueue(draw=lambda: 0.0)
        for _ in range(min(failures, 20)):
            queue.retry(A)
            plain.retry(A)
        delay, full = queue.retry(A), plain.retry(A)
        assert full / 2 <= delay <= full <= RETRY_CAP_SECONDS

    virtual_run(run())


def test_a_thousand_failures_in_a_row_do_not_overflow() -> None:
    async def run() -> None:
        queue: WorkQueue[JobKey] = WorkQueue(draw=lambda: 0.0)
        assert [queue.retry(A) for _ in range(2000)][-1] == RETRY_CAP_SECONDS

    virtual_run(run())


@scenario
async def test_the_ages_of_waiting_and_held_keys() -> None:
    queue: WorkQueue[JobKey] = WorkQueue()
    assert (queue.oldest_wait_seconds(), queue.stalled_seconds(), queue.longest_run_seconds()) == (0, 0, 0)
    queue.add(A)
    await asyncio.sleep(3)
    queue.add(B)
    await asyncio.sleep(4)
    assert queue.oldest_wait_seconds() == queue.stalled_seconds() == 7
    first = await queue.get()
    assert queue.longest_run_seconds() == 0
    await asyncio.sleep(5)
    assert (queue.oldest_wait_seconds(), queue.stalled_seconds(), queue.longest_run_seconds()) == (9, 5, 5)
    await queue.get()
    await asyncio.sleep(1)
    assert (queue.oldest_wait_seconds(), queue.stalled_seconds(), queue.longest_run_seconds()) == (0, 0, 6)
    queue.done(first)
    assert queue.longest_run_seconds() == 1


@scenario
async def test_a_long_queue_that_is_worked_through_is_not_stalled() -> None:
    queue: WorkQueue[JobKey] = WorkQueue()
    for index in range(1000):
        queue.add(JobKey("team", str(index)))
    for _ in range(999):
        await asyncio.sleep(1)
        queue.done(await queue.get())
        assert queue.stalled_seconds() == 0
    assert queue.oldest_wait_seconds() == 999


def test_the_clock_can_be_given() -> None:
    async def run() -> None:
        time = 100.0
        queue: WorkQueue[JobKey] = WorkQueue(clock=lambda: time)
        queue.add(A)
        time = 130.0
        assert queue.oldest_wait_seconds() == 30

    virtual_run(run())


@scenario
async def test_giving_back_what_nobody_holds_is_an_error() -> None:
    queue: WorkQueue[JobKey] = WorkQueue()
    with pytest.raises(KeyError):
        queue.done(A)


@dataclass
class Witness:
    """What the workers of a drawn history saw; times order the events, and a count those at the same time."""

    count: int = 0
    adds: dict[JobKey, list[int]] = field(default_factory=dict)
    gets: dict[JobKey, list[int]] = field(default_factory=dict)
    held: set[JobKey] = field(default_factory=set)

    def tick(self) -> int:
        self.count += 1
        return self.count


_KEYS = st.sampled_from([A, B, C])
_PAUSE = st.sampled_from([0.0, 0.1, 1.0, 5.0])
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add_after", "retry", "forget", "forget_timer", "cancel"]),
        _KEYS,
        st.sampled_from([0.0, 0.4, 2.0, 30.0]),
        _PAUSE,
    ),
    max_size=40,
)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(steps=_STEPS, runs=st.lists(_PAUSE, min_size=1, max_size=10), workers=st.integers(1, 3))
def test_no_event_is_lost_and_no_key_has_two_workers_in_any_history(
    steps: list[tuple[str, JobKey, float, float]], runs: list[float], workers: int
) -> None:
    witness = Witness()

    async def history() -> None:
        queue: WorkQueue[JobKey] = WorkQueue(draw=lambda: 0.5)
        tasks = [asyncio.create_task(_work(queue, witness, runs)) for _ in range(workers)]
        for operation, key, delay, pause in steps:
            _play(queue, witness, operation, key, delay)
            if operation == "cancel":  # In this moment the key may have been handed to this very worker.
                tasks.pop(0).cancel()
                tasks.append(asyncio.create_task(_work(queue, witness, runs)))
            await asyncio.sleep(pause)
        await asyncio.sleep(1000)  # Every timer has fired, every pass has ended.
        assert queue.depth == 0
        assert queue.longest_run_seconds() == 0
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert ended is None or isinstance(ended, asyncio.CancelledError), ended

    virtual_run(history())
    for key, adds in witness.adds.items():
        assert max(witness.gets.get(key, [0])) > max(adds), f"an event of {key} was followed by no pass"
    for key, gets in witness.gets.items():
        assert len(gets) <= len(witness.adds[key]), f"{key} had a pass for which nobody asked"


async def _work(queue: WorkQueue[JobKey], witness: Witness, runs: list[float]) -> None:
    while True:
        key = await queue.get()
        try:
            assert key not in witness.held, f"two workers hold {key}"
            witness.held.add(key)
            witness.gets.setdefault(key, []).append(witness.tick())
            await asyncio.sleep(runs[witness.count % len(runs)])
        finally:
            witness.held.discard(key)
            queue.done(key)


def _play(queue: WorkQueue[JobKey], witness: Witness, operation: str, key: JobKey, delay: float) -> None:
    match operation:
        case "add_after":
            queue.add_after(key, delay)
        case "retry":
            queue.retry(key)
        case "forget":
            queue.forget(key)
            return
        case "forget_timer":
            # As a pass does at its start: the timer goes, and the pass is what it asked for.
            queue.forget_timer(key)
            queue.add(key)
        case _:
            queue.add(key)
    witness.adds.setdefault(key, []).append(witness.tick())
