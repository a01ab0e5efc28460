"""Waits for the gang before TensorFlow does, and says who is missing.

TensorFlow waits for a missing peer in silence, without limit, and holds Python's interpreter lock meanwhile: no thread
could report and no signal handler run. So each replica first listens on its own port in plain Python, until it has
reached every peer once; then TensorFlow's server takes the port over. A peer that looks a moment later finds that.
"""

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from qmljob_training.errors import LostPeerError
from qmljob_training.rendezvous import Peer, Rendezvous, bound

FIRST_REPORT_SECONDS = 3.0
REPORT_SECONDS = 10.0
_POLL_SECONDS = 0.2
_CONNECT_SECONDS = 1.0
_BACKLOG = 4096
_PROBES = 32
_SHOWN = 3


def wait_for_peers(rendezvous: Rendezvous, limit_seconds: float, say: Callable[[str], None]) -> None:
    """Returns when every peer has been reached.

    Args:
        rendezvous: this replica and its peers.
        limit_seconds: how long to wait; 0 means without limit.
        say: writes one line of log.

    Raises:
        ConfigurationError: this replica's own port is taken.
        LostPeerError: the limit has passed.
    """
    if rendezvous.port is None or not rendezvous.peers:
        return
    started = time.monotonic()
    report_after = FIRST_REPORT_SECONDS
    with bound(rendezvous.port, "TF_CONFIG's port") as listener:
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        missing = _unreachable(rendezvous.peers, listener)
        while missing:
            waited = time.monotonic() - started
            if limit_seconds and waited > limit_seconds:
                late = f"{_listed(missing)} did not come within {limit_seconds:.0f} s"
                raise LostPeerError(f"{late}: start it, then try again")
            if waited > report_after:
                report_after = waited + REPORT_SECONDS
                say(f"waiting for {_listed(missing)}, {waited:.0f} s")
            time.sleep(_POLL_SECONDS)
            missing = _unreachable(missing, listener)


def _unreachable(peers: tuple[Peer, ...], listener: socket.socket) -> tuple[Peer, ...]:
    """Returns the peers that don't answer. All are asked at once: one that is slow must not delay the others."""
    with ThreadPoolExecutor(max_workers=_PROBES) as pool:
        answers = list(pool.map(lambda peer: _answers(peer.address), peers))
    # Probes of others wait in our backlog, and would fill it.
    with suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
    return tuple(peer for peer, answered in zip(peers, answers, strict=True) if not answered)


def _answers(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS):
            return True
    except (OSError, UnicodeError):  # UnicodeError: the name has a label that DNS can't have
        return False


def _listed(peers: tuple[Peer, ...]) -> str:
    shown = ", ".join(f"{peer.name} at {peer.address}" for peer in peers[:_SHOWN])
    return shown if len(peers) <= _SHOWN else f"{shown} and {len(peers) - _SHOWN} more"
