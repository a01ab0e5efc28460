"""What a job says of a cluster that does not take it, and how it goes on when that is put right."""

from typing import Any

from e2e import sample
from e2e.kube import Document, Kube
from qmljob_api.conditions import ConditionType
from qmljob_api.reasons import Reason


def test_an_image_that_does_not_exist_is_named_within_a_minute_and_an_edit_is_followed(kube: Kube) -> None:
    job = sample.waiting(kube.namespace)
    image, container(job)["image"] = container(job)["image"], "localhost:5001/qmljob/nothing:1"
    kube.apply(job)
    said = blocked(kube, Reason.IMAGE_UNAVAILABLE)
    assert said.startswith("qcnn-worker-"), said
    assert "localhost:5001/qmljob/nothing:1" in said
    container(job)["image"] = image
    kube.apply(job)
    assert kube.until_phase("qcnn", "Running")["restarts"] == 0
    assert not holds(kube)


def test_a_quota_that_is_exceeded_is_told_of_and_the_job_runs_once_there_is_room(kube: Kube) -> None:
    kube.apply(quota("1"))
    kube.until("resourcequota", "few", lambda found: "hard" in found.get("status", {}), what="counted")
    kube.apply(sample.waiting(kube.namespace))
    said = blocked(kube, Reason.FORBIDDEN)
    assert "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1" in said
    kube.apply(quota("2"))
    kube.until_phase("qcnn", "Running")
    assert not holds(kube)


def test_a_pod_of_somebody_else_is_left_alone_and_the_job_runs_when_it_is_gone(kube: Kube) -> None:
    job = sample.waiting(kube.namespace)
    template = job["spec"]["replicaSpecs"]["worker"]["template"]
    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    locked = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = {**template["spec"], "securityContext": restricted, "terminationGracePeriodSeconds": 0}
    spec.pop("topologySpreadConstraints")
    spec["containers"] = [{**container(job), "securityContext": locked}]
    metadata: Document = {"name": "qcnn-worker-1", "labels": {"app": "of-somebody-else"}}
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    theirs = kube.get("pod", "qcnn-worker-1")["metadata"]["uid"]

    kube.apply(job)
    said = blocked(kube, Reason.NAME_TAKEN)
    assert said.startswith("Pod qcnn-worker-1 exists and has no owner"), said
    assert kube.get("pod", "qcnn-worker-1")["metadata"]["uid"] == theirs
    kube.run("delete", "pod", "qcnn-worker-1")
    kube.until_phase("qcnn", "Running")
    assert kube.get("pod", "qcnn-worker-1")["metadata"]["uid"] != theirs


def test_pods_below_the_namespaces_security_standard_are_refused_in_the_api_servers_words(kube: Kube) -> None:
    job = sample.waiting(kube.namespace)
    job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["hostNetwork"] = True
    kube.apply(job)
    said = blocked(kube, Reason.FORBIDDEN)
    assert 'violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)' in said
    assert kube.list("pods") == []


def blocked(kube: Kube, reason: Reason) -> str:
    """Returns the message of the job's condition Blocked, as soon as it is True; the event says the same."""
    status = kube.until_condition("qcnn", ConditionType.BLOCKED, seconds=60)
    [condition] = [one for one in status["conditions"] if one["type"] == ConditionType.BLOCKED]
    assert condition["reason"] == reason, condition
    message: str = condition["message"]
    assert kube.until_event("qcnn", reason) == message
    return message


def holds(kube: Kube) -> bool:
    """Returns whether the job is blocked."""
    conditions = kube.get("qmljob", "qcnn")["status"]["conditions"]
    return any(one["type"] == ConditionType.BLOCKED and one["status"] == "True" for one in conditions)


def container(job: Document) -> Any:
    return job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]


def quota(pods: str) -> Document:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": pods}}}
