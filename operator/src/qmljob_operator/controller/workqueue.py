"""Which jobs wait for a pass, which have one, and which come again later.

The semantics are those of client-go's work queue, which every Kubernetes controller relies on:

- A key that waits already is not queued twice: many events make one pass.
- A key that a worker holds is never given to a second one. If it is added meanwhile, it is handed out again after
  `done`: whatever that event was about may have come too late for the pass under way.
- Every `add` is followed by a `get` that begins after it.

All methods but `get` are synchronous, so none of them can be interrupted half-way; the queue belongs to one event loop.
"""

import asyncio
import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

RETRY_BASE_SECONDS = 0.5
RETRY_CAP_SECONDS = 60.0
RETRY_JITTER = 0.5
"""The share of a delay that is drawn: jobs that failed together, in an outage, must not all come back at once."""

_DOUBLINGS = 16  # More than the cap allows, and far from an overflow of 2.0**n.

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """A job's place in a cluster; as text `namespace/name`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Returns `namespace/name`."""
        return f"{self.namespace}/{self.name}"


class WorkQueue(Generic[Key]):
    """Keys that wait for a worker, in the order in which they came.

    `clock` gives seconds and never goes back; without one it is the running loop's, which also times the delays.
    `draw` gives numbers in [0, 1) for the jitter.
    """

    def __init__(self, *, clock: Callable[[], float] | None = None, draw: Callable[[], float] = random.random) -> None:
        """Makes an empty queue."""
        self._clock = clock
        self._draw = draw
        self._order: asyncio.Queue[Key] = asyncio.Queue()
        self._ready: dict[Key, float] = {}  # the keys in _order, and since when they wait
        self._held: dict[Key, float] = {}  # the keys that workers hold, and since when
        self._again: set[Key] = set()  # added while held
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._handed_out_at = float("-inf")

    def add(self, key: Key) -> None:
        """Asks for a pass over a key, as soon as a worker is free."""
        if key in self._held:
            self._again.add(key)
        elif key not in self._ready:
            self._ready[key] = self._now()
            self._order.put_nowait(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Asks for a pass over a key in `seconds`, unless a timer of it fires earlier; neither cancels an `add`."""
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        pending = self._timers.get(key)
        if pending is not None:
            if pending.when() <= due:
                return
            pending.cancel()
        self._timers[key] = loop.call_at(due, self._fire, key)

    def forget_timer(self, key: Key) -> None:
        """Takes back what `add_after` and `retry` asked for: a pass that begins states its next time anew."""
        pending = self._timers.pop(key, None)
        if pending is not None:
            pending.cancel()

    async def get(self) -> Key:
        """Waits for a key and hands it out; who gets it calls `done` in the end, whatever happens.

        A cancelled call loses no key. (Cancel the task for that; `asyncio.wait_for` may drop what it was handed.)
        """
        key = await self._order.get()
        del self._ready[key]
        self._held[key] = self._handed_out_at = self._now()
        return key

    def done(self, key: Key) -> None:
        """Gives a key back, and queues it again if it was added meanwhile.

        Raises:
            KeyError: no worker holds this key.
        """
        del self._held[key]
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def retry(self, key: Key) -> float:
        """Asks for another pass after a failed one, later with each failure in a row; returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(RETRY_CAP_SECONDS, RETRY_BASE_SECONDS * 2.0 ** min(failures, _DOUBLINGS))
        delay *= 1 - RETRY_JITTER * self._draw()
        self.add_after(key, delay)
        return delay

    def failures(self, key: Key) -> int:
        """Returns how many passes over a key have failed in a row."""
        return self._failures.get(key, 0)

    def forget(self, key: Key) -> None:
        """Ends a row of failures: the next one is retried after the shortest delay again."""
        self._failures.pop(key, None)

    @property
    def depth(self) -> int:
        """How many keys wait for a worker."""
        return len(self._ready)

    def oldest_wait_seconds(self) -> float:
        """How long the key at the head has been waiting for a worker; 0 if none waits."""
        return self._now() - next(iter(self._ready.values())) if self._ready else 0.0

    def stalled_seconds(self) -> float:
        """For how long keys have been waiting and none was handed out; 0 if none waits.

        A long queue that workers keep working through is not stalled, however long its last key has to wait.
        """
        return min(self.oldest_wait_seconds(), self._now() - self._handed_out_at)

    def longest_run_seconds(self) -> float:
        """How long the worker that has held its key the longest has held it; 0 if all are idle."""
        return self._now() - min(self._held.values()) if self._held else 0.0

    def _fire(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)

    def _now(self) -> float:
        return self._clock() if self._clock is not None else asyncio.get_running_loop().time()
