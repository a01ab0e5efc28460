"""What may happen to a job that trains, each with what it must lead to.

A disturbance is a context manager: it strikes on entry, and at the end whatever it broke is mended. What it leads to
(`Effect`) is what the operator promises, so a schedule of disturbances says beforehand how often the job restarts, and
what of that is charged.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum

from e2e import nodes, operators, sample
from e2e.kube import Document, Kube
from qmljob_api.conditions import ConditionType

CONTROL_PLANE = "qmljob-control-plane"
STORE = Kube("qmljob-store")
DROPPED = 5
"""Packets that a cut has to swallow before it is mended: TCP repeats one after 0.2 s, then each time twice as late."""


class Effect(Enum):
    """What a disturbance leads to."""

    NOTHING = "training goes on"
    CHARGED = "the gang restarts, and that is charged"
    DISRUPTED = "the gang restarts, and a disruption is counted"
    LOST_PEERS = "the gang restarts, and nothing is counted"


@dataclass(frozen=True)
class Disturbance:
    """One of the things that may happen.

    Attributes:
        name: what happens, in a few words.
        strike: does it to a job's worker (of a name); undone at the end of the block.
        effect: what it leads to.
        says: what the job tells of it, in part, as a pattern; `{worker}` is the worker that it strikes.
        seconds: how long it takes until training goes on, roughly: schedules are filled by it.
        epochs: how many epochs may pass meanwhile.
    """

    name: str
    strike: Callable[[Kube, str], AbstractContextManager[None]]
    effect: Effect
    says: str
    seconds: float
    epochs: int = 12


@contextmanager
def kill_process(kube: Kube, worker: str) -> Iterator[None]:
    """A worker's program dies."""
    nodes.signal(kube.get("pod", worker), "trainer", "KILL")
    yield


@contextmanager
def freeze_process(kube: Kube, worker: str) -> Iterator[None]:
    """A worker's program stands still, and its connections stay open."""
    nodes.signal(kube.get("pod", worker), "trainer", "STOP")
    yield


@contextmanager
def delete_pod(kube: Kube, worker: str) -> Iterator[None]:
    """Somebody deletes a worker's pod."""
    kube.run("delete", "pod", worker, "--wait=false")
    yield


@contextmanager
def fill_disk(kube: Kube, worker: str) -> Iterator[None]:
    """A worker's folder gets more than it may hold, and its node evicts it."""
    program = f"open('/tmp/full', 'wb').write(bytes({2 * sample.FULL_AT_MIB} << 20))"
    kube.says("exec", worker, "--container=trainer", "--", "python", "-c", program)  # which may not see its end
    yield


@contextmanager
def stop_node(kube: Kube, worker: str) -> Iterator[None]:
    """A worker's node loses its power, and comes back when the job waits for it."""
    with nodes.down(kube.get("pod", worker)["spec"]["nodeName"]):
        kube.until_condition("qcnn", ConditionType.WAITING_FOR_NODE)
        yield


@contextmanager
def cut_workers_apart(kube: Kube, worker: str) -> Iterator[None]:
    """No packet passes between two workers any more. Their next pods have other addresses."""
    one, other = (kube.get("pod", name) for name in ("qcnn-worker-0", "qcnn-worker-1"))
    node = kube.get("pod", worker)["spec"]["nodeName"]
    with nodes.cut(node, address(one), address(other)):
        for pod in (one, other):
            kube.until("pod", pod["metadata"]["name"], lambda found: not runs(found), what="at its end")
        yield


@contextmanager
def cut_bucket_off(_kube: Kube, _worker: str) -> Iterator[None]:
    """No packet gets to the bucket, until some were lost."""
    [pod] = STORE.list("pods", "app.kubernetes.io/name=gcs")
    with nodes.cut(CONTROL_PLANE, address(pod)) as dropped:
        dropped(DROPPED)
    yield


@contextmanager
def kill_api_server(_kube: Kube, _worker: str) -> Iterator[None]:
    """The API server dies, and comes back."""
    nodes.kill_api_server(CONTROL_PLANE)
    yield


@contextmanager
def kill_operator(_kube: Kube, _worker: str) -> Iterator[None]:
    """The operator that leads dies. Nobody waits for another one to lead: what comes next may happen before that."""
    _, pod = operators.leader()
    nodes.signal(pod, "operator", "KILL")
    yield


def address(pod: Document) -> str:
    """A pod's IP address."""
    ip: str = pod["status"]["podIP"]
    return ip


def runs(pod: Document) -> bool:
    """Whether a pod's program has not ended."""
    return bool(pod["status"]["phase"] == "Running")


# Where no operator looks at the time, the pod is gone, and its peers have answered the same SIGTERM.
_TAKEN = r"{{worker}} was taken away \({}\)|exited with 75 \(preempted\)"
ALL = (
    Disturbance("a process is killed", kill_process, Effect.CHARGED, "{worker} exited with 137", 40),
    Disturbance("a process is frozen", freeze_process, Effect.LOST_PEERS, r"exited with 69 \(lost peer\)", 110),
    Disturbance("a pod is deleted", delete_pod, Effect.DISRUPTED, _TAKEN.format("its pod was deleted"), 40),
    Disturbance("a disk is full", fill_disk, Effect.DISRUPTED, _TAKEN.format(".*"), 55),
    Disturbance("a node is stopped", stop_node, Effect.DISRUPTED, _TAKEN.format(".*"), 130),
    Disturbance(
        "the network between two workers is cut",
        cut_workers_apart,
        Effect.LOST_PEERS,
        r"exited with 69 \(lost peer\)",
        55,
    ),
    Disturbance("the bucket is cut off", cut_bucket_off, Effect.NOTHING, "", 30),
    Disturbance("the API server is killed", kill_api_server, Effect.NOTHING, "", 30, epochs=120),
    Disturbance("the operator is killed", kill_operator, Effect.NOTHING, "", 10),
)
