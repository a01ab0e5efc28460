"""The tutorial's flow, with real training in real pods: what the README promises."""

import pytest

from e2e import sample
from e2e.kube import Kube, is_true
from qmljob_api.progress import InferenceResult, Progress, parse_progress, parse_result

EPOCHS = 8


def test_two_pods_on_two_nodes_train_and_inference_reports_the_validation_loss_that_training_ended_with(
    kube: Kube,
) -> None:
    kube.apply(sample.job(kube.namespace, epochs=EPOCHS))
    kube.until_phase("qcnn", "Running")
    nodes = {pod["spec"]["nodeName"] for pod in kube.list("pods", "qml.dev/job=qcnn,qml.dev/role=worker")}
    assert len(nodes) == 2
    kube.run("wait", "qmljob/qcnn", "--for=condition=Succeeded", "--timeout=180s")
    status = kube.until_condition("qcnn", "InferenceSucceeded")

    trained = last_progress(kube.run("logs", "qcnn-worker-0"))
    evaluated = reported(kube.run("logs", "job/qcnn-inference"))
    assert (trained.epoch, status["progress"]["epoch"], status["restarts"]) == (EPOCHS, EPOCHS, 0)
    assert evaluated.mse == pytest.approx(trained.val_loss, abs=1e-6)
    assert status["results"]["mse"] == pytest.approx(trained.val_loss, abs=1e-6)
    assert status["progress"]["valLoss"] == pytest.approx(trained.val_loss, abs=1e-6)

    left = kube.bucket(f"{kube.namespace}/qcnn/")
    assert {f"{kube.namespace}/qcnn/qcnn_weights.{kind}" for kind in ("h5", "json")} <= left
    assert any(f"{kube.namespace}/qcnn/logs/" in name and "tfevents" in name for name in left)

    manual = sample.inference(kube.namespace)
    kube.apply(manual)
    name = manual["metadata"]["name"]
    kube.until("job", name, lambda found: is_true(found, "Complete"), what="complete")
    assert reported(kube.run("logs", f"job/{name}")) == evaluated


def last_progress(log: str) -> Progress:
    lines = [progress for line in log.splitlines() if (progress := parse_progress(line)) is not None]
    assert lines, log
    return lines[-1]


def reported(log: str) -> InferenceResult:
    results = [result for line in log.splitlines() if (result := parse_result(line)) is not None]
    assert len(results) == 1, log
    return results[0]
