"""What people do to a job that runs, with kubectl alone."""

import yaml

from e2e import sample, training
from e2e.kube import Document, Kube
from qmljob_api import names
from qmljob_api.reasons import Reason

EPOCHS = 80


def test_a_second_apply_changes_nothing_and_kubectl_diff_is_empty(kube: Kube) -> None:
    job = sample.waiting(kube.namespace)
    kube.apply(job)
    kube.until_phase("qcnn", "Running")
    before = versions(kube)
    kube.apply(job)
    kube.run("apply", "--server-side", "--force-conflicts", "--filename=-", text=yaml.safe_dump(job))
    assert kube.run("diff", "--filename=-", text=yaml.safe_dump(job)) == ""
    # An edit that changes no pod is followed too; when that is seen, the operator has had its say about the others.
    kube.run("patch", "qmljob", "qcnn", "--type=merge", '--patch={"spec":{"runPolicy":{"backoffLimit":5}}}')
    kube.until_phase("qcnn", "Running")
    assert versions(kube) == before
    assert kube.get("qmljob", "qcnn")["metadata"]["generation"] == 2


def test_a_job_is_suspended_resumed_and_scaled_and_each_time_goes_on_from_its_checkpoint(kube: Kube) -> None:
    kube.apply(sample.job(kube.namespace, epochs=EPOCHS))
    training.until_epoch(kube, 3)
    kube.run("patch", "qmljob", "qcnn", "--type=merge", '--patch={"spec":{"suspend":true}}')
    kube.run("wait", "qmljob/qcnn", "--for=condition=Suspended", "--timeout=60s")
    assert training.uids(kube) == {}
    assert kube.until_phase("qcnn", "Suspended")["ready"] == "0/2"

    kube.run("patch", "qmljob", "qcnn", "--type=merge", '--patch={"spec":{"suspend":false}}')
    resumed_at = training.until_epoch(kube, 6, attempt=1)[0]
    assert resumed_at > 1
    assert kube.until_event("qcnn", Reason.JOB_RESUMED).startswith("Planned restart (attempt 1)")

    kube.run("scale", "qmljob/qcnn", "--replicas=3")
    assert training.until_epoch(kube, EPOCHS, attempt=2)[0] > resumed_at
    assert kube.until_event("qcnn", Reason.SPEC_CHANGED).startswith("Planned restart (attempt 2)")
    kube.run("wait", "qmljob/qcnn", "--for=condition=Succeeded", "--timeout=60s")
    status = kube.get("qmljob", "qcnn")["status"]
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (2, 0, 0)
    assert set(training.uids(kube)) == {f"qcnn-worker-{index}" for index in range(3)}


def versions(kube: Kube) -> Document:
    """Returns the resourceVersion of each object that the operator has made."""
    children = kube.list("pods,services", names.LABEL_JOB)
    return {f"{one['kind']}/{one['metadata']['name']}": one["metadata"]["resourceVersion"] for one in children}
