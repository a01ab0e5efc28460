"""SIGTERM: a request to stop at the next point where all workers can stop together.

A Python signal handler runs only between bytecodes of the main thread, which may be inside a long graph call or a
collective that hangs; and TensorFlow's preemption notifier installs a handler of its own, which swallows the signal.
So SIGTERM is blocked in every thread, and one thread takes it with sigwait: no handler ever runs.
"""

import os
import signal
import sys
import threading

from qmljob_api.exitcodes import ExitCode

GRACE_MARGIN_SECONDS = 2.0
"""How long before the end of the grace period the process gives up on a clean stop."""


def block_sigterm() -> None:
    """Keeps SIGTERM pending for StopRequest. To be called before any other thread is there: they inherit it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


class StopRequest:
    """Becomes `requested` at SIGTERM, and ends the process by itself shortly before the grace period does.

    Args:
        grace_seconds: time between SIGTERM and SIGKILL (a pod's terminationGracePeriodSeconds).
    """

    def __init__(self, grace_seconds: float) -> None:
        self._grace = grace_seconds
        self._requested = threading.Event()
        self._looked_at = False

    @property
    def requested(self) -> bool:
        """Whether SIGTERM has come."""
        return self._requested.is_set()

    def watch(self) -> None:
        """Begins to wait for the signal."""
        threading.Thread(target=self._wait, name="stop-request", daemon=True).start()

    def looked_at(self) -> None:
        """Says that from now on the program stops, or ends, by itself; before, SIGTERM ends the process at once."""
        self._looked_at = True

    def _wait(self) -> None:
        signal.sigwait({signal.SIGTERM})
        self._requested.set()
        threading.Event().wait(max(0.0, self._grace - GRACE_MARGIN_SECONDS) if self._looked_at else 0.0)
        print("stopped by SIGTERM without a new checkpoint; a restart resumes from the last one", file=sys.stderr)
        sys.stderr.flush()
        os._exit(ExitCode.PREEMPTED)
