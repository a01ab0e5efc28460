"""Loopback ports for the replicas of one attempt."""

import random
import socket
from pathlib import Path

_LOWEST = 15_000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_EPHEMERAL_START = 32_768
_TRIES_PER_PORT = 200


class NoFreePortError(Exception):
    """No port could be found; the machine is out of them."""


def free_ports(count: int, generator: random.Random | None = None) -> tuple[int, ...]:
    """Returns `count` distinct ports that nothing listens on now.

    They lie below the kernel's ephemeral range. A port inside it could be taken by any outgoing connection before the
    replica listens; worse, a peer that retries a connection to it is, sooner or later, given the same port as its own
    source and connects to itself. The wildcard address is tried, because TensorFlow's server listens on it.

    Raises:
        NoFreePortError: after many tries.
    """
    generator = generator or random.SystemRandom()
    highest = max(_ephemeral_start() - 1, _LOWEST + 1_000)
    found: set[int] = set()
    for _ in range(count * _TRIES_PER_PORT):
        if len(found) == count:
            break
        candidate = generator.randint(_LOWEST, highest)
        if candidate not in found and _is_free(candidate):
            found.add(candidate)
    if len(found) < count:
        raise NoFreePortError(
            f"found {len(found)} of {count} free ports between {_LOWEST} and {highest}; end what holds them"
        )
    return tuple(found)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _ephemeral_start() -> int:
    try:
        return int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_EPHEMERAL_START
