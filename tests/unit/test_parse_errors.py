"""Every error of a manifest says where it is, what is wrong and what would be right."""

import datetime
from typing import Any

import pytest

from qmljob_api.parse import parse_job
from qmljob_api.testing import TEMPLATE, manifest
from qmljob_api.types import MAX_REPLICAS


def with_template(template: Any) -> dict[str, Any]:
    return manifest(replicaSpecs={"worker": {"template": template}})


def with_container(**fields: Any) -> dict[str, Any]:
    return with_template({"spec": {"containers": [{"name": "trainer", **fields}]}})


def named(name: Any, **spec: Any) -> dict[str, Any]:
    return manifest({"name": name}, **spec)


def exit_codes(*values: Any) -> dict[str, Any]:
    return manifest(failurePolicy={"rules": [{"onExitCodes": {"values": list(values)}, "action": "FailJob"}]})


def roles(**counts: Any) -> dict[str, Any]:
    return manifest(replicaSpecs={role: {"replicas": n, "template": TEMPLATE} for role, n in counts.items()})


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
            "metadata.name: \"QCNN_8\" is not a valid name; use lower-case letters, digits and '-', from a letter to a "
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
            "metadata.namespace: \"Team\" is not a valid name; use lower-case letters, digits and '-', from a letter "
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
            "startupDeadlineSeconds, ttlSecondsAfterFinished, cleanPodPolicy, unreachableSeconds, "
            "forceDeleteUnreachable"
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
        manifest(failurePolicy={"rules": [{"onExitCodes": {"values": [1], "roles": ["workers"]}, "action": "Ignore"}]}),
        [
            'spec.failurePolicy.rules[0].onExitCodes.roles[0]: "workers" is not one of chief, worker, ps, evaluator; '
            "did you mean 'worker'?"
        ],
    ),
    "an unknown action": (
        manifest(failurePolicy={"rules": [{"onExitCodes": {"values": [1]}, "action": "Retry"}]}),
        ['spec.failurePolicy.rules[0].action: "Retry" is not one of FailJob, RestartGang, Ignore; write one of them'],
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
            'spec.inference.template.spec.restartPolicy: "Always" is not Never: a replica that restarts alone hangs '
            "the gang; remove it; QMLJob restarts all replicas together",
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
    result = parse_job(document)
    assert [str(error) for error in result.errors] == expected
    assert result.job is None
