"""The processes that run now: started together, watched together, ended together."""

import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from signal import SIGKILL, SIGTERM

from qmljob.local.plan import ProcessPlan
from qmljob.local.process import Ended, Inbox, Interrupted, Line, Process

Listener = Callable[[str, str], None]
"""Called with the name of a process and a line that it wrote."""


class Gang:
    """Processes whose events arrive in one inbox. Used by one thread, the main one."""

    def __init__(self, inbox: Inbox, listener: Listener) -> None:
        self._inbox = inbox
        self._listener = listener
        self._running: dict[str, Process] = {}
        self.interrupted: int | None = None
        """The last signal by which someone asked for a stop."""

    def start(self, plan: ProcessPlan, log: Path) -> Process:
        """Starts a process. Raises OSError where it can't be started."""
        process = Process(plan, self._inbox, log)
        self._running[plan.name] = process
        return process

    def is_running(self) -> bool:
        """Whether some process has not ended."""
        return bool(self._running)

    def wait(self, until: float | None) -> Ended | Interrupted | None:
        """Shows lines until a process ends or the user interrupts; returns None when the time `until` has come.

        `until` is a time of the monotonic clock, in seconds; None waits without limit.
        """
        while True:
            left = None if until is None else until - time.monotonic()
            try:
                event = self._inbox.get(timeout=left) if left is None or left > 0 else self._inbox.get_nowait()
            except Empty:
                return None
            if not isinstance(event, Line):
                if isinstance(event, Ended):
                    self._running.pop(event.process.name, None)
                else:
                    self.interrupted = event.signal
                return event
            event.process.accept(event)
            self._listener(event.process.name, event.text)
            if left is not None and left <= 0:
                return None

    def stop(self, grace_seconds: float) -> list[Ended]:
        """Ends every process: SIGTERM, then SIGKILL after the grace or at the next interrupt. Returns their ends."""
        ends: list[Ended] = []
        self._signal(SIGTERM)
        until: float | None = time.monotonic() + grace_seconds
        while self._running:
            event = self.wait(until)
            if isinstance(event, Ended):
                ends.append(event)
            elif isinstance(event, Interrupted) or (until is not None and time.monotonic() >= until):
                self._signal(SIGKILL)
                until = None
        return ends

    def linger(self, seconds: float) -> list[Ended]:
        """Lets processes end by themselves for a while. Returns the ends that came; an interrupt cuts it short."""
        ends: list[Ended] = []
        until = time.monotonic() + seconds
        while self._running:
            event = self.wait(until)
            if isinstance(event, Ended):
                ends.append(event)
            elif isinstance(event, Interrupted) or time.monotonic() >= until:
                break
        return ends

    def kill(self) -> None:
        """Ends every process at once, and shows nothing more of them."""
        self._signal(SIGKILL)
        listener, self._listener = self._listener, _ignore
        while self._running:
            self.wait(None)
        self._listener = listener

    def _signal(self, number: int) -> None:
        for process in self._running.values():
            process.signal(number)


def _ignore(name: str, text: str) -> None:
    """Listens to nothing."""
