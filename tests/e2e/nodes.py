"""What happens on a kind cluster's nodes, which are containers: signals, lost packets, a node that goes down."""

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from e2e.kube import Document, Kube, is_true
from e2e.operators import OPERATORS


def docker(*arguments: str) -> str:
    """Returns what docker prints; its message is the error's where it fails."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr.strip()}"
    return done.stdout.strip()


def signal(pod: Document, container: str, name: str) -> None:
    """Sends a container's first process a signal (`KILL`). From inside of it its kernel would not allow all of them."""
    node = pod["spec"]["nodeName"]
    statuses = {status["name"]: status for status in pod["status"]["containerStatuses"]}
    identity = statuses[container]["containerID"].removeprefix("containerd://")
    inspect = ("crictl", "inspect", "--output=go-template", "--template={{.info.pid}}", identity)
    docker("exec", node, "kill", f"-{name}", docker("exec", node, *inspect))


def kill_api_server(control_plane: str) -> None:
    """Ends the API server by SIGKILL, and waits until the kubelet has started it anew."""
    docker("exec", control_plane, "pkill", "-KILL", "-x", "kube-apiserver")
    _until(lambda: OPERATORS.says("get", "--raw", "/readyz") == "ok", what="the API server answers again")


@contextmanager
def cut(node: str, one: str, *other: str) -> Iterator[Callable[[int], None]]:
    """Drops what a node forwards from and to an address, or between it and another one, until the end of the block.

    Gives a function that waits until so many packets were dropped.
    """
    pairs = [("--source", one, "--destination", *other), ("--source", *other, "--destination", one)]
    if not other:
        pairs = [("--source", one), ("--destination", one)]
    name = f"CUT-{one}"
    rules = ("exec", node, "iptables", "--wait")
    docker(*rules, "--new-chain", name)
    docker(*rules, "--append", name, "--jump", "DROP")
    for pair in pairs:
        docker(*rules, "--insert", "FORWARD", "1", *pair, "--jump", name)

    def dropped(packets: int) -> None:
        def count() -> int:
            rule = docker(*rules, "--list-rules", name, "--verbose").splitlines()[-1]
            return int(re.findall(r"-c (\d+) \d+ -j DROP", rule)[0])

        _until(lambda: count() >= packets, what=f"{packets} packets of {one} are lost")

    try:
        yield dropped
    finally:
        for pair in pairs:
            docker(*rules, "--delete", "FORWARD", *pair, "--jump", name)
        docker(*rules, "--flush", name)
        docker(*rules, "--delete-chain", name)


@contextmanager
def down(node: str) -> Iterator[None]:
    """Cuts a node's power; at the end it is started again, and is Ready.

    It goes right after a sign of life, when Kubernetes takes longest to notice: 50 to 55 s.
    """
    leases = Kube("kube-node-lease")
    renewed_at = leases.get("lease", node)["spec"]["renewTime"]
    leases.until("lease", node, lambda lease: lease["spec"]["renewTime"] != renewed_at, what="renewed", seconds=60)
    docker("kill", node)
    try:
        yield
    finally:
        docker("start", node)
        OPERATORS.until("node", node, lambda found: is_true(found, "Ready"), what="Ready")
        # A replica of the operator may have been there.
        OPERATORS.run("rollout", "status", "deployment/qmljob-operator", "--timeout=120s")


def _until(holds: Callable[[], bool], *, what: str, seconds: float = 120) -> None:
    """Looks again and again until something holds that nothing tells of."""
    again = threading.Event()
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"after {seconds} s it does not hold that {what}"
        again.wait(0.2)
