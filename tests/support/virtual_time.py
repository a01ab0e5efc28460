"""An event loop whose time jumps to the next timer: tests of hours take milliseconds, and always go the same way.

    assert virtual_run(scenario()) == ...     # as asyncio.run, with loop.time() starting at 0

Nothing that waits for another process, a socket or a thread may run on it: while such a thing is awaited, time jumps.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits: it adds the time that it was asked to wait to a clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every task waits, and no timer is set: nothing would ever happen again")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on the clock of a jumping selector."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jumping.now

    def block(self, seconds: float) -> None:
        """Lets time pass while the loop does nothing else, as a call that blocks it would."""
        self._jumping.now += seconds


def virtual_run(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def virtual_loop() -> VirtualTimeLoop:
    """The running loop, for tests that block it."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop
