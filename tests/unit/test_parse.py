"""A manifest is read whole: every error at once, each with its path and what would be right."""

import copy
import json
import pathlib
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob_api import messages
from qmljob_api.parse import FieldError, Mode, parse_job
from qmljob_api.testing import TEMPLATE, manifest
from qmljob_api.types import FailureAction, Role, SuccessPolicy

SAMPLE = pathlib.Path(__file__).parents[2] / "manifests" / "samples" / "qcnn.yaml"


def with_template(template: Any) -> dict[str, Any]:
    return manifest(replicaSpecs={"worker": {"template": template}})


def with_container(**fields: Any) -> dict[str, Any]:
    return with_template({"spec": {"containers": [{"name": "trainer", **fields}]}})


def test_all_errors_come_at_once() -> None:
    document = manifest(
        suspend="no",
        port=0,
        ports=[{"name": "rendezvous", "port": 2222}, {"name": "A", "port": "1"}],
        runPolicy={"backoffLimit": -1, "ttl": 1},
        successPolicy="All",
        failurePolicy={"rules": [{"onExitCodes": {"values": [0, "x"]}}]},
        replicaSpecs={"chief": {"replicas": 2}, "worker": {"template": {"spec": {"containers": [{}]}}}, "boss": {}},
        inference={},
    )
    document["metadata"] = {"name": "Q", "namespace": "_"}
    paths = [error.path for error in parse_job(document).errors]
    assert paths == [
        "metadata.name",
        "metadata.namespace",
        "spec.failurePolicy.rules[0].action",
        "spec.failurePolicy.rules[0].onExitCodes.values[0]",
        "spec.failurePolicy.rules[0].onExitCodes.values[1]",
        "spec.inference.template",
        "spec.port",
        "spec.ports[0].name",
        "spec.ports[1].name",
        "spec.ports[1].port",
        "spec.replicaSpecs.boss",
        "spec.replicaSpecs.chief.replicas",
        "spec.replicaSpecs.chief.template",
        "spec.replicaSpecs.worker.template.spec.containers[0].name",
        "spec.runPolicy.backoffLimit",
        "spec.runPolicy.ttl",
        "spec.successPolicy",
        "spec.suspend",
    ]


def test_the_sample_is_a_job() -> None:
    result = parse_job(yaml.safe_load(SAMPLE.read_text()))
    assert result.errors == ()
    assert result.job is not None
    assert [(role, spec.replicas) for role, spec in result.job.spec.replica_specs.present()] == [(Role.WORKER, 2)]


def test_fields_are_read() -> None:
    document = manifest(
        suspend=True,
        runPolicy={"backoffLimit": 0, "activeDeadlineSeconds": 9},
        successPolicy="AllReplicas",
        failurePolicy={"rules": [{"onExitCodes": {"operator": "NotIn", "values": [3]}, "action": "Ignore"}]},
        ports=[{"name": "profiler", "port": 7}],
    )
    document["metadata"] |= {"namespace": "", "uid": "u", "labels": None, "resourceVersion": "5", "managedFields": []}
    document["status"] = {"anything": [1, None]}
    result = parse_job(document)
    assert result.errors == ()
    job = result.job
    assert job is not None
    assert (job.metadata.namespace, job.metadata.uid, job.metadata.labels) == ("default", "u", {})
    assert (job.spec.suspend, job.spec.port, job.spec.ports[0].port) == (True, 2222, 7)
    assert job.spec.success_policy is SuccessPolicy.ALL_REPLICAS
    assert job.spec.run_policy.backoff_limit == 0
    assert job.spec.failure_policy.rules[0].action is FailureAction.IGNORE


def test_inside_a_template_nothing_is_unknown() -> None:
    template = {"spec": {"containers": [{"name": "a", "newField": None}], "restartPolicy": None}, "weird": [1.5, None]}
    result = parse_job(with_template(template))
    assert result.job is not None
    assert result.job.spec.replica_specs.worker is not None
    assert result.job.spec.replica_specs.worker.template == template


def test_tolerant_mode_leaves_unknown_fields_out_and_reports_them_apart() -> None:
    document = manifest(future={"deep": [1]}, runPolicy={"futureLimit": 1, "backoffLimit": 7}, suspend=None)
    result = parse_job(document, Mode.TOLERANT)
    assert result.errors == ()
    assert [error.path for error in result.unknown] == ["spec.future", "spec.runPolicy.futureLimit"]
    assert result.job is not None
    assert result.job.spec.run_policy.backoff_limit == 7
    assert result.job.spec.suspend is False


def test_tolerant_mode_still_refuses_what_is_wrong() -> None:
    result = parse_job(manifest(future=1, port=0), Mode.TOLERANT)
    assert [error.path for error in result.errors] == ["spec.port"]
    assert [error.path for error in result.unknown] == ["spec.future"]


def test_the_document_is_neither_changed_nor_kept() -> None:
    document = manifest(future=1)
    before = copy.deepcopy(document)
    job = parse_job(document, Mode.TOLERANT).job
    assert document == before
    document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"].clear()
    assert job is not None
    assert job.spec.replica_specs.worker is not None
    assert job.spec.replica_specs.worker.template == TEMPLATE


def _bomb() -> Any:
    value: Any = ["lol"] * 9
    for _ in range(40):
        value = [value] * 9
    return value


def _loop() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (_bomb(), "holds more than 50000 values"),
        (_loop(), "is nested deeper than 64 levels"),
        ("x" * 1_000_001, "holds more than 1000000 characters"),
        ({"k" * 600_000: 1, "l" * 600_000: [2]}, "holds more than 1000000 characters"),
    ],
    ids=["an alias bomb", "an alias of itself", "a long text", "long keys"],
)
def test_a_document_of_unreasonable_size_is_given_up(value: Any, message: str) -> None:
    result = parse_job(with_container(args=value))
    assert [error.message for error in result.errors] == [message]


def test_a_job_survives_the_way_through_json() -> None:
    job = parse_job(yaml.safe_load(SAMPLE.read_text())).job
    assert job is not None
    again = parse_job(json.loads(job.model_dump_json(by_alias=True, exclude_none=True)))
    assert again.job == job


_KEYS = (
    *("metadata", "name", "namespace", "labels", "spec", "suspend", "port", "ports", "runPolicy", "backoffLimit"),
    *("failurePolicy", "rules", "onExitCodes", "values", "roles", "action", "inference", "replicas", "template"),
    *("containers", "initContainers", "env", "securityContext", "capabilities", "add"),
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70_000),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=2),
    st.sampled_from(["", "Never", "worker", "FailJob", "a" * 70]),
)
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=5),
    max_leaves=20,
)


@settings(derandomize=True, deadline=None, max_examples=400)
@given(spec=_TREES, metadata=_TREES, replicas=_TREES, template=_TREES, mode=st.sampled_from(Mode))
def test_no_document_raises_and_no_error_is_without_words(
    spec: Any, metadata: Any, replicas: Any, template: Any, mode: Mode
) -> None:
    if isinstance(spec, dict):
        spec = {**spec, "replicaSpecs": {"worker": {"template": template}, "chief": replicas}}
    result = parse_job({**manifest(), "metadata": metadata, "spec": spec}, mode)
    assert (result.job is None) == bool(result.errors)
    fallback = messages._fallback(0, {})
    for error in result.errors:
        assert error.message
        assert error.hint
        assert error.hint != fallback[1], error
        assert "\n" not in str(error)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.text(max_size=80))
def test_a_name_is_taken_exactly_when_kubernetes_would_take_its_replicas_names(name: str) -> None:
    accepted = parse_job(manifest({"name": name})).job is not None
    letters = "abcdefghijklmnopqrstuvwxyz"
    label = bool(name) and name[0] in letters and name[-1] in letters + "0123456789"
    label = label and all(character in letters + "0123456789-" for character in name)
    assert accepted == (label and len(f"{name}-worker-1") <= 63)


def test_an_error_of_the_whole_manifest_names_it() -> None:
    assert str(FieldError("", "is empty", "write one")) == "manifest: is empty; write one"
