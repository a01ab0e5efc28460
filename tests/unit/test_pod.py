"""A replica's pod: what is ours, what stays the user's, and that the job is never touched."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob_api.parse import parse_job
from qmljob_api.types import QMLJob
from qmljob_operator.resources.pod import build_pod
from qmljob_operator.topology import build_topology, service_addresses


def job(container: dict[str, Any] | None = None, uid: str = "", **parts: Any) -> QMLJob:
    """Returns a job of two workers; `parts` are of the template: its spec's other fields, and `metadata`."""
    metadata = parts.pop("metadata", None)
    spec = {"containers": [{"name": "trainer", **(container or {})}], **parts}
    result = parse_job(
        {
            "apiVersion": "qml.dev/v1alpha1",
            "kind": "QMLJob",
            "metadata": {"name": "qcnn", "namespace": "lab", "uid": uid},
            "spec": {
                "ports": [{"name": "profiler", "port": 2223}],
                "replicaSpecs": {"worker": {"replicas": 2, "template": {"spec": spec, "metadata": metadata}}},
            },
        }
    )
    assert result.job is not None, result.errors
    return result.job


def pod(of: QMLJob, index: int = 0, **options: Any) -> dict[str, Any]:
    topology = build_topology(of)
    options = {"attempt": 3, "restarts": 2, "addresses": service_addresses(of, topology), **options}
    return build_pod(of, topology, topology.replicas[index], **options)


def env(built: dict[str, Any], container: int = 0) -> list[tuple[str, Any]]:
    return [(entry["name"], entry.get("value")) for entry in built["spec"]["containers"][container].get("env", [])]


def test_the_pod_is_named_and_labelled_after_its_replica() -> None:
    built = pod(job(), 1)
    assert (built["apiVersion"], built["kind"]) == ("v1", "Pod")
    assert built["metadata"] == {
        "name": "qcnn-worker-1",
        "namespace": "lab",
        "labels": {
            "qml.dev/job": "qcnn",
            "qml.dev/role": "worker",
            "qml.dev/index": "1",
            "qml.dev/attempt": "3",
            "app.kubernetes.io/name": "qmljob",
            "app.kubernetes.io/instance": "qcnn",
            "app.kubernetes.io/component": "worker",
            "app.kubernetes.io/managed-by": "qmljob-operator",
        },
    }


def test_a_job_with_a_uid_owns_its_pods() -> None:
    assert pod(job(uid="u-1"))["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "qml.dev/v1alpha1",
            "kind": "QMLJob",
            "name": "qcnn",
            "uid": "u-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_labels_and_annotations_of_the_template_are_kept() -> None:
    user = {"name": "x", "labels": {"team": "a", "app.kubernetes.io/name": "mine"}, "annotations": {"note": "b"}}
    metadata = pod(job(metadata=user))["metadata"]
    assert metadata["name"] == "qcnn-worker-0"
    assert metadata["labels"]["team"] == "a"
    assert metadata["labels"]["app.kubernetes.io/name"] == "mine"
    assert metadata["annotations"] == {"note": "b"}


def test_the_training_container_is_told_its_place() -> None:
    cluster = {"worker": ["qcnn-worker-0.lab.svc:2222", "qcnn-worker-1.lab.svc:2222"]}
    assert env(pod(job(uid="u-1"), 1)) == [
        ("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}})),
        ("QMLJOB_NAME", "qcnn"),
        ("QMLJOB_NAMESPACE", "lab"),
        ("QMLJOB_UID", "u-1"),
        ("QMLJOB_ATTEMPT", "3"),
        ("QMLJOB_RESTARTS", "2"),
        ("QMLJOB_PORT_PROFILER", "2223"),
    ]


def test_a_replica_can_have_ports_of_its_own() -> None:
    built = pod(job(), ports={"profiler": 40001})
    assert dict(env(built))["QMLJOB_PORT_PROFILER"] == "40001"
    assert {"name": "profiler", "containerPort": 40001, "protocol": "TCP"} in built["spec"]["containers"][0]["ports"]


def test_the_users_own_variables_win_and_come_after_ours() -> None:
    own = [{"name": "WHERE", "value": "$(QMLJOB_NAME)"}, {"name": "TF_CONFIG", "value": "{}"}]
    variables = env(pod(job({"env": own})))
    assert [value for name, value in variables if name == "TF_CONFIG"] == ["{}"]
    assert variables[-2:] == [("WHERE", "$(QMLJOB_NAME)"), ("TF_CONFIG", "{}")]
    assert variables.index(("QMLJOB_NAME", "qcnn")) < variables.index(("WHERE", "$(QMLJOB_NAME)"))


@pytest.mark.parametrize(
    ("names", "training"),
    [
        (["sidecar", "trainer"], 1),
        (["sidecar", "tensorflow"], 1),
        (["tensorflow", "trainer"], 0),
        (["first", "second"], 0),
    ],
    ids=["trainer", "tensorflow", "the first of the two names", "else the first"],
)
def test_only_the_training_container_gets_variables(names: list[str], training: int) -> None:
    built = pod(job(containers=[{"name": name} for name in names]))
    assert [bool(env(built, index)) for index in range(2)] == [index == training for index in range(2)]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, [("rendezvous", 2222), ("profiler", 2223)]),
        ([{"containerPort": 2222}], [(None, 2222), ("profiler", 2223)]),
        (
            [{"containerPort": 2222, "protocol": "UDP"}],
            [(None, 2222), ("rendezvous", 2222), ("profiler", 2223)],
        ),
        ([{"name": "profiler", "containerPort": 9}], [("profiler", 9), ("rendezvous", 2222), (None, 2223)]),
    ],
    ids=["none", "the number is there", "for another protocol", "the name is taken"],
)
def test_ports_are_declared_unless_the_user_did(
    own: list[dict[str, Any]] | None, expected: list[tuple[str | None, int]]
) -> None:
    ports = pod(job({"ports": own} if own else {}))["spec"]["containers"][0]["ports"]
    assert [(port.get("name"), port["containerPort"]) for port in ports] == expected


def test_safe_defaults_where_the_user_says_nothing() -> None:
    spec = pod(job(initContainers=[{"name": "init"}]))["spec"]
    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    for container in [*spec["containers"], *spec["initContainers"]]:
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({"privileged": True}, {"privileged": True}),
        (
            {"allowPrivilegeEscalation": True},
            {"allowPrivilegeEscalation": True, "capabilities": {"drop": ["ALL"]}},
        ),
        (
            {"capabilities": {"add": ["NET_ADMIN"]}},
            {"capabilities": {"add": ["NET_ADMIN"]}, "allowPrivilegeEscalation": False},
        ),
        ({"capabilities": {"add": ["SYS_ADMIN"]}}, {"capabilities": {"add": ["SYS_ADMIN"]}}),
    ],
    ids=["privileged", "escalation", "a capability", "a capability that needs escalation"],
)
def test_what_the_user_asks_for_is_left_as_it_is(context: dict[str, Any], expected: dict[str, Any]) -> None:
    built = pod(
        job(
            {"securityContext": context, "terminationMessagePolicy": "File"},
            automountServiceAccountToken=True,
            securityContext={"runAsUser": 7, "seccompProfile": {"type": "Unconfined"}},
        )
    )["spec"]
    assert built["containers"][0]["securityContext"] == expected
    assert built["containers"][0]["terminationMessagePolicy"] == "File"
    assert built["automountServiceAccountToken"] is True
    assert built["securityContext"] == {"runAsUser": 7, "seccompProfile": {"type": "Unconfined"}}


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)
_CONTAINERS = st.fixed_dictionaries(
    {},
    optional={
        "env": st.none() | st.lists(st.fixed_dictionaries({"name": st.sampled_from(["A", "TF_CONFIG"])}), max_size=2),
        "ports": st.none() | st.lists(st.fixed_dictionaries({"containerPort": st.integers(2222, 2224)}), max_size=2),
        "securityContext": st.none() | st.just({"capabilities": None}) | st.just({"capabilities": {"add": ["X"]}}),
        "resources": _VALUES,
    },
)
_PARTS = st.fixed_dictionaries(
    {},
    optional={
        "volumes": _VALUES,
        "securityContext": st.none() | st.just({"runAsUser": 1}),
        "initContainers": st.none() | st.just([{"name": "init"}]),
        "metadata": st.none() | st.just({"labels": {"a": "b"}, "annotations": {"c": "d"}}),
    },
)


def _mutables(value: Any) -> set[int]:
    if isinstance(value, dict):
        return {id(value)}.union(*(_mutables(item) for item in value.values()))
    if isinstance(value, list):
        return {id(value)}.union(*(_mutables(item) for item in value))
    return set()


@settings(derandomize=True, deadline=None, max_examples=150)
@given(container=_CONTAINERS, parts=_PARTS)
def test_building_changes_nothing_and_shares_nothing(container: dict[str, Any], parts: dict[str, Any]) -> None:
    of = job(container, **parts)
    before = copy.deepcopy(of)
    first, second = pod(of), pod(of)
    assert of == before
    assert first == second
    worker = of.spec.replica_specs.worker
    assert worker is not None
    assert not _mutables(first) & (_mutables(worker.template) | _mutables(second))
    assert json.loads(json.dumps(first)) == first
