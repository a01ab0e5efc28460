"""One process of a local run: started in a session of its own, read line by line, ended with everything it started."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from qmljob.local.lines import LineSplitter
from qmljob.local.plan import ProcessPlan
from qmljob_api.progress import PROGRESS_VERSION

TAIL_LINES = 10
_TAIL_WIDTH = 500
_UNREAD_LINES = 1_000
_DRAIN_SECONDS = 2.0
_LAUNCHER = Path(__file__).with_name("launch.py")


@dataclass(frozen=True)
class Line:
    """A line that a process wrote to its standard output or error."""

    process: "Process"
    text: str


@dataclass(frozen=True)
class Ended:
    """A process ended; everything that it had written was delivered before this.

    `exit_code` is the container's: 128 + n after signal n. `finished_at` is a time of the monotonic clock, in seconds.
    """

    process: "Process"
    exit_code: int
    finished_at: float


@dataclass(frozen=True)
class Interrupted:
    """The user or the system asked the run to stop."""

    signal: int


Event = Line | Ended | Interrupted
Inbox = SimpleQueue[Event]


class Process:
    """A running process. Its lines and its end arrive as events in the inbox; it must be started by the main thread,
    since Linux ends a child when the thread that started it ends.

    Raises:
        OSError: the process can't be started.
    """

    def __init__(self, plan: ProcessPlan, inbox: Inbox, log: Path) -> None:
        self.name = plan.name
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._inbox = inbox
        # A replica that writes faster than a terminal shows must wait, as it would for a pipe, not fill the memory.
        self._unread = threading.Semaphore(_UNREAD_LINES)
        self._lock = threading.Lock()
        self._reaped = False
        self._reading = False
        self._log_failed = False
        self._log = log.open("a", encoding="utf-8", errors="replace")
        launcher = (sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()))
        try:
            self._child = subprocess.Popen(
                (*launcher, *plan.argv),
                env=dict(plan.env),
                cwd=plan.workdir,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except BaseException:
            self._log.close()
            raise
        self.pid = self._child.pid
        reader = threading.Thread(target=self._read, name=f"{plan.name} reader", daemon=True)
        reader.start()
        threading.Thread(target=self._wait, args=(reader,), name=f"{plan.name} waiter", daemon=True).start()

    def signal(self, number: int) -> None:
        """Sends a signal to the process and to everything in its process group; does nothing after its end."""
        with self._lock:
            if not self._reaped:
                self._kill_group(number)

    def accept(self, line: Line) -> None:
        """Notes that a line was taken from the inbox, so that the reader may deliver another."""
        if f'"{PROGRESS_VERSION}"' not in line.text:
            self.tail.append(line.text[:_TAIL_WIDTH])
        self._unread.release()

    def _read(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout, self._log:
            for text in self._lines(self._child.stdout.fileno()):
                self._write_log(text)
                self._unread.acquire()
                self._inbox.put(Line(self, text))

    def _write_log(self, text: str) -> None:
        if self._log_failed:
            return
        try:
            self._log.write(text + "\n")
            self._log.flush()
        except OSError as error:
            # The process must not stop because its log does (a full disk): its own store will say so.
            self._log_failed = True
            self._inbox.put(Line(self, f"[no more of this in the log: {error.strerror}]"))
            self._unread.acquire()

    def _lines(self, descriptor: int) -> Iterator[str]:
        """Yields the lines of the pipe."""
        lines = LineSplitter()
        while True:
            self._reading = True
            chunk = os.read(descriptor, 65_536)
            self._reading = False
            if not chunk:
                break
            yield from lines.feed(chunk)
        yield from lines.finish()

    def _wait(self, reader: threading.Thread) -> None:
        # The process is left a zombie until its group is ended: so long, its id can't belong to anyone else.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        finished_at = time.monotonic()
        with self._lock:
            self._kill_group(signal.SIGKILL)
            code = self._child.wait()
            self._reaped = True
        # The reader ends with the last writer of the pipe. One that left the group to live on must not hold up the run.
        while reader.is_alive():
            reader.join(_DRAIN_SECONDS)
            if self._reading:
                break
        self._inbox.put(Ended(self, 128 - code if code < 0 else code, finished_at))

    def _kill_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)
