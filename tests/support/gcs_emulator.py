"""A bucket emulator that enforces generation preconditions: fake-gcs-server, built from its pinned Go module."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.go_programs import GoModule, built_programs
from support.servers import bound, free_port

MODULE = "github.com/fsouza/fake-gcs-server"
_PROGRAM = GoModule("fake-gcs-server", MODULE, {"fake-gcs-server": MODULE})
_START_SECONDS = 60.0
_START_TRIES = 5


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
    return built_programs(_PROGRAM) / "fake-gcs-server"


@contextmanager
def running_emulator(log: Path) -> Iterator[Emulator]:
    """Runs an empty emulator on a free loopback port, its output in the file `log`, until the block ends."""
    binary = emulator_binary()
    for _ in range(_START_TRIES):
        port = free_port()
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


def _start(binary: Path, port: int) -> subprocess.Popen[str]:
    arguments = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    command = bound([str(binary), *arguments])
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


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
