"""A new version of the operator takes over a job that runs, also where it would build its pods differently."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import nodes, operators, sample, training
from e2e.kube import Kube

ROOT = Path(__file__).resolve().parents[2]
PREVIOUS = "localhost:5001/previous"
EPOCHS = 120
# What every pod of a job is built with; a line in a .pth file is run when Python starts.
BUILDS_DIFFERENTLY = """
from qmljob_operator.resources import common
add_environment = common.add_environment
common.add_environment = lambda container, variables: add_environment(container, {**variables, "BUILT_BY": "previous"})
"""
DOCKERFILE = "FROM {image}\nCOPY --chmod=644 previous.py previous.pth /qmljob/venv/lib/python3.11/site-packages/\n"


@pytest.fixture
def previous_operator(cluster: None, tmp_path: Path) -> Iterator[None]:
    """Puts another version of the operator on the cluster for a while: the same code, but its pods differ."""
    [image] = nodes.docker("images", "--format={{.Repository}}:{{.Tag}}", "qmljob/operator").splitlines()
    (tmp_path / "previous.py").write_text(BUILDS_DIFFERENTLY, "utf-8")
    (tmp_path / "previous.pth").write_text("import previous\n", "utf-8")
    (tmp_path / "Dockerfile").write_text(DOCKERFILE.format(image=image), "utf-8")
    tag = f"{PREVIOUS}/operator:{image.rpartition(':')[2]}"
    nodes.docker("build", "--quiet", f"--tag={tag}", str(tmp_path))
    nodes.docker("push", "--quiet", tag)
    deploy(REGISTRY=PREVIOUS)
    yield
    deploy()
    nodes.docker("rmi", tag)


def test_an_upgrade_while_a_job_runs_deletes_no_pod_and_the_job_succeeds(previous_operator: None, kube: Kube) -> None:
    kube.apply(sample.job(kube.namespace, epochs=EPOCHS, slow=True))
    training.until_epoch(kube, 2)
    pods = training.uids(kube)
    assert "BUILT_BY" in variables(kube, "qcnn-worker-1")

    deploy()
    today = operators.nodes_of("localhost:5001/qmljob/")
    assert len(set(today.values())) == 2, "a lost node would take both replicas of the operator along"
    operators.until_leads_one_of(today)
    # An edit of what is not in the pods: that it was seen is how the new operator tells that it looks after the job.
    kube.run("patch", "qmljob", "qcnn", "--type=merge", '--patch={"spec":{"runPolicy":{"backoffLimit":5}}}')
    assert kube.until_phase("qcnn", "Running")["attempt"] == 0
    assert kube.get("pod", "qcnn-worker-0")["status"]["phase"] == "Running", "training was over too soon"

    status = kube.until_phase("qcnn", "Succeeded")
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (0, 0, 0)
    assert training.uids(kube) == pods


def variables(kube: Kube, pod: str) -> set[str]:
    """Returns the names of a pod's environment variables."""
    return {variable["name"] for variable in kube.get("pod", pod)["spec"]["containers"][0]["env"]}


def deploy(**environment: str) -> None:
    """Does `make deploy`."""
    done = subprocess.run(
        ["tools/cluster/deploy.sh", "deploy"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
