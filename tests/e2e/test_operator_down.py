"""A job needs the operator for its beginning and its end; in between it may be gone."""

from e2e import nodes, operators, sample, training
from e2e.kube import Kube
from e2e.operators import OPERATORS

# Longer than a standby takes to see that the lease is not renewed.
EPOCHS = 120


def test_training_goes_on_while_its_operators_are_killed_and_inference_follows_when_one_is_back(kube: Kube) -> None:
    kube.apply(sample.job(kube.namespace, epochs=EPOCHS, slow=True))
    training.until_epoch(kube, 2)
    pods = training.uids(kube)

    first, pod = operators.leader()
    nodes.signal(pod, "operator", "KILL")
    second = operators.until_another_leads(first)

    everyone = ("pods", "--selector=app.kubernetes.io/component=operator")
    OPERATORS.run("delete", *everyone, "--grace-period=0", "--force")
    assert kube.get("pod", "qcnn-worker-0")["status"]["phase"] == "Running", "training was over too soon"
    training.until_epoch(kube, EPOCHS)
    third = operators.until_another_leads(second)
    assert len({first, second, third}) == 3

    status = kube.until_condition("qcnn", "InferenceSucceeded")
    assert (status["phase"], status["attempt"], status["restarts"], status["disruptions"]) == ("Succeeded", 0, 0, 0)
    assert training.uids(kube) == pods
