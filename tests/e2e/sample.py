"""The samples of manifests/, changed for a test: shorter, under another name, in a corner of the bucket of its own."""

from pathlib import Path
from typing import Any

import yaml

SAMPLES = Path(__file__).resolve().parents[2] / "manifests" / "samples"
Document = dict[str, Any]
FULL_AT_MIB = 64
"""What a replica of `disturbed` may write."""
# A container's first process gets only signals that it blocks or handles.
WAIT = "from signal import *; pthread_sigmask(SIG_BLOCK, [SIGTERM]); sigwait([SIGTERM]); raise SystemExit(75)"


def job(namespace: str, *, name: str = "qcnn", workers: int = 2, epochs: int = 8, slow: bool = False) -> Document:
    """Returns qcnn.yaml for a namespace; its objects in the bucket begin with the namespace's name.

    Its pods ask for less CPU than the sample's, so that several fit on a node of a small machine. An epoch of a slow
    job takes a quarter of a second and more, so that what happens meets a training.
    """
    document: Document = yaml.safe_load((SAMPLES / "qcnn.yaml").read_text("utf-8"))
    document["metadata"]["name"] = name
    worker = document["spec"]["replicaSpecs"]["worker"]
    worker["replicas"] = workers
    for template in (worker["template"], document["spec"]["inference"]["template"]):
        _adapt(template["spec"], namespace, name)
    for constraint in worker["template"]["spec"]["topologySpreadConstraints"]:
        constraint["labelSelector"]["matchLabels"]["qml.dev/job"] = name
    set_flag(document, "--epochs", epochs)
    if slow:
        set_flag(document, "--examples", 4000)
    return document


def waiting(namespace: str, *, name: str = "qcnn", workers: int = 2) -> Document:
    """Returns a job whose replicas train nothing and wait for SIGTERM, for tests of what is around a training."""
    document = job(namespace, name=name, workers=workers)
    container = document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container["command"] = ["python", "-c", WAIT]
    del container["args"]
    del document["spec"]["inference"]
    return document


def disturbed(namespace: str, *, name: str = "qcnn", epochs: int) -> Document:
    """Returns a slow job that may fail as often as it likes; its replicas are evicted when they fill their /tmp."""
    document = job(namespace, name=name, epochs=epochs, slow=True)
    document["spec"]["runPolicy"] = {"backoffLimit": 100}
    [volume] = document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["volumes"]
    volume["emptyDir"] = {"sizeLimit": f"{FULL_AT_MIB}Mi"}
    return document


def inference(namespace: str, *, name: str = "qcnn") -> Document:
    """Returns inference.yaml for the weights that `job` of the same namespace and name leaves."""
    document: Document = yaml.safe_load((SAMPLES / "inference.yaml").read_text("utf-8"))
    document["metadata"]["name"] = f"{name}-inference-manual"
    _adapt(document["spec"]["template"]["spec"], namespace, name)
    return document


def set_flag(job: Document, flag: str, value: object) -> None:
    """Sets a flag of the training program, in the place of the one that is there or behind the others."""
    container = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    kept = [argument for argument in container["args"] if not argument.startswith(f"{flag}=")]
    container["args"] = [*kept, f"{flag}={value}"]


def _adapt(pod: Document, namespace: str, name: str) -> None:
    container = pod["containers"][0]
    container["resources"]["requests"]["cpu"] = "100m"
    container["args"] = [
        argument.replace("gs://qmljob/", f"gs://qmljob/{namespace}/{name}/")
        .replace("--weights-gcs-path=", f"--weights-gcs-path={namespace}/{name}/")
        for argument in container["args"]
    ]  # fmt: skip
