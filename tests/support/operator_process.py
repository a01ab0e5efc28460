"""The operator as its Deployment runs it: a process with the rights of its ServiceAccount, and a log to read.

with running_operator(plane, log, namespaces=("team-a",)) as operator:
    operator.kill()      # as a lost node does it
    operator.start()     # what comes after it
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from qmljob_api import names
from support.api_client import LIMIT_SECONDS, Object
from support.audit_log import Record, is_write
from support.control_plane import ControlPlane
from support.servers import bound, free_port

USER = f"system:serviceaccount:{names.OPERATOR_NAMESPACE}:{names.OPERATOR}"
"""Who the operator is to the API server."""
PROGRAM = "qmljob_operator"
HURRIED_PROGRAM = "support.hurried_operator"
_TESTS = Path(__file__).resolve().parents[1]
_BASE = _TESTS.parent / "manifests" / "base"
_LOOK_AGAIN_SECONDS = 0.02
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.M)


def install_operator(plane: ControlPlane) -> None:
    """Makes the operator's namespace, ServiceAccount, rights and admission policy, from the manifests of a cluster."""
    plane.apply(_BASE / "namespace.yaml", _BASE / "permissions.yaml", _BASE / "admission.yaml")
    token = plane.service_account_token(names.OPERATOR_NAMESPACE, names.OPERATOR)
    plane.wait_until("GET", "/api/v1/pods", what="the operator has its rights", token=token)


class Process(Protocol):
    """What is needed of a process; `subprocess.Popen` has it."""

    def poll(self) -> int | None:
        """Returns the exit code, None while it runs."""

    def send_signal(self, sig: int, /) -> None:
        """Sends a signal; one that has ended takes none."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end, and returns the exit code. Raises subprocess.TimeoutExpired."""


Launch: TypeAlias = Callable[[Sequence[str], Path, Path], Process]
"""Starts an operator with flags, a kubeconfig and a file for its output, to which it adds."""


def launch_program(program: str) -> Launch:
    """Returns how a module is started that is an operator. Start it from the main thread: it ends with that thread."""

    def launch(flags: Sequence[str], kubeconfig: Path, log: Path) -> Process:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "POD_"))}
        environment |= {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(_TESTS)}
        command = [sys.executable, "-m", program, *flags]
        with log.open("ab") as file:
            return subprocess.Popen(bound(command), env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    return launch


class OperatorProcess:
    """An operator that can be killed and started again."""

    def __init__(
        self,
        plane: ControlPlane,
        log: Path,
        flags: Sequence[str],
        launch: Launch,
        kubeconfig: Path,
        new_port: Callable[[], int] = free_port,
    ) -> None:
        """`log` takes the output of all its starts; `flags` go without the port, which is a new one each time."""
        self.plane = plane
        self._log = log
        self._flags = list(flags)
        self._launch = launch
        self._kubeconfig = kubeconfig
        self._new_port = new_port
        self._process: Process | None = None
        self.port = 0

    def start(self) -> None:
        """Starts it, and waits until it is ready.

        Raises:
            RuntimeError: it ended instead, or did not become ready; the message has the end of its log.
        """
        self.begin()
        self.await_ready()

    def begin(self) -> None:
        """Starts it, and does not wait."""
        self.port = self._new_port()
        self._process = self._launch([f"--http-port={self.port}", *self._flags], self._kubeconfig, self._log)

    def kill(self) -> None:
        """Ends it without a chance to do anything about it."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Asks it to end, as a Deployment's update does, and returns its exit code."""
        return self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Stops it in the middle of what it does, as a machine that swaps does."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on after `pause`."""
        self._signal(signal.SIGCONT)

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def get(self, path: str, *, seconds: float = LIMIT_SECONDS) -> tuple[int, str]:
        """Returns status and text of `/metrics`, `/healthz` or `/readyz`.

        Raises:
            OSError: there is no answer within so many seconds.
        """
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=seconds) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """Returns the sum of a metric's samples that have these labels."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        samples = _SAMPLE.findall(self.get("/metrics")[1])
        return sum(float(value) for found, own, value in samples if found == name and wanted <= set(own.split(",")))

    def passes(self) -> float:
        """Returns how many passes it has made since its start."""
        return self.metric("qmljob_reconcile_seconds_count")

    def log(self, since: int = 0) -> list[Object]:
        """Returns the lines of its log, of all its starts, from a line on. What is no JSON has the key `raw`."""
        return [_parsed(line) for line in self._log.read_text().splitlines()[since:] if line.strip()]

    def complaints(self, since: int = 0) -> list[Object]:
        """Returns the lines that tell of a bug: errors, tracebacks, and what did not come from its logger."""
        return [line for line in self.log(since) if line.get("level") in {"error", "critical"} or "raw" in line]

    def requests(self, namespace: str | None = None, since: int | None = None) -> list[Record]:
        """Returns the audit records of its requests in a namespace, or everywhere, since a mark."""
        records = self.plane.audit(USER, since)
        return [each for each in records if namespace in {None, (each.get("objectRef") or {}).get("namespace")}]

    def writes(self, namespace: str | None = None, since: int | None = None) -> list[Record]:
        """Returns the audit records of its writes, dry runs aside."""
        return [
            each for each in self.requests(namespace, since) if is_write(each) and "dryRun" not in each["requestURI"]
        ]

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        try:
            return self._process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            raise

    def await_ready(self) -> None:
        """Waits until it is ready.

        Raises:
            RuntimeError: it ended instead, or did not become ready; the message has the end of its log.
        """
        again = threading.Event()
        deadline = time.monotonic() + LIMIT_SECONDS
        said = ""
        while self.running and time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # not listening yet
                status, said = self.get("/readyz")
                if status == 200:
                    return
            again.wait(_LOOK_AGAIN_SECONDS)
        self.kill()
        tail = self._log.read_text()[-2000:]
        raise RuntimeError(
            f"the operator did not become ready ({said.strip() or 'no answer'}); its log ends with:\n{tail}"
        )


@contextlib.contextmanager
def running_operator(
    plane: ControlPlane,
    log: Path,
    *,
    namespaces: Sequence[str] = (),
    flags: Sequence[str] = ("--no-leader-election",),
    program: str = HURRIED_PROGRAM,
    url: str | None = None,
) -> Iterator[OperatorProcess]:
    """Runs an operator, ready, until the block ends.

    Args:
        plane: where; `install_operator` was done there.
        log: the file for its output.
        namespaces: those that it serves; empty: all.
        flags: more flags.
        program: its module.
        url: what it takes for the API server, a proxy for one; without, `plane` itself.
    """
    token = plane.service_account_token(names.OPERATOR_NAMESPACE, names.OPERATOR)
    served = [f"--namespaces={','.join(namespaces)}"] if namespaces else []
    operator = OperatorProcess(
        plane, log, [*served, *flags], launch_program(program), plane.kubeconfig_for(token, url=url)
    )
    operator.start()
    try:
        yield operator
    finally:
        operator.kill()


def _parsed(line: str) -> Object:
    try:
        document = json.loads(line)
    except ValueError:
        return {"raw": line}
    return document if isinstance(document, dict) else {"raw": line}
