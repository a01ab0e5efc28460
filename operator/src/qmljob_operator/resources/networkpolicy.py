"""A job's NetworkPolicy: nobody but its own replicas talks to a replica, since TensorFlow trusts whoever connects."""

from typing import Any

from qmljob_api import names
from qmljob_api.types import QMLJob
from qmljob_operator.resources import common

COMPONENT = "replicas"


def build_network_policy(job: QMLJob) -> dict[str, Any]:
    """Returns the networking.k8s.io/v1 NetworkPolicy of a job's replicas, which has the job's name.

    Into a replica may connect: the job's other replicas, on every port; and, on the port that `spec.ports` calls
    `profiler`, the job's TensorBoard and the operator's namespace. What a replica itself connects to is left free. The
    attempt is left out, so that the policy outlives restarts.
    """
    # A role makes a replica: the inference Job's pods have none, and no peers.
    replicas = {
        "matchLabels": {names.LABEL_JOB: job.metadata.name},
        "matchExpressions": [{"key": names.LABEL_ROLE, "operator": "Exists"}],
    }
    ingress: list[common.Object] = [{"from": [{"podSelector": replicas}]}]
    profiler = next((port.port for port in job.spec.ports if port.name == names.PROFILER_PORT_NAME), None)
    if profiler is not None:
        ingress.append({"from": _profilers(job), "ports": [{"port": profiler, "protocol": "TCP"}]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": common.metadata(job, job.metadata.name, common.labels(job, COMPONENT)),
        "spec": {"podSelector": replicas, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def _profilers(job: QMLJob) -> list[common.Object]:
    tensorboard = {names.LABEL_JOB: job.metadata.name, names.LABEL_COMPONENT: names.TENSORBOARD_COMPONENT}
    return [
        {"podSelector": {"matchLabels": tensorboard}},
        {"namespaceSelector": {"matchLabels": {names.LABEL_NAMESPACE: names.OPERATOR_NAMESPACE}}},
    ]
