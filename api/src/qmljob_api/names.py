"""Names and labels: everything that one room writes and another one looks for."""

from collections.abc import Mapping

GROUP = "qml.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "QMLJob"
PLURAL = "qmljobs"
SHORT_NAME = "qj"

OPERATOR = "qmljob-operator"
"""The operator's Deployment, ServiceAccount, Lease and Service, and who its events come from."""
OPERATOR_NAMESPACE = "qmljob-system"
FIELD_MANAGER = OPERATOR
"""The field manager of all that the operator writes."""

LABEL_JOB = f"{GROUP}/job"
LABEL_ROLE = f"{GROUP}/role"
LABEL_INDEX = f"{GROUP}/index"
LABEL_ATTEMPT = f"{GROUP}/attempt"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_NAMESPACE = "kubernetes.io/metadata.name"
"""The label of every namespace with its own name, which the API server sets."""

TENSORBOARD_COMPONENT = "tensorboard"
"""The component of a pod that may reach the profilers of the job that its label names."""

TRAINER_CONTAINER_NAMES = ("trainer", "tensorflow")
"""The training container is the first one with one of these names, else the first container of the pod."""
INFERENCE_CONTAINER_NAMES = ("inference",)
"""The same for the pod of an inference Job."""

RENDEZVOUS_PORT_NAME = "rendezvous"
"""The name of `spec.port` on a replica's Service, and so not free for `spec.ports`."""
PROFILER_PORT_NAME = "profiler"
"""The name in `spec.ports` of the port on which replicas can be profiled."""
DEFAULT_PORT = 2222
DEFAULT_NAMESPACE = "default"

NAME_LIMIT = 63
"""Characters of a DNS label: no name that is derived from a job's name may be longer."""


def replica_name(job: str, role: str, index: int) -> str:
    """Returns the name of a replica's pod and of its Service (`qcnn-worker-0`)."""
    return f"{job}-{role}-{index}"


def inference_job_name(job: str, *, manual: bool = False) -> str:
    """Returns the name of the inference Job that follows a success, or of the one that a person asks for."""
    return f"{job}-inference-manual" if manual else f"{job}-inference"


def longest_derived_name(job: str, replicas: Mapping[str, int], *, inference: bool) -> str:
    """Returns the longest of the names that are made from a job's name.

    `replicas` maps each role to its number of replicas; `inference` says whether the job has an inference Job. Among
    equally long names the first one wins, in the order of `replicas`.
    """
    names = [replica_name(job, role, count - 1) for role, count in replicas.items() if count > 0]
    if inference:
        names.append(inference_job_name(job, manual=True))
    return max(names, key=len, default=job)
