"""SIGTERM: a request to stop at the next point where all workers can stop together."""

import os
import signal
import socket
import sys
import threading
from types import FrameType

from qmljob_api.exitcodes import ExitCode

GRACE_MARGIN_SECONDS = 2.0
"""How long before the end of the grace period the process gives up on a clean stop."""


class StopRequest:
    """Becomes `requested` at SIGTERM, and ends the process by itself shortly before the grace period does.

    A Python signal handler runs only between bytecodes of the main thread, which may be inside a long graph call or a
    collective that hangs. So the C-level handler's wakeup file descriptor is watched by a thread.

    Args:
        grace_seconds: time between SIGTERM and SIGKILL (a pod's terminationGracePeriodSeconds).
    """

    def __init__(self, grace_seconds: float) -> None:
        self._grace = grace_seconds
        self._requested = threading.Event()
        self._can_stop_cleanly = False
        self._receive, self._send = socket.socketpair()
        self._send.setblocking(False)

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    def install(self) -> None:
        """Takes SIGTERM over; main thread only.

        To be called again after the strategy is created: TensorFlow's preemption notifier installs a handler of its
        own then, which swallows the signal.
        """
        signal.signal(signal.SIGTERM, _ignore)
        if signal.set_wakeup_fd(self._send.fileno(), warn_on_full_buffer=False) == -1:
            threading.Thread(target=self._watch, name="stop-request", daemon=True).start()

    def training(self, can_stop_cleanly: bool) -> None:
        """Tells whether a loop now looks at `requested`; where none does, SIGTERM ends the process at once."""
        self._can_stop_cleanly = can_stop_cleanly

    def _watch(self) -> None:
        while signal.SIGTERM not in self._receive.recv(64):
            pass
        self._requested.set()
        limit = max(0.0, self._grace - GRACE_MARGIN_SECONDS) if self._can_stop_cleanly else 0.0
        threading.Event().wait(limit)
        print("stopped by SIGTERM without a new checkpoint; a restart resumes from the last one", file=sys.stderr)
        sys.stderr.flush()
        os._exit(ExitCode.PREEMPTED)


def _ignore(number: int, frame: FrameType | None) -> None:
    """A Python-level handler must exist for the wakeup file descriptor to be written to."""
