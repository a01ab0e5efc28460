"""A disk of one MiB for a Python program, so that a full disk is a real one.

Three ways, the first that this machine permits:

1. `mount`: a tmpfs of that size in a mount namespace of the program's own (root, or an unprivileged user namespace).
2. `filled`: an existing small tmpfs (a container's /dev/shm), filled by a file but for that size.
3. `shim`: the program's os.write goes to /dev/full, which answers ENOSPC, once that size is written. It is the kernel's
   error but not a full disk, so a warning says that the test ran with less than it should.
"""

import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SIZE = 1024 * 1024
_FILLABLE = 256 * 1024 * 1024
_MOUNT = f'mount -t tmpfs -o size={SIZE} tmpfs "$0" && exec "$@"'


@dataclass(frozen=True)
class SmallDisk:
    """Where the disk is, and how a program must be started to have it."""

    folder: Path
    how: str
    prefix: tuple[str, ...]

    def command(self, *arguments: str) -> list[str]:
        """Returns the command that runs this Python with these arguments and has the small disk at `folder`."""
        return [*self.prefix, *arguments]


@contextmanager
def small_disk(folder: Path, ways: tuple[str, ...] = ("mount", "filled", "shim")) -> Iterator[SmallDisk]:
    """Provides a small disk at a folder (an empty one) or, where that can't be, at another."""
    for way in ways:
        with _WAYS[way](folder) as disk:
            if disk is not None:
                yield disk
                return
    raise RuntimeError(f"no small disk can be had here: tried {', '.join(ways)}")


@contextmanager
def _mounted(folder: Path) -> Iterator[SmallDisk | None]:
    prefix = ("unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNT, str(folder))
    try:
        permitted = subprocess.run([*prefix, "true"], capture_output=True, check=False, timeout=60).returncode == 0
    except FileNotFoundError:
        permitted = False
    yield SmallDisk(folder, "mount", (*prefix, sys.executable)) if permitted else None


@contextmanager
def _filled(_: Path) -> Iterator[SmallDisk | None]:
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shutil.disk_usage(shared).total > _FILLABLE:
        yield None
        return
    with tempfile.TemporaryDirectory(dir=shared) as folder, tempfile.NamedTemporaryFile(dir=shared) as filler:
        os.posix_fallocate(filler.fileno(), 0, max(1, shutil.disk_usage(shared).free - SIZE))
        yield SmallDisk(Path(folder), "filled", (sys.executable,))


@contextmanager
def _shimmed(folder: Path) -> Iterator[SmallDisk | None]:
    warnings.warn(
        "no small file system can be mounted or filled here: the full disk is played by /dev/full", stacklevel=2
    )
    yield SmallDisk(folder, "shim", (sys.executable, __file__))


_WAYS = {"mount": _mounted, "filled": _filled, "shim": _shimmed}


def _run_shimmed(script: str, arguments: list[str]) -> None:
    """Runs a Python script; every write that would pass the size goes to /dev/full."""
    full = os.open("/dev/full", os.O_WRONLY)
    write, written = os.write, 0

    def counting_write(descriptor: int, data: bytes) -> int:
        nonlocal written
        if descriptor > 2 and written + len(data) > SIZE:
            return write(full, data)
        count = write(descriptor, data)
        written += count if descriptor > 2 else 0
        return count

    os.write = counting_write
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    _run_shimmed(sys.argv[1], sys.argv[2:])
