"""Servers that tests start: on free loopback ports, bound to the life of the test run, ended by their process id."""

import itertools
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from qmljob.local import launch

_LASTING_START, _LASTING = 20000, 12000


def bound(command: Sequence[str]) -> list[str]:
    """Returns the command that runs `command`, in the same process, and ends when the thread that starts it does.

    So a test run that is killed leaves no server behind. Start it from the main thread.
    """
    return [sys.executable, "-I", "-S", str(Path(launch.__file__)), str(os.getpid()), *command]


def free_port() -> int:
    """Returns a port that was free a moment ago; another process may take it, so be ready to try another one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def lasting_ports() -> Iterator[int]:
    """Yields free ports that nobody is given by chance: they lie below those that the kernel gives to connections.

    For servers that start late, or often: a port of `free_port` may have become a connection's own by then.
    """
    for number in itertools.cycle(range(_LASTING)):
        port = _LASTING_START + (os.getpid() * 61 + number) % _LASTING
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        yield port
