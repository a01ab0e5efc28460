"""The inference Job: a Job of its own, which is nobody's replica."""

import copy
import json
from typing import Any

import pytest

from qmljob_api.parse import parse_job
from qmljob_api.types import QMLJob
from qmljob_operator.resources.inference import build_inference_job

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "a"}},
    "spec": {"containers": [{"name": "sidecar"}, {"name": "inference", "env": [{"name": "QMLJOB_UID", "value": "x"}]}]},
}


def job(inference: dict[str, Any] | None) -> QMLJob:
    spec: dict[str, Any] = {"replicaSpecs": {"worker": {"template": {"spec": {"containers": [{"name": "a"}]}}}}}
    if inference is not None:
        spec["inference"] = inference
    document = {"apiVersion": "qml.dev/v1alpha1", "kind": "QMLJob", "metadata": {"name": "qcnn", "uid": "u"}}
    result = parse_job({**document, "spec": spec})
    assert result.job is not None, result.errors
    return result.job


def test_it_is_a_job_owned_by_the_qmljob() -> None:
    built = build_inference_job(job({"template": TEMPLATE}))
    assert (built["apiVersion"], built["kind"]) == ("batch/v1", "Job")
    assert built["metadata"]["name"] == "qcnn-inference"
    assert built["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert built["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert built["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_it_can_be_started_by_hand_under_another_name() -> None:
    built = build_inference_job(job({"template": TEMPLATE}), name="qcnn-inference-manual")
    assert built["metadata"]["name"] == "qcnn-inference-manual"


def test_its_pods_are_not_taken_for_replicas() -> None:
    labels = build_inference_job(job({"template": TEMPLATE}))["spec"]["template"]["metadata"]["labels"]
    assert labels["qml.dev/job"] == "qcnn"
    assert labels["app.kubernetes.io/component"] == "inference"
    assert labels["team"] == "a"
    assert "qml.dev/role" not in labels


def test_its_main_container_knows_the_job_and_no_peers() -> None:
    sidecar, inference = build_inference_job(job({"template": TEMPLATE}))["spec"]["template"]["spec"]["containers"]
    assert "env" not in sidecar
    assert inference["env"] == [
        {"name": "QMLJOB_NAME", "value": "qcnn"},
        {"name": "QMLJOB_NAMESPACE", "value": "default"},
        {"name": "QMLJOB_UID", "value": "x"},
    ]


def test_what_would_fail_again_is_not_tried_again() -> None:
    rules = build_inference_job(job({"template": TEMPLATE}))["spec"]["podFailurePolicy"]["rules"]
    assert rules == [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"containerName": "inference", "operator": "In", "values": [64, 65]}},
    ]


def test_building_changes_nothing_and_is_json() -> None:
    of = job({"template": TEMPLATE})
    before = copy.deepcopy(of)
    built = build_inference_job(of)
    assert json.loads(json.dumps(built)) == built
    built["spec"]["template"]["spec"]["containers"].clear()
    assert of == before


def test_a_job_without_inference_says_what_to_add() -> None:
    with pytest.raises(ValueError, match=r"job qcnn has no inference: add spec\.inference\.template"):
        build_inference_job(job(None))
