"""From a pod to a process: what the kubelet would run, run here. Pure functions; the builders made the pod."""

import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from qmljob.local.expand import expand, expand_environment
from qmljob_api.types import QMLJob, Role

_PYTHON = ("python", "python3")
_NEEDS_CLUSTER = "needs a cluster (kubectl apply); remove it to run on this machine"
_SCRATCH = "/tmp"
_OWN_PROGRAMS = ("qmljob_training", "qmljob_inference")

INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_CACHE_HOME"),
    *("VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TF_CPP_MIN_LOG_LEVEL"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"),
    "STORAGE_EMULATOR_HOST",
)
"""What a process takes over from the shell: where programs, settings and credentials are, and no more, so that a run
depends on the manifest and not on the shell. No proxies: gRPC would send the traffic between workers through them."""


@dataclass(frozen=True)
class ProcessPlan:
    """A process in the place of a pod's container."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    workdir: Path


def local_problems(job: QMLJob) -> tuple[str, ...]:
    """Returns one line for each thing in the job that only a cluster can give it; empty means that it runs here."""
    problems: list[str] = []
    for role, spec in job.spec.replica_specs.present():
        path = f"spec.replicaSpecs.{role.value}"
        if role in {Role.PS, Role.EVALUATOR}:
            problems.append(f"{path}: a local run has no {role.value} role; it {_NEEDS_CLUSTER}")
        else:
            problems.extend(_template_problems(f"{path}.template", spec.template))
    if job.spec.inference is not None:
        problems.extend(_template_problems("spec.inference.template", job.spec.inference.template))
    return tuple(problems)


def plan_process(pod: Mapping[str, Any], *, name: str, extra_env: Mapping[str, str], workdir: Path) -> ProcessPlan:
    """Returns the process that runs a pod's only container.

    Args:
        pod: a Pod or a pod template, of a job about which `local_problems` has nothing to say.
        name: the replica's name.
        extra_env: variables of the surroundings; the container's own win.
        workdir: the working directory, in the place of the image's.
    """
    container = pod["spec"]["containers"][0]
    variables = expand_environment((entry["name"], str(entry.get("value") or "")) for entry in container["env"])
    words = (*container["command"], *(container.get("args") or ()))
    _, *arguments = (expand(str(word), variables) for word in words)
    return ProcessPlan(name, (sys.executable, *arguments), {**extra_env, **variables}, workdir)


def inherited_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns what a process takes over from the shell, with the defaults of a local run."""
    kept = {name: environment[name] for name in INHERITED if name in environment}
    # TensorFlow's INFO and WARNING lines, a screenful for each process, would bury the progress.
    return {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1", **kept}


def _template_problems(path: str, template: Mapping[str, Any]) -> Iterator[str]:
    pod = _mapping(template.get("spec"))
    containers = _mappings(pod.get("containers"))
    scratch = _scratch_volumes(pod, containers)
    if any(volume.get("name") not in scratch for volume in _mappings(pod.get("volumes"))):
        yield f"{path}.spec.volumes: a volume {_NEEDS_CLUSTER}"
    if pod.get("initContainers"):
        yield f"{path}.spec.initContainers: an init container {_NEEDS_CLUSTER}"
    if not containers:
        yield f"{path}.spec.containers: no container; add one with a command that begins with python"
        return
    if len(containers) > 1:
        names = ", ".join(str(container.get("name")) for container in containers)
        yield f"{path}.spec.containers: several containers ({names}); a local run starts one process a replica"
        return
    yield from _container_problems(f"{path}.spec.containers[0]", containers[0], scratch)


def _scratch_volumes(pod: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Returns the names of volumes that this machine has too: an emptyDir mounted at /tmp and nowhere else."""
    mounts: dict[str, set[object]] = {}
    for mount in (mount for container in containers for mount in _mappings(container.get("volumeMounts"))):
        mounts.setdefault(str(mount.get("name")), set()).add(mount.get("mountPath"))
    empty = {str(volume.get("name")) for volume in _mappings(pod.get("volumes")) if "emptyDir" in volume}
    return frozenset(name for name in empty if mounts.get(name) == {_SCRATCH})


def _container_problems(path: str, container: Mapping[str, Any], scratch: frozenset[str]) -> Iterator[str]:
    command = container.get("command")
    first = command[0] if isinstance(command, list) and command else None
    if not isinstance(first, str) or PurePosixPath(first).name not in _PYTHON:
        found = "it has no command" if first is None else f"its command begins with {first!r}"
        yield (
            f"{path}.command: {found}, and a local run doesn't start image {container.get('image')!r}; "
            "write a command that begins with python, or run it on a cluster"
        )
    elif command is not None:
        yield from _missing_program(path, command)
    if any(mount.get("name") not in scratch for mount in _mappings(container.get("volumeMounts"))):
        yield f"{path}.volumeMounts: volumeMounts {_NEEDS_CLUSTER}"
    for field in ("volumeDevices", "workingDir"):
        if container.get(field):
            yield f"{path}.{field}: {field} {_NEEDS_CLUSTER}"
    if not all(_is_optional(source) for source in _mappings(container.get("envFrom"))):
        yield f"{path}.envFrom: envFrom {_NEEDS_CLUSTER}, or mark what it refers to as optional"
    for position, entry in enumerate(_mappings(container.get("env"))):
        if entry.get("valueFrom"):
            source = ", ".join(_mapping(entry["valueFrom"])) or "a source"
            yield (
                f"{path}.env[{position}].valueFrom: {entry.get('name')} comes from {source}, which {_NEEDS_CLUSTER}, "
                "or write its value"
            )


def _is_optional(source: Mapping[str, Any]) -> bool:
    """Says whether a container also starts without what an entry of envFrom names: here there is none."""
    references = [_mapping(source.get(kind)) for kind in ("configMapRef", "secretRef") if source.get(kind)]
    return bool(references) and all(reference.get("optional") is True for reference in references)


def _missing_program(path: str, command: Sequence[object]) -> Iterator[str]:
    """Says so, before anything starts, where our own program is asked for and this environment lacks it."""
    if len(command) < 3 or command[1] != "-m":
        return
    module = str(command[2])
    if module in _OWN_PROGRAMS and importlib.util.find_spec(module) is None:
        yield f"{path}.command: {module} is not installed here; pip install 'qmljob[local]'"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
