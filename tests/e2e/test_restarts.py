"""A gang that loses a replica starts anew from its checkpoint, and ends where an undisturbed one does."""

from e2e import nodes, sample, training
from e2e.kube import Kube
from qmljob_api.reasons import Reason

EPOCHS = 80


def test_after_a_deleted_pod_and_a_killed_process_training_ends_with_the_weights_of_an_undisturbed_run(
    kube: Kube,
) -> None:
    jobs = [sample.job(kube.namespace, name=name, epochs=EPOCHS) for name in ("qcnn", "undisturbed")]
    kube.apply(*jobs)
    training.until_epoch(kube, 3)
    kube.run("delete", "pod", "qcnn-worker-1", "--wait=false")

    assert training.until_epoch(kube, EPOCHS // 2, attempt=1)[0] > 1
    status = kube.get("qmljob", "qcnn")["status"]
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (1, 0, 1)
    said = kube.until_event("qcnn", Reason.DISRUPTED)
    assert said.startswith("Restart, not charged (attempt 1"), said
    assert "qcnn-worker-1 was taken away (its pod was deleted)" in said

    nodes.signal(kube.get("pod", "qcnn-worker-1"), "trainer", "KILL")
    assert training.until_epoch(kube, EPOCHS, attempt=2)[0] > EPOCHS // 2
    said = kube.until_event("qcnn", Reason.REPLICA_FAILED)
    assert said.startswith("Restart 1 of 3 (attempt 2"), said
    assert "qcnn-worker-1 exited with 137" in said
    status = kube.until_phase("qcnn", "Succeeded")
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (2, 1, 1)
    failure = status["lastFailure"]
    assert (failure["replica"], failure["exitCode"], failure["attempt"]) == ("qcnn-worker-1", 137, 1)
    assert failure["reason"] == Reason.REPLICA_FAILED

    undisturbed = kube.until_phase("undisturbed", "Succeeded")
    assert undisturbed["attempt"] == 0
    assert training.weights(kube) == training.weights(kube, job="undisturbed")
