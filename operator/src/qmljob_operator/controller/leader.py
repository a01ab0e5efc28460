"""One operator acts, the others stand by: leadership through a Lease, by the election of kubernetes' own client.

What may be relied on:

- A process is the leader only while its last renewal is younger than the renew deadline. The age counts from before the
  renewal was sent, so it is over before any other process may think so. `Leadership.check` looks at the clock alone: it
  refuses a write even where the event loop was blocked and no timer could end the leadership.
- The lease outlives the renew deadline (15 s against 10 s by default): a write that was sent in the last moment has the
  difference to arrive in. Whatever comes later than that meets the preconditions of its own.
- Who loses the lease has its work cancelled first, and then never leads again: the process ends and starts anew.
- Who stops by itself gives the lease back, and a standby takes over at its next look at it.
"""

import asyncio
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from kubernetes.aio.client.api_client import ApiClient

from qmljob_operator.controller.lease import Election, Lock

RENEW_SECONDS = 10.0
LEASE_SECONDS = 15
RETRY_SECONDS = 2.0
STOP_SECONDS = 10.0
"""How long the work of a leader may take to end after it was cancelled. Work that takes longer is left behind, with its
writes refused, and the lease is not given back but runs out."""

_LEADING = "this operator leads"

logger = logging.getLogger(__name__)


class NotLeading(Exception):
    """This process must not write: it is not the leader, or can't be sure that it still is."""


class LeaseLost(Exception):
    """The lease was not renewed in time, or somebody else holds it; the process should end and start anew."""


def boot_clock() -> float:
    """Seconds that no setting of the wall clock changes, and that go on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def new_identity() -> str:
    """Returns a name for this process that no other one has: a container that restarts keeps its host's name."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"


class Leadership:
    """Whether this process may write, by the age of the last renewal of its lease."""

    def __init__(self, *, renew_seconds: float = RENEW_SECONDS, clock: Callable[[], float] = boot_clock) -> None:
        """Begins as a standby. `renew_seconds` is the age at which a renewal no longer counts."""
        self.renew_seconds = renew_seconds
        self.clock = clock
        self._since: float | None = None
        self._renewed_at = 0.0

    @classmethod
    def alone(cls) -> "Leadership":
        """A leadership without a lease, for the only operator of a cluster: it never ends."""
        leadership = cls(renew_seconds=float("inf"))
        leadership.renewed(leadership.clock())
        return leadership

    @property
    def is_leader(self) -> bool:
        """Whether this process leads at this moment."""
        return self.remaining_seconds() > 0

    def check(self) -> None:
        """Lets a write pass.

        Raises:
            NotLeading: this process is not the leader, or its last renewal is too old to be sure.
        """
        if self._since is None:
            raise NotLeading("this operator does not lead: it must not write")
        if not self.is_leader:
            age = self.clock() - self._renewed_at
            raise NotLeading(f"the lease was last renewed {age:.1f} s ago: another operator may lead by now")

    def remaining_seconds(self) -> float:
        """For how long this process leads if no renewal succeeds; 0 if it does not lead."""
        if self._since is None:
            return 0.0
        return max(0.0, self._renewed_at + self.renew_seconds - self.clock())

    def leading_seconds(self) -> float:
        """For how long this process has been leading; 0 if it does not."""
        return self.clock() - self._since if self._since is not None and self.is_leader else 0.0

    def renewed(self, asked_at: float) -> None:
        """Notes a renewal, or the beginning, by the time of the clock at which it was asked for."""
        self._renewed_at = asked_at
        if self._since is None:
            self._since = asked_at

    def end(self) -> None:
        """Ends the leadership: no check passes from now on."""
        self._since = None


async def lead(
    api_client: ApiClient,
    leadership: Leadership,
    *,
    namespace: str,
    name: str,
    identity: str,
    on_started: Callable[[], Coroutine[Any, Any, None]],
    lease_seconds: int = LEASE_SECONDS,
    retry_seconds: float = RETRY_SECONDS,
) -> None:
    """Waits for the lease `namespace/name`, runs `on_started` as its leader and keeps the lease meanwhile.

    Returns when `on_started` has returned; raises what it raises. Then, and when this call is cancelled, the lease is
    given back. `lease_seconds` is how long others respect a renewal; `retry_seconds` is the time between two looks at
    the lease, and between two renewals. `leadership.renew_seconds` lies between these two.

    Raises:
        LeaseLost: the lease was lost. `on_started` was cancelled and has ended, unless that took it STOP_SECONDS.
        ValueError: the times do not fit each other.
    """
    # A third of the deadline: a call on a connection that is dead leaves time for one on a new connection.
    lock = Lock(name, namespace, identity, api_client, call_seconds=leadership.renew_seconds / 3)
    await _Candidate(lock, leadership, lease_seconds, retry_seconds).run(on_started)


class _Candidate:
    """A process that wants to lead: it waits, leads, and stops.

    The library's own `run` is not used: it counts the renew deadline from a time after the last renewal, goes on
    renewing when the work has failed, does not wait for the work that it cancels, and an exception leaves it running.
    """

    def __init__(self, lock: Lock, leadership: Leadership, lease_seconds: int, retry_seconds: float) -> None:
        self._lock = lock
        self._leadership = leadership
        self._retry_seconds = retry_seconds
        self._told = ""
        self._election = Election(lock, lease_seconds, leadership.renew_seconds, retry_seconds, clock=leadership.clock)

    async def run(self, on_started: Callable[[], Coroutine[Any, Any, None]]) -> None:
        tasks: list[asyncio.Task[Any]] = []
        try:
            await self._acquire()
            work = asyncio.create_task(on_started(), name="leader's work")
            renewal = asyncio.create_task(self._renew(), name="lease renewal")
            tasks = [work, renewal]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._stop(tasks)
        failure = work.exception() if work.done() and not work.cancelled() else None
        if not renewal.cancelled():
            raise LeaseLost(renewal.result()) from failure
        if isinstance(failure, NotLeading):  # A write saw the end of the leadership before the renewal did.
            raise LeaseLost(str(failure)) from failure
        work.result()

    async def _acquire(self) -> None:
        while True:
            asked_at = self._leadership.clock()
            if await self._election.try_acquire_or_renew():
                self._leadership.renewed(asked_at)
                self._tell(_LEADING)
                return
            self._tell(f"standing by: {self._election.other_holder} leads")
            await asyncio.sleep(self._retry_seconds)

    def _tell(self, news: str) -> None:
        """Logs who leads, or what keeps this process from it: when that changes, not at every look."""
        problem = self._lock.problem
        if (problem or news) != self._told:
            self._told = problem or news
            logger.log(logging.WARNING if problem else logging.INFO, "%s", self._told)

    async def _renew(self) -> str:
        """Keeps the lease as long as that succeeds; returns how it was lost."""
        leadership = self._leadership
        try:
            while True:
                await asyncio.sleep(min(self._retry_seconds, leadership.remaining_seconds()))
                asked_at = leadership.clock()
                try:
                    async with asyncio.timeout(leadership.remaining_seconds()):
                        renewed = await self._election.try_acquire_or_renew()
                except TimeoutError:
                    renewed = False
                if not leadership.is_leader:
                    cause = self._lock.problem or "this process could not run"
                    return f"the lease was not renewed for {leadership.renew_seconds:g} s: {cause}"
                if renewed:
                    leadership.renewed(asked_at)
                elif self._election.other_holder:
                    return f"{self._election.other_holder} holds the lease"
                self._tell(_LEADING)
        finally:
            leadership.end()

    async def _stop(self, tasks: list["asyncio.Task[Any]"]) -> None:
        """Ends the work, then the renewals, then the lease, each only after the one before."""
        stopped, lost = True, False
        if tasks:
            work, renewal = tasks
            work.cancel()
            _, late = await asyncio.wait([work], timeout=STOP_SECONDS)
            stopped, lost = not late, renewal.done()
            renewal.cancel()
            await asyncio.wait([renewal])
        if not stopped:
            logger.error("the leader's work did not end within %g s after it was cancelled", STOP_SECONDS)
        elif not lost:
            await self._lock.release()
