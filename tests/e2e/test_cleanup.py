"""What is left when a job is deleted: what it wrote to its bucket."""

from e2e import sample, training
from e2e.kube import Kube

JOBS = (("ended", 1), ("running", 10_000))


def test_deleting_a_job_that_runs_and_one_that_has_ended_leaves_nothing_behind(kube: Kube) -> None:
    before = kube.everything()
    kube.apply(*(sample.job(kube.namespace, name=name, epochs=epochs) for name, epochs in JOBS))
    kube.until_condition("ended", "InferenceSucceeded")
    training.until_epoch(kube, 2, replica="running-worker-0")
    made = kube.everything() - before
    assert {"qmljob.qml.dev/ended", "job.batch/ended-inference", "pod/ended-worker-0"} <= made
    assert {"qmljob.qml.dev/running", "service/running-worker-1", "pod/running-worker-1"} <= made

    kube.run("delete", "qmljobs", "--all", "--wait=false")
    kube.run("wait", "--for=delete", *sorted(made), "--timeout=90s")
    assert kube.everything() == before
    assert f"{kube.namespace}/ended/qcnn_weights.h5" in kube.bucket(kube.namespace)
