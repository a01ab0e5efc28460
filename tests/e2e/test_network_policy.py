"""Who can open a connection to a replica, on a network that enforces NetworkPolicies: tried, before and after."""

import copy
import time
from collections.abc import Iterator

import pytest

from e2e import sample
from e2e.kube import Document, Kube
from e2e.operators import OPERATORS
from qmljob_api import names

RENDEZVOUS, PROFILER = "2222", "2223"
SERVE = f"""
import socket, threading
from signal import *
def serve(port):
    with socket.create_server(("", port)) as server:
        while True:
            server.accept()[0].close()
for port in ({RENDEZVOUS}, {PROFILER}):
    threading.Thread(target=serve, args=(port,), daemon=True).start()
pthread_sigmask(SIG_BLOCK, [SIGTERM]); sigwait([SIGTERM]); raise SystemExit(75)
"""
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3).close()
    print("reached")
except TimeoutError:
    print("dropped")
except OSError as error:
    print("refused", error)
"""
PATIENCE_SECONDS = 60


def serving(namespace: str) -> Document:
    """A job whose replicas take connections on both ports."""
    job = sample.waiting(namespace)
    job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]["command"] = ["python", "-c", SERVE]
    return job


def pod(name: str, labels: dict[str, str]) -> Document:
    """A pod of somebody else, which serves on the same ports and obeys the restricted standard."""
    spec: Document = copy.deepcopy(serving("x")["spec"]["replicaSpecs"]["worker"]["template"]["spec"])
    del spec["topologySpreadConstraints"]
    spec["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    spec["terminationGracePeriodSeconds"] = 0
    spec["automountServiceAccountToken"] = False
    (container,) = spec["containers"]
    container["securityContext"] |= {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


@pytest.fixture
def elsewhere(kube: Kube) -> Iterator[Kube]:
    """Another namespace, with a pod."""
    other = Kube(f"{kube.namespace}-other")
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    other.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other.namespace, "labels": label}})
    other.apply(pod("stranger", {}))
    yield other
    other.run("delete", "namespace", other.namespace, "--wait=false")


@pytest.fixture
def no_operator(cluster: None) -> Iterator[None]:
    """Whatever a test does to the operator, it runs again at the end."""
    yield
    scale_operator(2)
    OPERATORS.run("rollout", "status", "deployment/qmljob-operator", "--timeout=120s")


def scale_operator(replicas: int) -> None:
    OPERATORS.run("scale", "deployment/qmljob-operator", f"--replicas={replicas}")
    if not replicas:
        selector = "--selector=app.kubernetes.io/component=operator"
        OPERATORS.run("wait", "pods", selector, "--for=delete", "--timeout=60s")


def connects(kube: Kube, source: str, host: str, port: str) -> str:
    return kube.run("exec", source, "--", "python", "-c", CONNECT, host, port).strip()


def until_connects(kube: Kube, source: str, host: str, port: str, wanted: str) -> str:
    """Tries until the answer is the wanted one, since nodes follow the policy's coming and going a moment later."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (answer := connects(kube, source, host, port)) != wanted and time.monotonic() < deadline:
        pass
    return answer


def address(kube: Kube, name: str) -> str:
    running = kube.until("pod", name, lambda found: found["status"].get("phase") == "Running", what="running")
    return str(running["status"]["podIP"])


def test_only_its_own_replicas_reach_a_replica_and_its_tensorboard_the_profiler(
    kube: Kube, elsewhere: Kube, no_operator: None
) -> None:
    tensorboard = {names.LABEL_JOB: "qcnn", names.LABEL_COMPONENT: names.TENSORBOARD_COMPONENT}
    kube.apply(serving(kube.namespace), pod("stranger", {}), pod("tensorboard", tensorboard))
    kube.until_phase("qcnn", "Running")
    replica = address(kube, "qcnn-worker-0")
    strangers = [(kube, "stranger"), (elsewhere, "stranger")]
    for where, name in (*strangers, (kube, "tensorboard")):
        address(where, name)

    # The network carries such connections: to a pod that no policy guards.
    for where, name in strangers:
        assert connects(where, name, address(kube, "stranger"), RENDEZVOUS) == "reached"
    check_guarded(kube, strangers, replica)

    # Without the policy everybody is let in, which shows what it was that kept them out.
    scale_operator(0)
    kube.run("delete", "networkpolicy", "qcnn")
    for where, name in strangers:
        assert until_connects(where, name, replica, RENDEZVOUS, "reached") == "reached"

    scale_operator(2)
    kube.until("networkpolicy", "qcnn", lambda _: True, what="made again")
    for where, name in strangers:
        assert until_connects(where, name, replica, RENDEZVOUS, "dropped") == "dropped"
    check_guarded(kube, strangers, replica)

    status = kube.get("qmljob", "qcnn")["status"]
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (0, 0, 0)
    kube.run("delete", "qmljob", "qcnn", "--wait=true")
    kube.run("wait", "networkpolicy/qcnn", "--for=delete", "--timeout=60s")


def check_guarded(kube: Kube, strangers: list[tuple[Kube, str]], replica: str) -> None:
    for port in (RENDEZVOUS, PROFILER):
        peer = f"qcnn-worker-0.{kube.namespace}.svc"
        assert connects(kube, "qcnn-worker-1", peer, port) == "reached"
        for where, name in strangers:
            assert connects(where, name, replica, port) == "dropped", f"{where.namespace}/{name} to port {port}"
    assert connects(kube, "tensorboard", replica, PROFILER) == "reached"
    assert connects(kube, "tensorboard", replica, RENDEZVOUS) == "dropped"
