"""A job through kubectl, as people and pipelines use it: apply, diff, wait, scale, get; and what that costs."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from qmljob_api import names
from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.progress import InferenceResult, to_line
from support.api_client import LIMIT_SECONDS
from support.audit_log import describe
from support.control_plane import ControlPlane
from support.kubelet import Kubelet, starts_and_goes
from support.operator_process import PROGRAM, running_operator
from support.stories import Scene, Story, gang, scene
from support.story_actions import both, create, finish, report, started, until
from support.story_steps import RUNS, TEMPLATE

SAMPLE = Path(__file__).resolve().parents[2] / "manifests" / "samples" / "qcnn.yaml"
RESULT = InferenceResult(artifact="gs://bucket/w.h5", mse=0.25, sign_accuracy=0.9, examples=12)
REQUESTS_OF_A_START = 15


class Kubectl:
    """kubectl in the namespace of a scene."""

    def __init__(self, stage: Scene) -> None:
        """Has a kubeconfig of its own, which names the namespace."""
        plane = stage.plane
        self._command = [
            str(plane.kubectl),
            "--kubeconfig",
            str(plane.kubeconfig_for(plane.token, namespace=stage.namespace)),
        ]

    def begin(self, *words: str) -> "subprocess.Popen[str]":
        """Starts it; whoever does so waits for its end."""
        return subprocess.Popen([*self._command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __call__(self, *words: str, expected: int = 0) -> str:
        """Returns what it prints."""
        with self.begin(*words) as process:
            out, error = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == expected, f"kubectl {' '.join(words)}: {error}"
        return out


@pytest.fixture
def sample(stage: Scene) -> Iterator[Kubectl]:
    """The sample, applied: its pods start by themselves."""
    with stage.playing(Story("", [], kubelet=starts_and_goes)):
        kubectl = Kubectl(stage)
        assert kubectl("apply", "--filename", str(SAMPLE)) == "qmljob.qml.dev/qcnn created\n"
        stage.reach("the sample runs", phase=Phase.RUNNING, holds=RUNS, pods=gang(0), services=frozenset(gang(0)))
        yield kubectl
    stage.check_promises()


def versions(stage: Scene) -> dict[str, str]:
    """The resourceVersions of all that the job owns."""
    return {
        f"{kind}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
        for kind in ("pods", "services", "networkpolicies", "jobs")
        for item in stage.timeline.present(kind)
    }


def test_the_same_manifest_applied_again_changes_nothing(sample: Kubectl, stage: Scene) -> None:
    stage.come_to_rest()
    before, children = stage.plane.call("GET", stage.job_path()), versions(stage)
    mark = stage.plane.audit_mark()
    assert sample("apply", "--filename", str(SAMPLE)) == "qmljob.qml.dev/qcnn unchanged\n"
    stage.touch()
    after = stage.plane.call("GET", stage.job_path())
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["status"] == before["status"]
    assert versions(stage) == children
    assert [describe(each) for each in stage.operator.writes(stage.namespace, since=mark)] == []


def test_a_diff_against_the_cluster_is_empty(sample: Kubectl, stage: Scene) -> None:
    stage.come_to_rest()
    assert sample("diff", "--filename", str(SAMPLE)) == ""


def test_a_server_side_apply_conflicts_with_nothing_that_the_operator_wrote(sample: Kubectl, stage: Scene) -> None:
    stage.come_to_rest()
    generation = stage.plane.call("GET", stage.job_path())["metadata"]["generation"]
    sample("apply", "--server-side", "--force-conflicts", "--filename", str(SAMPLE))
    stage.touch()
    assert stage.plane.call("GET", stage.job_path())["metadata"]["generation"] == generation
    managers = {
        each["manager"]
        for each in stage.plane.call("GET", stage.job_path())["metadata"]["managedFields"]
        if each.get("subresource") == "status"
    }
    assert managers == {names.FIELD_MANAGER}


def test_wait_returns_when_training_and_when_inference_have_succeeded(sample: Kubectl, stage: Scene) -> None:
    options = (f"--timeout={LIMIT_SECONDS:.0f}s", "qj/qcnn")
    trained = sample.begin("wait", "--for=condition=Succeeded", *options)
    inferred = sample.begin("wait", "--for=condition=InferenceSucceeded", *options)
    assert "qcnn condition met" in sample("wait", "--for=condition=Running", *options)
    both(finish("worker-1"), finish("worker-0"))(stage)
    assert trained.communicate(timeout=LIMIT_SECONDS)[0] == "qmljob.qml.dev/qcnn condition met\n"
    assert inferred.poll() is None
    both(started("inference-0"), finish("inference-0", 0, to_line(RESULT)))(stage)
    assert inferred.communicate(timeout=LIMIT_SECONDS)[0] == "qmljob.qml.dev/qcnn condition met\n"


def test_get_shows_how_far_a_job_is(sample: Kubectl, stage: Scene) -> None:
    both(report(12), until(epoch=12), finish("worker-1"), finish("worker-0"))(stage)
    both(started("inference-0"), finish("inference-0", 0, to_line(RESULT)), until(mse=0.25, ready="0/2"))(stage)
    header, row = (line.split() for line in sample("get", "qj").splitlines())
    assert header == ["NAME", "PHASE", "READY", "RESTARTS", "EPOCH", "LOSS", "MSE", "AGE"]
    assert row[:-1] == ["qcnn", "Succeeded", "0/2", "0", "12", "0.25", "0.25"]


def test_scale_is_a_planned_restart_and_tells_of_workers(sample: Kubectl, stage: Scene) -> None:
    assert sample("scale", "qmljob/qcnn", "--replicas=3") == "qmljob.qml.dev/qcnn scaled\n"
    stage.reach("three run", phase=Phase.RUNNING, attempt=1, pods=gang(1, worker=3), restarts=0)
    scale = stage.plane.call("GET", f"{stage.job_path()}/scale")
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
    selected = sample("get", "pods", f"--selector={scale['status']['selector']}", "--output=name")
    assert selected.split() == [f"pod/qcnn-worker-{index}" for index in range(3)]


def test_an_edited_manifest_that_can_not_run_is_applied_and_explained(sample: Kubectl, stage: Scene) -> None:
    document = yaml.safe_load(SAMPLE.read_text("utf-8"))
    container = document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container["volumeMounts"][0]["name"] = "data"
    path = stage.plane.folder / f"{stage.namespace}.yaml"
    path.write_text(yaml.safe_dump(document))
    sample("apply", "--filename", str(path))
    message = 'jsonpath={.status.conditions[?(@.type=="Invalid")].message}'
    stage.reach("it is invalid", phase=Phase.RUNNING, attempt=0)
    assert stage.timeline.until(lambda: stage.status().holds(ConditionType.INVALID))
    assert sample("get", "qj/qcnn", f"--output={message}") == (
        "spec.replicaSpecs.worker.template.spec.containers[0].volumeMounts[0].name: "
        'Not found: "data" (attempt 0 goes on as it was built)'
    )
    assert "qcnn-worker-0" in sample("describe", "pod/qcnn-worker-0")
    sample("apply", "--filename", str(SAMPLE))
    assert stage.timeline.until(lambda: not stage.status().holds(ConditionType.INVALID))
    assert stage.seen().pods == gang(0)


@pytest.mark.usefixtures("empty_stage")
def test_a_job_costs_few_requests_and_none_that_writes_while_it_runs(
    control_plane: ControlPlane, kubelet: Kubelet, operator_rights: None, tmp_path: Path
) -> None:
    """With the times that a cluster gets."""
    spec = {"replicaSpecs": {"worker": {"replicas": 4, "template": TEMPLATE}}}
    with (
        running_operator(control_plane, tmp_path / "log", program=PROGRAM) as operator,
        scene(control_plane, kubelet, operator) as stage,
        stage.playing(Story("", [], spec=spec, kubelet=starts_and_goes)),
    ):
        mark = control_plane.audit_mark()
        create()(stage)
        stage.reach("the job runs", phase=Phase.RUNNING, pods=gang(0, worker=4), ready="4/4")
        started = [describe(each) for each in operator.requests(stage.namespace, since=mark)]
        assert len(started) <= REQUESTS_OF_A_START, "\n".join(started)
        stage.come_to_rest()
        mark = control_plane.audit_mark()
        for epoch in (1, 2, 3):
            report(epoch)(stage)
            stage.touch()
        # Its output is read every 15 seconds, whatever it says and however often the job is looked at.
        assert len(operator.requests(stage.namespace, since=mark)) <= 1
        assert operator.writes(stage.namespace, since=mark) == []
        stage.check_promises()
    assert operator.complaints() == []
