"""Where the operator is measured: a real API server with its audit log, and the operator as its Deployment runs it."""

import copy
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from qmljob_api import names
from qmljob_api.testing import TEMPLATE, manifest
from support.api_client import APPLY_PATCH, Event, Object
from support.control_plane import ControlPlane, running_control_plane
from support.operator_process import PROGRAM, OperatorProcess, install_operator, running_operator

FLAGS = (f"--lease-namespace={names.OPERATOR_NAMESPACE}",)
LIMIT_SECONDS = 600.0
LOOK_AGAIN_SECONDS = 0.05
_CRD = Path(__file__).resolve().parents[2] / "manifests" / "crd" / "qmljobs.qml.dev.yaml"


@dataclass(frozen=True)
class Stage:
    """A control plane, and an operator that works on it."""

    plane: ControlPlane
    operator: OperatorProcess

    def jobs_path(self, namespace: str, name: str = "") -> str:
        """Returns the path of a namespace's jobs, or of one of them."""
        path = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/{namespace}/{names.PLURAL}"
        return f"{path}/{name}" if name else path

    def server_version(self) -> str:
        """Returns the API server's version."""
        return str(self.plane.call("GET", "/version")["gitVersion"])


@contextmanager
def running_stage() -> Iterator[Stage]:
    """Runs a control plane and an operator with the rights of its ServiceAccount, leading by a Lease."""
    with tempfile.TemporaryDirectory(prefix="qmljob-benchmark-") as folder, running_control_plane() as plane:
        definition = yaml.safe_load(_CRD.read_text())
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
        plane.call("PATCH", path, definition, content_type=APPLY_PATCH, query={"fieldManager": "benchmark"})
        plane.wait_until("GET", f"/apis/{names.GROUP}/{names.VERSION}/{names.PLURAL}", what="the kind is served")
        install_operator(plane)
        with running_operator(plane, Path(folder) / "log", program=PROGRAM, flags=FLAGS) as operator:
            wait_for(lambda: any("working" in line.get("message", "") for line in operator.log()), "the operator works")
            yield Stage(plane, operator)
            if complaints := operator.complaints():
                raise RuntimeError(f"the operator complained: {complaints}")


def parse_roles(text: str) -> dict[str, int]:
    """Returns the roles of an option: `chief=1,worker=3`."""
    pairs = (part.partition("=") for part in text.split(","))
    return {role: int(count) for role, _, count in pairs}


def job_document(name: str, roles: Mapping[str, int]) -> Object:
    """Returns a job with so many replicas of each role, otherwise the smallest that is valid."""
    specs = {role: {"replicas": count, "template": copy.deepcopy(TEMPLATE)} for role, count in roles.items()}
    return manifest({"name": name}, replicaSpecs=specs)


def wait_for(done: Callable[[], bool], what: str, *, seconds: float = LIMIT_SECONDS) -> None:
    """Waits until something is so.

    Raises:
        TimeoutError: it took too long.
    """
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not in {seconds:.0f} s")
        time.sleep(LOOK_AGAIN_SECONDS)


def runs(event: Event) -> bool:
    """Whether an event shows a job that runs."""
    return (event.object.get("status") or {}).get("phase") == "Running"


def describe_machine(server: str) -> dict[str, Any]:
    """Returns what a figure depends on; `server` is the API server's version."""
    return {
        "python": platform.python_version(),
        "kubernetes": server,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }
