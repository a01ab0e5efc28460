"""The Job that evaluates a trained artifact."""

from typing import Any

from qmljob_api import names
from qmljob_api.exitcodes import ExitCode
from qmljob_api.types import QMLJob
from qmljob_operator.resources import common

BACKOFF_LIMIT = 2
"""Inference only reads, so that trying again can do no harm; what it reads does not get better by it either."""
COMPONENT = "inference"


def build_inference_job(job: QMLJob, *, name: str | None = None) -> dict[str, Any]:
    """Returns the batch/v1 Job of `spec.inference`, named `<job>-inference` unless `name` says otherwise.

    Its main container gets the job's name, namespace and uid, and no TF_CONFIG: inference has no peers. Its pods carry
    no role, so that nobody takes them for replicas. Raises ValueError for a job without `spec.inference`.
    """
    if job.spec.inference is None:
        raise ValueError(f"job {job.metadata.name} has no inference: add spec.inference.template")
    template = job.spec.inference.template
    spec = common.pod_spec(template)
    container = common.main_container(spec, names.INFERENCE_CONTAINER_NAMES)
    common.add_environment(container, common.job_environment(job))
    own_name = name or names.inference_job_name(job.metadata.name)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": common.metadata(job, own_name, common.labels(job, COMPONENT)),
        "spec": {
            "backoffLimit": BACKOFF_LIMIT,
            "podFailurePolicy": _failure_policy(container),
            "template": {
                "metadata": common.template_metadata(template, {"labels": common.labels(job, COMPONENT)}),
                "spec": spec,
            },
        },
    }


def _failure_policy(container: common.Object) -> common.Object:
    hopeless = [ExitCode.INVALID_CONFIGURATION.value, ExitCode.BAD_ARTIFACT.value]
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {
                "action": "FailJob",
                "onExitCodes": {"containerName": container["name"], "operator": "In", "values": hopeless},
            },
        ]
    }
