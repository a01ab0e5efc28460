"""Manifests for tests: the smallest one that is valid, with what a test is about put in."""

import copy
from typing import Any

from qmljob_api.parse import Mode, parse_job
from qmljob_api.types import QMLJob

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "trainer", "image": "qmljob/training:test"}]}}
"""A pod template of one container. Tests copy it before they change it."""


def manifest(metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Returns a fresh manifest of the job `qcnn` with two workers; `metadata` and `spec` add to it or replace parts."""
    return {
        "apiVersion": "qml.dev/v1alpha1",
        "kind": "QMLJob",
        "metadata": {"name": "qcnn", **(metadata or {})},
        "spec": {"replicaSpecs": {"worker": {"replicas": 2, "template": copy.deepcopy(TEMPLATE)}}, **spec},
    }


def parsed(document: dict[str, Any]) -> QMLJob:
    """Returns the job that a manifest describes. Raises ValueError with all its errors where it describes none."""
    result = parse_job(document, Mode.STRICT)
    if result.job is None:
        raise ValueError("; ".join(str(error) for error in result.errors))
    return result.job
