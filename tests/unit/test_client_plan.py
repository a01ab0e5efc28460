"""From a pod to a process: what the kubelet would do, done here, and what only a cluster can do, refused by name."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob.local.expand import expand, expand_environment
from qmljob.local.plan import inherited_environment, local_problems, plan_process
from qmljob_api.parse import Mode, parse_job
from qmljob_api.types import QMLJob

VARIABLES = {"A": "1", "B_C": "two words", "D": "$(A)", "E.f-g": "dots", "": "never"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        pytest.param("plain", "plain", id="nothing to do"),
        pytest.param("$(A)", "1", id="a reference"),
        pytest.param("x$(A)y$(B_C)z", "x1ytwo wordsz", id="references in text"),
        pytest.param("$(A)$(A)", "11", id="side by side"),
        pytest.param("$(D)", "$(A)", id="a value is not expanded again"),
        pytest.param("$(E.f-g)", "dots", id="any characters in a name"),
        pytest.param("$(NO)", "$(NO)", id="unresolved stays"),
        pytest.param("$$(A)", "$(A)", id="escaped"),
        pytest.param("$$$(A)", "$1", id="escaped dollar, then a reference"),
        pytest.param("$$$$(A)", "$$(A)", id="two escapes"),
        pytest.param("$$", "$", id="escape alone"),
        pytest.param("$", "$", id="dollar at the end"),
        pytest.param("$A ${A}", "$A ${A}", id="the shell's forms mean nothing"),
        pytest.param("$(A", "$(A", id="never closed"),
        pytest.param("$($(A))", "$($(A))", id="the first bracket closes"),
        pytest.param("cost: 5$ $(A)", "cost: 5$ 1", id="a lone dollar"),
        pytest.param("$(A)$", "1$", id="a dollar after a reference"),
    ],
)
def test_expansion_as_the_kubelet_does_it(text: str, expanded: str) -> None:
    assert expand(text, {key: value for key, value in VARIABLES.items() if key}) == expanded


def test_a_value_sees_the_variables_before_it_only() -> None:
    entries = [("A", "1"), ("B", "$(A)$(C)"), ("C", "3"), ("A", "$(A)!"), ("D", "$(A)")]
    assert expand_environment(entries) == {"A": "1!", "B": "1$(C)", "C": "3", "D": "1!"}


@settings(derandomize=True, deadline=None)
@given(text=st.text(alphabet="ab$() ", max_size=30))
def test_doubling_each_dollar_escapes_any_text(text: str) -> None:
    assert expand(text.replace("$", "$$"), {"a": "x", "b": "y"}) == text


def job_of(**changes: Any) -> QMLJob:
    container = {"name": "trainer", "image": "x", "command": ["python", "-c", "pass"], **changes.pop("container", {})}
    pod = {"containers": [container], **changes.pop("pod", {})}
    replica_specs = {"worker": {"replicas": 2, "template": {"spec": pod}}, **changes.pop("roles", {})}
    document = {
        "apiVersion": "qml.dev/v1alpha1",
        "kind": "QMLJob",
        "metadata": {"name": "qcnn"},
        "spec": {"replicaSpecs": replica_specs, **changes},
    }
    result = parse_job(document, Mode.STRICT)
    assert result.job is not None, result.errors
    return result.job


PS = {"replicas": 1, "template": {"spec": {"containers": [{"name": "x", "image": "x", "command": ["python"]}]}}}
CONTAINER = "spec.replicaSpecs.worker.template.spec.containers[0]"


@pytest.mark.parametrize(
    ("changes", "beginnings"),
    [
        pytest.param({}, [], id="runs here"),
        pytest.param({"container": {"command": ["/usr/bin/python3", "x.py"]}}, [], id="python3 by its path"),
        pytest.param(
            {"container": {"command": None}}, [f"{CONTAINER}.command: it has no command"], id="the image's own command"
        ),
        pytest.param(
            {"container": {"command": ["bash", "-c", "python"]}},
            [f"{CONTAINER}.command: its command begins with 'bash'"],
            id="another program",
        ),
        pytest.param({"container": {"command": ["pythonic"]}}, [f"{CONTAINER}.command: its command"], id="not python"),
        pytest.param({"roles": {"ps": PS}}, ["spec.replicaSpecs.ps: a local run has no ps"], id="ps"),
        pytest.param(
            {"roles": {"evaluator": PS}}, ["spec.replicaSpecs.evaluator: a local run has no evaluator"], id="evaluator"
        ),
        pytest.param(
            {"pod": {"volumes": [{"name": "v", "emptyDir": {}}]}, "container": {"volumeMounts": [{"name": "v"}]}},
            [
                "spec.replicaSpecs.worker.template.spec.volumes: a volume needs",
                f"{CONTAINER}.volumeMounts: volumeMounts",
            ],
            id="volumes",
        ),
        pytest.param(
            {"pod": {"initContainers": [{"name": "i", "image": "x"}]}},
            ["spec.replicaSpecs.worker.template.spec.initContainers: an init container needs a cluster"],
            id="init container",
        ),
        pytest.param(
            {"pod": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]}},
            ["spec.replicaSpecs.worker.template.spec.containers: several containers (a, b)"],
            id="several containers",
        ),
        pytest.param(
            {"container": {"envFrom": [{"secretRef": {"name": "s"}}]}}, [f"{CONTAINER}.envFrom: envFrom"], id="envFrom"
        ),
        pytest.param(
            {
                "container": {
                    "envFrom": [
                        {"configMapRef": {"name": "c", "optional": True}},
                        {"prefix": "P_", "secretRef": {"name": "s", "optional": True}},
                    ]
                }
            },
            [],
            id="optional envFrom",
        ),
        pytest.param(
            {
                "container": {
                    "envFrom": [{"configMapRef": {"name": "c", "optional": True}}, {"configMapRef": {"name": "d"}}]
                }
            },
            [f"{CONTAINER}.envFrom: envFrom needs a cluster"],
            id="one envFrom of two is optional",
        ),
        pytest.param(
            {
                "pod": {"volumes": [{"name": "tmp", "emptyDir": {}}]},
                "container": {"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]},
            },
            [],
            id="an empty /tmp",
        ),
        pytest.param(
            {
                "pod": {"volumes": [{"name": "tmp", "emptyDir": {}}]},
                "container": {"volumeMounts": [{"name": "tmp", "mountPath": "/data"}]},
            },
            ["spec.replicaSpecs.worker.template.spec.volumes: a volume", f"{CONTAINER}.volumeMounts: volumeMounts"],
            id="an empty folder elsewhere",
        ),
        pytest.param(
            {
                "pod": {"volumes": [{"name": "tmp", "hostPath": {"path": "/tmp"}}]},
                "container": {"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]},
            },
            ["spec.replicaSpecs.worker.template.spec.volumes: a volume", f"{CONTAINER}.volumeMounts: volumeMounts"],
            id="the node's /tmp",
        ),
        pytest.param({"container": {"workingDir": "/app"}}, [f"{CONTAINER}.workingDir: workingDir"], id="workingDir"),
        pytest.param(
            {
                "container": {
                    "env": [
                        {"name": "OK", "value": "1"},
                        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    ]
                }
            },
            [
                f"{CONTAINER}.env[1].valueFrom: TOKEN comes from secretKeyRef",
                f"{CONTAINER}.env[2].valueFrom: NODE comes from fieldRef",
            ],
            id="values from elsewhere",
        ),
        pytest.param(
            {"inference": {"template": {"spec": {"containers": [{"name": "i", "image": "x", "command": ["sh"]}]}}}},
            ["spec.inference.template.spec.containers[0].command: its command begins with 'sh'"],
            id="inference too",
        ),
    ],
)
def test_what_needs_a_cluster_is_refused_by_name(changes: dict[str, Any], beginnings: list[str]) -> None:
    found = local_problems(job_of(**changes))
    assert len(found) == len(beginnings), found
    for problem, beginning in zip(found, beginnings, strict=True):
        assert problem.startswith(beginning)
        assert "\n" not in problem


def test_a_process_is_what_the_kubelet_would_start(tmp_path: Path) -> None:
    env = [
        {"name": "PORT", "value": "7"},
        {"name": "URL", "value": "http://h:$(PORT)"},
        {"name": "HOME", "value": "/x"},
    ]
    container = {"command": ["python3", "-m", "prog"], "args": ["--url=$(URL)", "$$(URL)", "$(OUTSIDE)"], "env": env}
    plan = plan_process(
        {"spec": {"containers": [container]}},
        name="qcnn-worker-0",
        extra_env={"HOME": "/home", "OUTSIDE": "not the container's"},
        workdir=tmp_path,
    )
    assert plan.argv == (sys.executable, "-m", "prog", "--url=http://h:7", "$(URL)", "$(OUTSIDE)")
    assert plan.env == {"HOME": "/x", "OUTSIDE": "not the container's", "PORT": "7", "URL": "http://h:7"}


def test_a_process_takes_little_over_from_the_shell() -> None:
    shell = {"PATH": "/bin", "TF_CONFIG": "{}", "QMLJOB_UID": "x", "http_proxy": "p", "AWS_SECRET": "s", "LANG": "C"}
    assert inherited_environment(shell) == {
        "PATH": "/bin",
        "LANG": "C",
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    assert inherited_environment({"TF_CPP_MIN_LOG_LEVEL": "0"})["TF_CPP_MIN_LOG_LEVEL"] == "0"
