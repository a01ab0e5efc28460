"""A node goes down without a word. A job that waits goes on when it is back; one that may force goes on without it."""

from e2e import nodes, sample, training
from e2e.kube import Document, Kube
from qmljob_api.conditions import ConditionType
from qmljob_api.reasons import Reason

# Some of which are done before the node goes down, in the time between two of its signs of life.
EPOCHS = 120
FORCED = {"forceDeleteUnreachable": True, "unreachableSeconds": 10}


def test_a_job_waits_for_a_node_that_went_down_or_does_without_it_if_it_may(kube: Kube) -> None:
    waits = sample.job(kube.namespace, epochs=EPOCHS, slow=True)
    forces = sample.job(kube.namespace, name="forces", epochs=EPOCHS, slow=True)
    forces["spec"]["runPolicy"] = FORCED
    kube.apply(waits, forces)
    training.until_epoch(kube, 3)
    training.until_epoch(kube, 3, replica="forces-worker-0")
    node = kube.get("pod", "qcnn-worker-1")["spec"]["nodeName"]
    lost = next(name for name in ("forces-worker-0", "forces-worker-1") if kube.node_of(name) == node)
    with nodes.down(node):
        # When Kubernetes has noticed, the pod has its grace, and then some more time.
        waiting = kube.until_condition("qcnn", ConditionType.WAITING_FOR_NODE)
        assert training.until_epoch(kube, EPOCHS, replica="forces-worker-0", attempt=1)[0] > 1
        check_ended(kube.until_phase("forces", "Succeeded"), lost, node)
        assert kube.node_of(lost) != node
    said = next(one["message"] for one in waiting["conditions"] if one["type"] == ConditionType.WAITING_FOR_NODE)
    assert said.startswith(f"qcnn-worker-1 can't be deleted: node {node} does not answer."), said
    assert kube.until_event("qcnn", Reason.NODE_UNREACHABLE) == said

    assert training.until_epoch(kube, EPOCHS, attempt=1)[0] > 1
    check_ended(kube.until_phase("qcnn", "Succeeded"), "qcnn-worker-1", node)
    assert training.weights(kube) == training.weights(kube, job="forces")


def check_ended(status: Document, replica: str, node: str) -> None:
    """The node is told as the cause of one restart, which nobody is charged."""
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (1, 0, 1)
    [ended] = status["history"]
    assert (ended["reason"], ended["replica"], ended["charged"]) == (Reason.DISRUPTED, replica, False)
    assert node in ended["message"]
