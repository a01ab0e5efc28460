"""Advice on thread counts: a job that fits its machine badly runs, but slower than it could."""

import os
import re
from collections.abc import Sequence

_FLAG = re.compile(r"--threads(?:=(.*))?", re.DOTALL)


def available_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of(argv: Sequence[str]) -> int | None:
    """Returns the value of `--threads` in a command line; None where it is absent or not a number above 0."""
    value: str | None = None
    for position, argument in enumerate(argv):
        match = _FLAG.fullmatch(argument)
        if match:
            value = match[1] if match[1] is not None else argv[position + 1] if position + 1 < len(argv) else None
    try:
        threads = int(value or "")
    except ValueError:
        return None
    return threads if threads > 0 else None


def advice(replicas: int, threads: int, cores: int) -> str | None:
    """Returns one sentence on a better number of threads, or None where the number fits.

    A thread more than there are cores makes every collective wait for whoever is not scheduled; fewer than half of
    the cores in use leave work undone. The count is never changed silently: it decides the order of sums, so the
    bits of the weights.
    """
    used = replicas * threads
    if used > cores:
        better = max(1, cores // replicas)
        if better < threads:
            return f"{replicas} x {threads} threads on {cores} cores may wait for each other; --threads {better} fits"
        if replicas > cores:
            return f"{replicas} replicas share {cores} cores and may wait for each other; --replicas {cores} fits"
    better = cores // replicas
    if used * 2 <= cores and better > threads:
        return f"{replicas} x {threads} threads leave cores idle ({cores} are here); --threads {better} could use them"
    return None
