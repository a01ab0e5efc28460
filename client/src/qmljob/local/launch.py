"""Becomes a replica's program, after it has asked the kernel to end it together with the supervisor.

Run as `python -I -S launch.py SUPERVISOR_PID PROGRAM ARGUMENT…`. A start of its own, and not a `preexec_fn`: that one
runs Python between fork and exec, which may deadlock in a process with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Executes `arguments[1:]` in this process; `arguments[0]` is the process id of the supervisor."""
    supervisor = int(arguments[0])
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:  # it ended before the kernel was asked
            sys.exit(128 + signal.SIGKILL)
    try:
        os.execv(arguments[1], arguments[1:])
    except OSError as error:
        sys.exit(f"{arguments[1]}: can't be started: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
