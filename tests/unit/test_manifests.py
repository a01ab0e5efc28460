"""What stands in manifests/ a second time, because YAML can't import it, is what the code says."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from qmljob_api import names
from qmljob_api.exitcodes import ExitCode
from qmljob_api.parse import Mode, parse_job

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
VERSION = version("qmljob")


def documents(folder: str) -> list[dict[str, Any]]:
    return [
        document
        for path in sorted((MANIFESTS / folder).glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text("utf-8"))
        if document["kind"] != "Kustomization"
    ]


def only(kind: str, folder: str = "base") -> dict[str, Any]:
    found = [document for document in documents(folder) if document["kind"] == kind]
    assert len(found) == 1
    return found[0]


def containers(value: Any) -> Iterator[dict[str, Any]]:
    """Every container of a document, wherever it stands."""
    if isinstance(value, dict):
        yield from value.get("containers", [])
        for part in value.values():
            yield from containers(part)
    elif isinstance(value, list):
        for part in value:
            yield from containers(part)


def test_no_role_has_a_wildcard_or_reads_what_is_secret() -> None:
    roles = [document for document in documents("base") if document["kind"] in {"ClusterRole", "Role"}]
    assert roles
    for role in roles:
        for rule in role["rules"]:
            listed = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert not listed & {"*", "secrets", "configmaps", "serviceaccounts/token", "pods/exec", "impersonate"}


def test_the_operator_s_objects_have_the_names_that_the_code_knows() -> None:
    for document in documents("base"):
        if document["kind"] in {
            "Deployment",
            "Service",
            "ServiceAccount",
            "Role",
            "RoleBinding",
            "PodDisruptionBudget",
        }:
            assert document["metadata"]["name"] == names.OPERATOR
            assert document["metadata"]["namespace"] == names.OPERATOR_NAMESPACE
    assert only("Namespace")["metadata"]["name"] == names.OPERATOR_NAMESPACE


@pytest.mark.parametrize("folder", ["base", "samples"])
def test_images_are_ours_and_of_this_version(folder: str) -> None:
    found = {container["image"] for document in documents(folder) for container in containers(document)}
    programs = {"base": ["operator"], "samples": ["training", "inference"]}[folder]
    assert found == {f"qmljob/{program}:{VERSION}" for program in programs}


@pytest.mark.parametrize("folder", ["base", "samples", "kind"])
def test_no_container_of_ours_can_write_to_its_root(folder: str) -> None:
    found = [container for document in documents(folder) for container in containers(document)]
    assert found
    for container in found:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_inference_sample_is_that_of_the_sample_job() -> None:
    job = only("Job", "samples")
    sample = only("QMLJob", "samples")
    assert job["metadata"]["name"] == names.inference_job_name(sample["metadata"]["name"], manual=True)
    (own,) = containers(job["spec"]["template"])
    (of_job,) = containers(sample["spec"]["inference"])
    same = ("name", "image", "command", "args", "envFrom", "resources", "volumeMounts")
    assert {key: own[key] for key in same} == {key: of_job[key] for key in same}
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == [ExitCode.INVALID_CONFIGURATION, ExitCode.BAD_ARTIFACT]


def test_the_sample_job_is_valid_and_spreads_its_own_workers() -> None:
    document = only("QMLJob", "samples")
    assert parse_job(document, Mode.STRICT).errors == ()
    (constraint,) = document["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["topologySpreadConstraints"]
    assert constraint["labelSelector"]["matchLabels"] == {
        names.LABEL_JOB: document["metadata"]["name"],
        names.LABEL_ROLE: "worker",
    }
