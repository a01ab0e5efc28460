"""Ten thousand manifests, valid to hostile: API server and parser agree on each, and no stored one harms the operator.

Each has a number. `PYTHONPATH=tests python -m support.hostile_jobs 4711` prints the one of a failure.
"""

import copy
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qmljob_api import names
from qmljob_api.conditions import Phase
from qmljob_api.parse import FieldError, parse_job
from qmljob_api.testing import manifest
from support.api_client import Object
from support.control_plane import ControlPlane
from support.hostile_jobs import hostile_job
from support.kubelet import Kubelet, starts_and_goes
from support.operator_process import PROGRAM, running_operator
from support.timeline import running_timeline

SAMPLE, ALL = 300, 10_000
STORED_SAMPLE, STORED_ALL = 30, 300
CHUNK = 500
DRY_RUN = {"dryRun": "All", "fieldValidation": "Strict"}
WRITES_OF_A_JOB = 30
"""Attempt, policy, Services, pods, events and status of a job of up to two replicas a role: far below any loop's."""
LONG_SECONDS = 600.0
"""For more than a thousand jobs on a busy machine."""


def explained(error: FieldError) -> bool:
    """Whether the parser may refuse what the server takes, as `test_crd.ONLY_THE_PARSER_REFUSES` has it."""
    return (
        ".template" in error.path  # Kubernetes judges the inside of a pod, when one is asked for
        or error.path == ""  # more values, or a deeper tree, than a job has: only a template can hold them
        or error.message == "is empty"  # the server takes it for an absent one
        or error.message.endswith(".0 is not a whole number")  # JSON has one kind of numbers
    )


def disagreement(plane: ControlPlane, jobs: str, number: int) -> tuple[str, str]:
    """Returns the verdict on a manifest, and what is wrong about it: an empty text, where nothing is."""
    document = hostile_job(number)
    before = copy.deepcopy(document)
    answer, result = plane.request("POST", jobs, document, query=DRY_RUN), parse_job(document)
    accepted = result.job is not None
    assert document == before, f"hostile_job({number}): the parser changes what it reads"
    assert all("\n" not in str(error) and len(str(error)) < 600 for error in result.errors), f"hostile_job({number})"
    if answer.status not in (201, 400, 422):
        return "unforeseen", f"hostile_job({number}): the server answers {answer.status} {answer.message[:300]}"
    if answer.ok is accepted:
        return "accepted" if accepted else "refused", ""
    if answer.ok and all(map(explained, result.errors)):
        return "explained", ""
    said = "takes it" if answer.ok else f"refuses it ({answer.message[:300]})"
    return "disagreement", f"hostile_job({number}): the server {said}; the parser says {[*map(str, result.errors)][:3]}"


def judge(plane: ControlPlane, namespace: str, numbers: Sequence[int]) -> Counter[str]:
    jobs = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
    verdicts = [disagreement(plane, jobs, number) for number in numbers]
    problems = [problem for _, problem in verdicts if problem]
    assert not problems, "\n".join(problems)
    return Counter(verdict for verdict, _ in verdicts)


def test_server_and_parser_agree(control_plane: ControlPlane, namespace: str, crd: str) -> None:
    counts = judge(control_plane, namespace, range(SAMPLE))
    # Else they would agree on nothing that matters.
    assert counts["accepted"] > SAMPLE // 10
    assert counts["refused"] > SAMPLE // 2


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SAMPLE, ALL, CHUNK))
def test_server_and_parser_agree_on_all(control_plane: ControlPlane, namespace: str, crd: str, first: int) -> None:
    judge(control_plane, namespace, range(first, min(first + CHUNK, ALL)))


# Stored


def storable(number: int) -> Object:
    """Returns a manifest with a name of its own, and few enough replicas."""
    document = hostile_job(number)
    metadata = document.get("metadata")
    document["metadata"] = {**(metadata if isinstance(metadata, dict) else {}), "name": f"h-{number}"}
    spec = document.get("spec")
    roles = spec.get("replicaSpecs") if isinstance(spec, dict) else None
    for role in roles.values() if isinstance(roles, dict) else ():
        if isinstance(role, dict) and isinstance(role.get("replicas"), int) and role["replicas"] > 2:
            role["replicas"] = 2
    return document


def check_stored(kubelet: Kubelet, log: Path, count: int) -> None:
    plane = kubelet.plane
    jobs = f"/apis/{names.API_VERSION}/namespaces/{kubelet.namespace}/{names.PLURAL}"

    def make(number: int) -> bool:
        return plane.request("POST", jobs, storable(number), query={"fieldValidation": "Ignore"}).ok

    with ThreadPoolExecutor(4) as pool:
        stored = sum(pool.map(make, range(count * 4)))
    assert stored >= count, f"{stored} of {4 * count} were stored"
    mark = plane.audit_mark()
    with (
        running_timeline(plane, kubelet.namespace) as timeline,
        kubelet.playing(starts_and_goes),
        running_operator(
            plane, log, namespaces=[kubelet.namespace], program=PROGRAM, flags=("--no-leader-election",)
        ) as operator,
    ):

        def good_runs() -> bool:
            good = (job for job in timeline.present(names.PLURAL) if job["metadata"]["name"] == "good")
            return any((job.get("status") or {}).get("phase") == Phase.RUNNING for job in good)

        def phases() -> list[str | None]:
            return [(job.get("status") or {}).get("phase") for job in timeline.present(names.PLURAL)]

        assert timeline.until(lambda: len(phases()) == stored and all(phases()), timeout=LONG_SECONDS), Counter(
            phases()
        )
        plane.call("POST", jobs, manifest({"name": "good"}))
        assert timeline.until(good_runs, timeout=LONG_SECONDS)
        writes = Counter(owner_of(record) for record in operator.writes(kubelet.namespace, since=mark))
        assert operator.metric("qmljob_reconcile_errors_total", kind="bug") == 0
        assert operator.complaints() == []
        assert operator.get("/healthz")[0] == 200
    busiest, most = writes.most_common(1)[0]
    assert most <= WRITES_OF_A_JOB, f"{busiest} took {most} writes"


def owner_of(record: Object) -> str:
    """Returns the job that a request is about, by its name: `h-17` of `h-17-worker-0`."""
    name = str((record.get("objectRef") or {}).get("name", ""))
    return "-".join(name.split(".", maxsplit=1)[0].split("-")[:2])


def test_stored_jobs_do_no_harm(kubelet: Kubelet, empty_stage: None, operator_rights: None, tmp_path: Path) -> None:
    check_stored(kubelet, tmp_path / "log", STORED_SAMPLE)


@pytest.mark.slow
def test_many_stored_jobs_do_no_harm(
    kubelet: Kubelet, empty_stage: None, operator_rights: None, tmp_path: Path
) -> None:
    check_stored(kubelet, tmp_path / "log", STORED_ALL)
