"""Says who is missing while TensorFlow waits for the gang in silence."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

from qmljob_api.exitcodes import ExitCode

from qmljob_training.rendezvous import Peer

REPORT_SECONDS = 4.0
_PROBE_SECONDS = 1.0


class PeerWatch:
    """A context in which missing peers are reported, and which ends the process when a limit has passed.

    The caller is blocked inside TensorFlow's C++ code, which can't be interrupted: hence a thread, and `os._exit`.

    Args:
        peers: whom to wait for.
        limit_seconds: after this long the process ends with LOST_PEER; 0 means never.
        say: writes one line.
    """

    def __init__(self, peers: tuple[Peer, ...], limit_seconds: float, say: Callable[[str], None]) -> None:
        self._missing = list(peers)
        self._limit = limit_seconds
        self._say = say
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peer-watch", daemon=True)

    def __enter__(self) -> "PeerWatch":
        if self._missing:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        started = time.monotonic()
        while not self._done.wait(REPORT_SECONDS):
            waited = time.monotonic() - started
            self._missing = [peer for peer in self._missing if not _listens(peer.address)]
            if self._done.is_set():
                return
            self._report(waited)
            if self._limit and waited > self._limit:
                self._say(f"gave up waiting for the gang after {self._limit:.0f} s; start all replicas, then try again")
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(ExitCode.LOST_PEER)

    def _report(self, waited: float) -> None:
        for peer in self._missing:
            self._say(f"waiting for {peer.name} at {peer.address}, {waited:.0f} s")
        if not self._missing:
            self._say(f"every peer answers; waiting for the gang to connect, {waited:.0f} s")


def _listens(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=_PROBE_SECONDS):
            return True
    except OSError:
        return False
