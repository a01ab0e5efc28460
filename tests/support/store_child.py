"""A process that writes to a folder's store and stops at a chosen system call, so that a test can kill it there.

    python -m support.store_child LOCATION NAME SIZE POINT

It writes SIZE bytes of "n" with `put`. At the point it prints `at POINT` and waits for its standard input; when that
ends, it goes on and prints `done`. Points: `temporary` (made, not yet locked), `half` (half of the data written),
`written` (before the data's fsync), `replace` (the temporary file is complete, the object still the old one),
`replaced` (the object is the new one, the folder not yet synced).
"""

import fcntl
import os
import sys
from collections.abc import Callable
from typing import Any

from qmljob_training.stores import open_store

POINTS = ("temporary", "half", "written", "replace", "replaced")


def main() -> None:
    """Writes, with a stop."""
    location, name, size, point = sys.argv[1:]
    _stop_at(point)
    open_store(location).put(name, b"n" * int(size))
    print("done", flush=True)


def _stop_at(point: str) -> None:
    def stop() -> None:
        print(f"at {point}", flush=True)
        sys.stdin.read()

    match point:
        case "temporary":
            _wrap(fcntl, "flock", before=stop)
        case "half":
            os.write = _half_written(os.write, stop)
        case "written":
            _wrap(os, "fsync", before=stop)
        case "replace":
            _wrap(os, "replace", before=stop)
        case "replaced":
            _wrap(os, "replace", after=stop)
        case _:
            raise SystemExit(f"no such point: {point}")


def _half_written(write: Callable[[int, Any], int], stop: Callable[[], None]) -> Callable[[int, Any], int]:
    def half(descriptor: int, data: Any) -> int:
        count = write(descriptor, data[: max(1, len(data) // 2)])
        os.write = write
        stop()
        return count

    return half


def _wrap(
    module: Any, name: str, *, before: Callable[[], None] | None = None, after: Callable[[], None] | None = None
) -> None:
    """Makes the first call of a function stop before or after."""
    original = getattr(module, name)

    def once(*arguments: Any, **named: Any) -> Any:
        setattr(module, name, original)
        if before:
            before()
        result = original(*arguments, **named)
        if after:
            after()
        return result

    setattr(module, name, once)


if __name__ == "__main__":
    main()
