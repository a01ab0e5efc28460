"""Operators by the hundred: one process has imported everything, and forks an operator for each start.

A fork takes milliseconds where a start takes a second or two of CPU. What comes of it is a process of its own all the
same, with its own memory, log and signals: it can be killed at any time, and nothing of it stays.

    with running_zygote() as zygote:
        OperatorProcess(plane, log, flags, zygote.launch(), kubeconfig).start()

Run as a program (by `running_zygote`) it is the process that forks.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from support.operator_process import Launch, Process
from support.servers import bound

_TESTS = Path(__file__).resolve().parents[2]
_MODULE = "support.chaos.zygote"
_LONGEST = 65536


class ForkedProcess:
    """A process that is not our child, by a file descriptor that stands for it and no other."""

    def __init__(self, descriptor: int) -> None:
        """Takes over the descriptor."""
        self._descriptor = descriptor
        self._code: int | None = None

    def poll(self) -> int | None:
        """Returns 0 once it has ended, however it did; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._code

    def send_signal(self, number: int, /) -> None:
        """Sends a signal; one that has ended takes none."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end. Its exit code is its parent's to know."""
        if self._code is None:
            if not select.select([self._descriptor], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(_MODULE, timeout or 0.0)
            self._code = 0
            os.close(self._descriptor)
        return self._code


class Zygote:
    """The process that forks, from outside."""

    def __init__(self, link: socket.socket) -> None:
        """`link` leads to it."""
        self._link = link
        self._lock = threading.Lock()

    def launch(self, broken: str = "") -> Launch:
        """Returns how an operator is started, from any thread; `broken` names a patch of `support.chaos.broken`."""

        def launch(flags: Sequence[str], kubeconfig: Path, log: Path) -> Process:
            order = {"flags": list(flags), "kubeconfig": str(kubeconfig), "log": str(log), "broken": broken}
            with self._lock:
                self._link.send(json.dumps(order).encode())
                answer, descriptors, _, _ = socket.recv_fds(self._link, _LONGEST, 1)
            if not descriptors:
                raise RuntimeError(f"no operator was started: {answer.decode() or 'the zygote has ended'}")
            return ForkedProcess(descriptors[0])

        return launch


@contextlib.contextmanager
def running_zygote() -> Iterator[Zygote]:
    """Runs a zygote until the block ends, and its operators with it. Start it from the main thread."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "POD_"))}
    path = os.pathsep.join([str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        bound([sys.executable, "-m", _MODULE, str(theirs.fileno())]),
        env=environment | {"PYTHONPATH": path, "KUBECONFIG": os.devnull},
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    try:
        yield Zygote(ours)
    finally:
        ours.close()
        process.kill()
        process.wait()


def serve(link: socket.socket) -> None:
    """Forks an operator for each order, until nobody is there to give one."""
    from qmljob.local.launch import PR_SET_PDEATHSIG
    from support import hurried_operator
    from support.chaos import broken

    hurried_operator.hurry(audits=True)
    import ctypes

    libc = ctypes.CDLL(None)
    gc.collect()
    gc.freeze()  # else the first collection in each child would copy every page
    while order := link.recv(_LONGEST):
        given = json.loads(order)
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
            link.close()
            code = _become_operator(given, broken.PATCHES)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        descriptor = os.pidfd_open(child)
        socket.send_fds(link, [str(child).encode()], [descriptor])
        os.close(descriptor)
        # Those that have ended since the last order; the file descriptors of the others see their end by themselves.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _become_operator(given: dict[str, object], patches: dict[str, object]) -> int:
    import random
    import traceback

    from kubernetes.aio.config import kube_config

    from qmljob_operator import __main__ as program

    file = os.open(str(given["log"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    # The library has read its environment already, when it was imported.
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = str(given["kubeconfig"])
    random.seed(0)  # the jitter of retries: the same in each run
    flags = given["flags"]
    assert isinstance(flags, list)
    sys.argv = ["qmljob_operator", *flags]
    try:
        if given["broken"]:
            patch = patches[str(given["broken"])]
            patch()  # type: ignore[operator]
        return program.main()
    except BaseException:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
