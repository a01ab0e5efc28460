"""A node goes down without a word: the job says so, waits for it, and goes on when it is back."""

from e2e import nodes, sample, training
from e2e.kube import Kube
from qmljob_api.conditions import ConditionType
from qmljob_api.reasons import Reason

# Some of which are done before the node goes down, in the time between two of its signs of life.
EPOCHS = 160


def test_a_job_waits_for_a_node_that_went_down_and_its_return_restarts_the_gang_uncharged(kube: Kube) -> None:
    kube.apply(sample.job(kube.namespace, epochs=EPOCHS))
    training.until_epoch(kube, 3)
    node = kube.get("pod", "qcnn-worker-1")["spec"]["nodeName"]
    with nodes.down(node):
        # When Kubernetes has noticed, the pod has its grace, and then some more time.
        waiting = kube.until_condition("qcnn", ConditionType.WAITING_FOR_NODE)
    said = next(one["message"] for one in waiting["conditions"] if one["type"] == ConditionType.WAITING_FOR_NODE)
    assert said.startswith(f"qcnn-worker-1 can't be deleted: node {node} does not answer."), said
    assert kube.until_event("qcnn", Reason.NODE_UNREACHABLE) == said

    assert training.until_epoch(kube, EPOCHS, attempt=1)[0] > 1
    status = kube.until_phase("qcnn", "Succeeded")
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (1, 0, 1)
    [ended] = status["history"]
    assert (ended["reason"], ended["replica"], ended["charged"]) == (Reason.DISRUPTED, "qcnn-worker-1", False)
    assert node in ended["message"]
