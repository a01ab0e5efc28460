"""A manifest is read whole: every error at once, each with its path and what would be right."""

import copy
import datetime
import json
import pathlib
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob_api import messages
from qmljob_api.parse import FieldError, Mode, parse_job
from qmljob_api.types import MAX_REPLICAS, FailureAction, Role, SuccessPolicy

SAMPLE = pathlib.Path(__file__).parents[2] / "manifests" / "samples" / "qcnn.yaml"
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "qml.dev/v1alpha1",
        "kind": "QMLJob",
        "metadata": {"name": "qcnn"},
        "spec": {"replicaSpecs": {"worker": {"replicas": 2, "template": copy.deepcopy(TEMPLATE)}}, **spec},
    }


def with_template(template: Any) -> dict[str, Any]:
    return manifest(replicaSpecs={"worker": {"template": template}})


def with_container(**fields: Any) -> dict[str, Any]:
    return with_template({"spec": {"containers": [{"name": "trainer", **fields}]}})


def named(name: Any, **spec: Any) -> dict[str, Any]:
    return {**manifest(**spec), "metadata": {"name": name}}


def exit_codes(*values: Any) -> dict[str, Any]:
    return manifest(failurePolicy={"rules": [{"onExitCodes": {"values": list(values)}, "action": "FailJob"}]})


def roles(**counts: Any) -> dict[str, Any]:
    return manifest(replicaSpecs={role: {"replicas": n, "template": TEMPLATE} for role, n in counts.items()})


def errors_of(document: Any, mode: Mode = Mode.STRICT) -> list[str]:
    result = parse_job(document, mode)
    assert (result.job is None) == bool(result.errors)
    return [str(error) for error in result.errors]


_WORKER = "spec.replicaSpecs.worker"
_CODES = "spec.failurePolicy.rules[0].onExitCodes.values"

ERRORS = {
    "nothing": (None, ["manifest: is empty, not a mapping; begin with 'apiVersion: qml.dev/v1alpha1'"]),
    "a list": ([manifest()], ["manifest: is a list, not a mapping; begin with 'apiVersion: qml.dev/v1alpha1'"]),
    "another kind, of which nothing else is said": (
        {"kind": "TFJob", "spec": {"tfReplicaSpecs": {}}},
        ["kind: \"TFJob\" is not QMLJob; write 'kind: QMLJob'"],
    ),
    "no kind": (
        {k: v for k, v in manifest().items() if k != "kind"},
        ["kind: is missing; write 'kind: QMLJob'"],
    ),
    "another version": (
        {**manifest(), "apiVersion": "qml.dev/v1"},
        ['apiVersion: "qml.dev/v1" is not qml.dev/v1alpha1; write qml.dev/v1alpha1'],
    ),
    "no name": (
        {**manifest(), "metadata": {"generateName": "qcnn-"}},
        ["metadata.name: is missing; name the job, for example 'qcnn'"],
    ),
    "a name in capitals": (
        named("QCNN_8"),
        [
            'metadata.name: "QCNN_8" is not a valid name; use lower-case letters, digits and \'-\', from a letter to a '
            "letter or digit, for example 'qcnn-8'"
        ],
    ),
    "a name whose replicas' names are too long": (
        named("q" * 55),
        [
            f'metadata.name: makes the name "{"q" * 55}-worker-1" of 64 characters, 63 at most; '
            "make it shorter by 1 character"
        ],
    ),
    "a name whose inference Job's name is too long": (
        named("q" * 48, inference={"template": TEMPLATE}),
        [
            f'metadata.name: makes the name "{"q" * 48}-inference-manual" of 65 characters, 63 at most; '
            "make it shorter by 2 characters"
        ],
    ),
    "a namespace in capitals": (
        {**manifest(), "metadata": {"name": "qcnn", "namespace": "Team"}},
        [
            'metadata.namespace: "Team" is not a valid name; use lower-case letters, digits and \'-\', from a letter '
            "or digit to a letter or digit, for example 'team'"
        ],
    ),
    "an unknown field of metadata": (
        {**manifest(), "metadata": {"name": "qcnn", "nmespace": "x"}},
        ["metadata.nmespace: is an unknown field; did you mean 'namespace'?"],
    ),
    "a label that is no text": (
        {**manifest(), "metadata": {"name": "qcnn", "labels": {"team/x": 1}}},
        ['metadata.labels["team/x"]: 1 is a number, not text; put it in quotes'],
    ),
    "an unknown field near to a known one": (
        manifest(succesPolicy="Chief"),
        ["spec.succesPolicy: is an unknown field; did you mean 'successPolicy'?"],
    ),
    "a field spelled as in Python": (
        manifest(run_policy={}),
        ["spec.run_policy: is an unknown field; did you mean 'runPolicy'?"],
    ),
    "an unknown field near to none": (
        manifest(runPolicy={"zzz": 1}),
        [
            "spec.runPolicy.zzz: is an unknown field; remove it; known here: backoffLimit, activeDeadlineSeconds, "
            "startupDeadlineSeconds"
        ],
    ),
    "TFJob's restart policy of a replica": (
        manifest(replicaSpecs={"worker": {"template": TEMPLATE, "restartPolicy": "Always"}}),
        [
            f"{_WORKER}.restartPolicy: is an unknown field; there is no restart policy of a replica, the gang restarts "
            "as one; use spec.failurePolicy"
        ],
    ),
    "zero replicas": (roles(worker=0), [f"{_WORKER}.replicas: 0 is less than 1; set it to 1 or more"]),
    "negative replicas": (roles(worker=-2), [f"{_WORKER}.replicas: -2 is less than 1; set it to 1 or more"]),
    "too many replicas": (roles(worker=513), [f"{_WORKER}.replicas: 513 is more than 512; set it to 512 or less"]),
    "too many replicas together": (
        roles(worker=512, ps=2),
        [f"spec.replicaSpecs: asks for 514 replicas, {MAX_REPLICAS} at most; remove 2"],
    ),
    "replicas in quotes": (
        roles(worker="2"),
        [f'{_WORKER}.replicas: "2" is text, not a whole number; remove the quotes'],
    ),
    "replicas that are true": (
        roles(worker=True),
        [f"{_WORKER}.replicas: true is not a whole number; write digits only, for example 2"],
    ),
    "two chiefs": (
        roles(chief=2, worker=1),
        [
            "spec.replicaSpecs.chief.replicas: 2 is more than the one chief a job may have; set it to 1, and give the "
            "others the role worker"
        ],
    ),
    "two evaluators": (
        roles(worker=1, evaluator=2),
        ["spec.replicaSpecs.evaluator.replicas: 2 is more than the one evaluator a job may have; set it to 1"],
    ),
    "nobody who trains": (
        roles(ps=1, evaluator=1),
        ["spec.replicaSpecs: has neither a worker nor a chief; add 'worker' with 'replicas' and a 'template'"],
    ),
    "a role that is commented out": (
        manifest(replicaSpecs={"worker": {"template": TEMPLATE}, "ps": None}),
        ["spec.replicaSpecs.ps: is empty; give it a value, or remove the line"],
    ),
    "a role without a template": (
        manifest(replicaSpecs={"worker": {"replicas": 2}}),
        [f"{_WORKER}.template: is missing; add a pod template with spec.containers"],
    ),
    "a port's name twice, in any spelling that makes the same variable": (
        manifest(ports=[{"name": "a-b", "port": 1}, {"name": "a-b", "port": 2}]),
        [
            'spec.ports[1].name: "a-b" is the name of spec.ports[0] too (both would be QMLJOB_PORT_A_B); '
            "choose another name"
        ],
    ),
    "a port's number twice": (
        manifest(ports=[{"name": "a", "port": 7}, {"name": "b", "port": 7}]),
        ["spec.ports[1].port: 7 is the number of spec.ports[0] too; choose another number"],
    ),
    "a port equal to the rendezvous": (
        manifest(port=7, ports=[{"name": "a", "port": 7}]),
        ["spec.ports[0].port: 7 is the rendezvous (spec.port) already; choose another number"],
    ),
    "a port equal to the rendezvous by default": (
        manifest(ports=[{"name": "a", "port": 2222}]),
        ["spec.ports[0].port: 2222 is the rendezvous (spec.port) already; choose another number"],
    ),
    "the reserved port name": (
        manifest(ports=[{"name": "rendezvous", "port": 7}]),
        ['spec.ports[0].name: "rendezvous" is the name of spec.port; choose another name'],
    ),
    "ports out of range": (
        manifest(port=0, ports=[{"name": "a", "port": 65536}]),
        [
            "spec.port: 0 is less than 1; set it to 1 or more",
            "spec.ports[0].port: 65536 is more than 65535; set it to 65535 or less",
        ],
    ),
    "a port name of 16 characters": (
        manifest(ports=[{"name": "p" * 16, "port": 7}]),
        ["spec.ports[0].name: has 16 characters, 15 at most; cut 1 of them"],
    ),
    "a port name without a letter": (
        manifest(ports=[{"name": "8080", "port": 7}]),
        ["spec.ports[0].name: \"8080\" has no letter; add one, for example 'profiler'"],
    ),
    "a port name with two dashes": (
        manifest(ports=[{"name": "a--b", "port": 7}]),
        [
            "spec.ports[0].name: \"a--b\" is not a valid name; use lower-case letters, digits and single '-' between "
            "them, for example 'a-b'"
        ],
    ),
    "17 ports": (
        manifest(ports=[{"name": f"p{n}", "port": n} for n in range(1, 18)]),
        ["spec.ports: has 17 items, 16 at most; remove 1 of them"],
    ),
    "ports that are no list": (
        manifest(ports={"name": "a"}),
        ["spec.ports: is a mapping, not a list; begin each item with '- '"],
    ),
    "an empty item keeps the others' places": (
        manifest(ports=[None, {"name": "a", "port": 0}]),
        [
            "spec.ports[0]: is empty, not a mapping; write 'key: value' lines below it",
            "spec.ports[1].port: 0 is less than 1; set it to 1 or more",
        ],
    ),
    "33 rules": (
        manifest(failurePolicy={"rules": [{"onExitCodes": {"values": [1]}, "action": "Ignore"}] * 33}),
        ["spec.failurePolicy.rules: has 33 items, 32 at most; remove 1 of them"],
    ),
    "exit code 0": (exit_codes(0), [f"{_CODES}[0]: 0 is success, not a failure; remove it"]),
    "an exit code out of range": (
        exit_codes(256),
        [f"{_CODES}[0]: 256 is not an exit code; use a number from 1 to 255"],
    ),
    "an exit code twice": (exit_codes(1, 1), [f"{_CODES}[1]: 1 is listed twice; remove one of them"]),
    "the exit code that is never a cause": (
        exit_codes(69),
        [f"{_CODES}[0]: 69 (lost peer) is never the cause of a failure, so that no rule is asked about it; remove it"],
    ),
    "no exit codes": (exit_codes(), [f"{_CODES}: is an empty list; list at least one item, or remove it"]),
    "an unknown role in a rule": (
        manifest(
            failurePolicy={"rules": [{"onExitCodes": {"values": [1], "roles": ["workers"]}, "action": "Ignore"}]}
        ),
        [
            'spec.failurePolicy.rules[0].onExitCodes.roles[0]: "workers" is not one of chief, worker, ps, evaluator; '
            "did you mean 'worker'?"
        ],
    ),
    "an unknown action": (
        manifest(failurePolicy={"rules": [{"onExitCodes": {"values": [1]}, "action": "Retry"}]}),
        [
            'spec.failurePolicy.rules[0].action: "Retry" is not one of FailJob, RestartGang, Ignore; '
            "write one of them"
        ],
    ),
    "yes for true": (
        manifest(suspend="yes"),
        ['spec.suspend: "yes" is not true or false; write true or false, without quotes'],
    ),
    "a template that is a list": (
        with_template([]),
        [f"{_WORKER}.template: is a list, not a mapping; write 'key: value' lines below it"],
    ),
    "a template without a pod spec": (
        with_template({}),
        [f"{_WORKER}.template.spec: is missing; add a pod spec with at least one container"],
    ),
    "no containers": (
        with_template({"spec": {"containers": []}}),
        [f"{_WORKER}.template.spec.containers: is an empty list; list at least one container"],
    ),
    "containers without, with a bad and with the same name": (
        with_template({"spec": {"containers": [{}, {"name": "A"}, {"name": "a"}, {"name": "a"}]}}),
        [
            f"{_WORKER}.template.spec.containers[0].name: is missing; name the container, for example 'trainer'",
            f'{_WORKER}.template.spec.containers[1].name: "A" is not a valid name of up to 63 characters; use '
            "lower-case letters, digits and '-', for example 'a'",
            f'{_WORKER}.template.spec.containers[3].name: "a" is the name of another container too; give each '
            "container its own",
        ],
    ),
    "another restart policy": (
        with_template({"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "a"}]}}),
        [
            f'{_WORKER}.template.spec.restartPolicy: "OnFailure" is not Never: a replica that restarts alone hangs the '
            "gang; remove it; QMLJob restarts all replicas together"
        ],
    ),
    "a label of ours in a template": (
        with_template({**TEMPLATE, "metadata": {"labels": {"qml.dev/job": "x"}}}),
        [
            f'{_WORKER}.template.metadata.labels["qml.dev/job"]: is a label that QMLJob sets itself (qml.dev/…); '
            "remove it"
        ],
    ),
    "a number as an environment variable's value": (
        with_container(env=[{"name": "A", "value": 1}, {"value": "x"}]),
        [
            f"{_WORKER}.template.spec.containers[0].env[0].value: 1 is a number, not text; put it in quotes",
            f"{_WORKER}.template.spec.containers[0].env[1].name: is missing; name the environment variable",
        ],
    ),
    "the inference template is checked like the others": (
        manifest(inference={"template": {"spec": {"containers": [{}], "restartPolicy": "Always"}}}),
        [
            "spec.inference.template.spec.containers[0].name: is missing; name the container, for example 'trainer'",
            'spec.inference.template.spec.restartPolicy: "Always" is not Never: a replica that restarts alone hangs the '
            "gang; remove it; QMLJob restarts all replicas together",
        ],
    ),
    "a date, which YAML has and JSON has not": (
        with_container(image=datetime.date(2024, 1, 1)),
        [f"{_WORKER}.template.spec.containers[0].image: is a date, which JSON does not have; put it in quotes"],
    ),
    "a key that is a number": (
        with_container(**{"resources": {1: 2}}),
        [
            f"{_WORKER}.template.spec.containers[0].resources: has the key 1, which is not text; put it in quotes",
        ],
    ),
    "not a number": (
        with_container(weight=float("nan")),
        [
            f"{_WORKER}.template.spec.containers[0].weight: is not a finite number; "
            "write a number, or put the text in quotes"
        ],
    ),
    "a number that no machine has": (
        with_container(weight=10**5000),
        [
            f"{_WORKER}.template.spec.containers[0].weight: is too large a number; "
            "write one below 2^63, or put it in quotes"
        ],
    ),
    "half a character": (
        with_container(image="\ud800"),
        [
            f"{_WORKER}.template.spec.containers[0].image: holds a character that is not valid Unicode; "
            "type the text again"
        ],
    ),
}


@pytest.mark.parametrize(("document", "expected"), ERRORS.values(), ids=ERRORS.keys())
def test_each_error_says_where_what_and_what_would_be_right(document: Any, expected: list[str]) -> None:
    assert errors_of(document) == expected


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
    document = manifest(future={"deep": [1]}, runPolicy={"ttlSecondsAfterFinished": 1, "backoffLimit": 7}, suspend=None)
    result = parse_job(document, Mode.TOLERANT)
    assert result.errors == ()
    assert [error.path for error in result.unknown] == ["spec.future", "spec.runPolicy.ttlSecondsAfterFinished"]
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
    accepted = parse_job(named(name)).job is not None
    letters = "abcdefghijklmnopqrstuvwxyz"
    label = bool(name) and name[0] in letters and name[-1] in letters + "0123456789"
    label = label and all(character in letters + "0123456789-" for character in name)
    assert accepted == (label and len(f"{name}-worker-1") <= 63)


def test_an_error_of_the_whole_manifest_names_it() -> None:
    assert str(FieldError("", "is empty", "write one")) == "manifest: is empty; write one"
