"""What happens to a kind cluster's nodes, which are containers: a process killed on one, a node that goes down."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.kube import Document, Kube, is_true
from e2e.operators import OPERATORS


def docker(*arguments: str) -> str:
    """Returns what docker prints; its message is the error's where it fails."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr.strip()}"
    return done.stdout.strip()


def kill(pod: Document, container: str) -> None:
    """Ends a container's first process by SIGKILL. From inside of the container its kernel would not allow that."""
    node = pod["spec"]["nodeName"]
    statuses = {status["name"]: status for status in pod["status"]["containerStatuses"]}
    identity = statuses[container]["containerID"].removeprefix("containerd://")
    inspect = ("crictl", "inspect", "--output=go-template", "--template={{.info.pid}}", identity)
    docker("exec", node, "kill", "-KILL", docker("exec", node, *inspect))


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
