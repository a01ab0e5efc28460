"""Whether this operator works: what its probes are told.

`/healthz` is the kubelet's question whether to start the process anew. It is red only for what a new process would
repair: an event loop that was blocked, a queue that stands still, a watch stream that delivers nothing. An API server
that can't be reached is none of these, and neither is time that passes meanwhile: the operator is not ready, but live.

A blocked event loop can't answer at all: the probe then fails by the kubelet's own `timeoutSeconds`. But a loop that is
blocked again and again answers each probe that falls in between, as if nothing were wrong. So a heartbeat measures how
late the loop runs it, and a gap is told for a while after the fact.

`/readyz` says whether this operator could lead: its caches are synced and the API server answers. A standby is ready.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

BEAT_SECONDS = 1.0
BLOCKED_SECONDS = 10.0
"""A gap between two heartbeats that is no longer a busy moment: within it a leader's lease is not renewed either."""
REMEMBER_SECONDS = 20.0
"""How long a gap is told: two of the kubelet's usual probes. One gap alone does not add up to the three that it takes
to end the process, a gap that comes again does."""
STALLED_SECONDS = 120.0
LONGEST_PASS_SECONDS = 300.0

Check: TypeAlias = Callable[[], str | None]
"""Returns what is wrong, on one line, or None."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What the checks ask; each call is cheap and has no effect.

    Attributes:
        queue_stalled_seconds: for how long keys have been waiting while none was handed out.
        longest_pass_seconds: how long the longest pass under way has taken.
        leading_seconds: for how long this process has been leading; 0 if it does not.
        stale_streams: the watch streams that lack something which the API server has.
        unsynced_caches: the caches that have not seen all objects yet.
        api_problem: why the API server can't be reached, on one line; None if it can.
    """

    queue_stalled_seconds: Callable[[], float]
    longest_pass_seconds: Callable[[], float]
    leading_seconds: Callable[[], float]
    stale_streams: Callable[[], Sequence[str]]
    unsynced_caches: Callable[[], Sequence[str]]
    api_problem: Callable[[], str | None]


class Health:
    """Named checks, the heartbeat, and how long the API server has been reached.

    Attributes:
        live: the checks of `/healthz`, by name.
        ready: the checks of `/readyz`, by name.
    """

    def __init__(self, sources: Sources, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins in good health; `clock` gives seconds that never go back."""
        self.live: dict[str, Check] = {
            "event-loop": self._blocked_loop,
            "queue": self._standing_queue,
            "watch-streams": self._stale_streams,
        }
        self.ready: dict[str, Check] = {"caches": self._unsynced_caches, "api-server": sources.api_problem}
        self._sources = sources
        self._clock = clock
        self._beaten_at: float | None = None
        self._gap_seconds = 0.0
        self._gap_until = float("-inf")
        self._unreachable_at = clock()  # Before the first answer nothing may be held against the queue.

    async def beat(self) -> None:
        """The heartbeat: runs until it is cancelled."""
        while True:
            self._pulse()
            self._reached_seconds()
            await asyncio.sleep(BEAT_SECONDS)

    def live_problems(self) -> list[str]:
        """Returns why this process should be started anew, a line each; empty if it should not."""
        return _problems(self.live)

    def ready_problems(self) -> list[str]:
        """Returns why this process could not do its work now, a line each; empty if it could."""
        return _problems(self.ready)

    def _pulse(self) -> None:
        now = self._clock()
        gap = now - self._beaten_at if self._beaten_at is not None else 0.0
        if gap > BLOCKED_SECONDS:
            self._gap_seconds, self._gap_until = gap, now + REMEMBER_SECONDS
        self._beaten_at = now

    def _reached_seconds(self) -> float:
        """For how long the API server has been reached without a break that anybody saw."""
        now = self._clock()
        if self._sources.api_problem() is not None:
            self._unreachable_at = now
        return now - self._unreachable_at

    def _blocked_loop(self) -> str | None:
        now = self._clock()
        # The probe may be answered before the late heartbeat runs.
        if self._beaten_at is not None and now - self._beaten_at > BLOCKED_SECONDS:
            return f"blocked for {now - self._beaten_at:.0f} s"
        if now < self._gap_until:
            return f"was blocked for {self._gap_seconds:.0f} s, {now - self._gap_until + REMEMBER_SECONDS:.0f} s ago"
        return None

    def _standing_queue(self) -> str | None:
        reached = self._reached_seconds()
        # A standby's queue waits for it to lead.
        stalled = min(self._sources.queue_stalled_seconds(), self._sources.leading_seconds(), reached)
        if stalled > STALLED_SECONDS:
            return f"jobs wait, and none was taken up for {stalled:.0f} s"
        longest = min(self._sources.longest_pass_seconds(), reached)
        if longest > LONGEST_PASS_SECONDS:
            return f"a pass over a job has been running for {longest:.0f} s"
        return None

    def _stale_streams(self) -> str | None:
        stale = self._sources.stale_streams()
        if not stale or self._reached_seconds() <= 0:
            return None
        return f"no longer delivered: {', '.join(stale)}"

    def _unsynced_caches(self) -> str | None:
        unsynced = self._sources.unsynced_caches()
        return f"not synced yet: {', '.join(unsynced)}" if unsynced else None


def _problems(checks: dict[str, Check]) -> list[str]:
    answers = ((name, check()) for name, check in checks.items())
    return [f"{name}: {problem}" for name, problem in answers if problem is not None]
