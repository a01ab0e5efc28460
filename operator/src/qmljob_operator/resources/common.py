"""What all objects of a job have in common: labels, owner, the pod template and its safe defaults."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from qmljob_api import environment, names
from qmljob_api.types import QMLJob

Object = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON has it."""


def labels(job: QMLJob, component: str) -> dict[str, str]:
    """Returns the labels of every object of a job; `component` is a role, or `inference`."""
    return {
        names.LABEL_JOB: job.metadata.name,
        "app.kubernetes.io/name": "qmljob",
        "app.kubernetes.io/instance": job.metadata.name,
        names.LABEL_COMPONENT: component,
        "app.kubernetes.io/managed-by": "qmljob-operator",
    }


def metadata(job: QMLJob, name: str, own_labels: Mapping[str, str]) -> Object:
    """Returns an object's metadata, with the job as its owner where the job has a uid (in a local run it has none)."""
    result: Object = {"name": name, "namespace": job.metadata.namespace, "labels": dict(own_labels)}
    if job.metadata.uid:
        result["ownerReferences"] = [
            {
                "apiVersion": job.api_version,
                "kind": job.kind,
                "name": job.metadata.name,
                "uid": job.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    return result


def template_metadata(template: Mapping[str, Any], base: Object) -> Object:
    """Returns `base` with the user's labels and annotations added.

    The labels by which objects of a job are found again are ours; any other label is the user's where he sets it.
    """
    user: Mapping[str, Any] = template.get("metadata") or {}
    ours: dict[str, str] = base["labels"]
    fixed = {key: value for key, value in ours.items() if key.startswith(f"{names.GROUP}/")}
    result = {**base, "labels": {**ours, **(user.get("labels") or {}), **fixed}}
    if user.get("annotations"):
        result["annotations"] = dict(user["annotations"])
    return result


def pod_spec(template: Mapping[str, Any]) -> Object:
    """Returns a copy of the template's pod spec with safe defaults where the user left a field unset."""
    spec: Object = copy.deepcopy(dict(template.get("spec") or {}))
    spec["restartPolicy"] = "Never"
    _default(spec, "automountServiceAccountToken", False)
    context = _mapping(spec, "securityContext")
    _default(context, "seccompProfile", {"type": "RuntimeDefault"})
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        _default(container, "terminationMessagePolicy", "FallbackToLogsOnError")
        _harden(_mapping(container, "securityContext"))
    return spec


def main_container(spec: Object, preferred: Sequence[str]) -> Object:
    """Returns the first container with one of the preferred names, else the first container."""
    containers: list[Object] = spec["containers"]
    return next((container for container in containers if container.get("name") in preferred), containers[0])


def job_environment(job: QMLJob) -> dict[str, str]:
    """Returns the variables that say which job a container belongs to."""
    return {
        environment.NAME: job.metadata.name,
        environment.NAMESPACE: job.metadata.namespace,
        environment.UID: job.metadata.uid,
    }


def add_environment(container: Object, variables: Mapping[str, str]) -> None:
    """Puts variables in front of a container's own, so that the user's `$(NAME)` can refer to them.

    Where the user sets a variable of the same name, only the user's stays.
    """
    own: list[Object] = container.get("env") or []
    taken = {entry.get("name") for entry in own}
    added = [{"name": name, "value": value} for name, value in variables.items() if name not in taken]
    container["env"] = [*added, *own]


def _harden(context: Object) -> None:
    # A privileged container, or one with CAP_SYS_ADMIN, is refused by the API server together with
    # allowPrivilegeEscalation: false; whoever asks for one of them has set what we would only default.
    capabilities: Mapping[str, Any] = context.get("capabilities") or {}
    added = capabilities.get("add") or []
    if context.get("privileged") is True:
        return
    if "SYS_ADMIN" not in added and "CAP_SYS_ADMIN" not in added:
        _default(context, "allowPrivilegeEscalation", False)
    if not capabilities:
        context["capabilities"] = {"drop": ["ALL"]}


def _default(target: Object, key: str, value: Any) -> None:
    if target.get(key) is None:
        target[key] = value


def _mapping(target: Object, key: str) -> Object:
    if target.get(key) is None:
        target[key] = {}
    result: Object = target[key]
    return result
