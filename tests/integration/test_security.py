"""What a job's author can't get from the operator, and what the pods of a job can't do, on a real API server."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from qmljob_api import names
from qmljob_api.conditions import Phase
from qmljob_api.testing import TEMPLATE, manifest
from support.api_client import MERGE_PATCH, Object, Response
from support.control_plane import ControlPlane
from support.kubelet import starts_and_goes
from support.stories import JOB, Scene, Story, gang
from support.story_actions import both, create, enforce, finish, until

SAMPLE = Path(__file__).resolve().parents[2] / "manifests" / "samples" / "qcnn.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
JOBS_ONLY = [
    {"apiGroups": [names.GROUP], "resources": [names.PLURAL], "verbs": ["get", "create", "update", "patch", "delete"]},
    {"apiGroups": [names.GROUP], "resources": [f"{names.PLURAL}/scale"], "verbs": ["get", "update", "patch"]},
]
AND_PODS = [*JOBS_ONLY, {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]


class Author:
    """Somebody with these rights in a namespace, in force."""

    def __init__(self, plane: ControlPlane, namespace: str, name: str, rules: Sequence[Object]) -> None:
        self.plane = plane
        self.name = f"system:serviceaccount:{namespace}:{name}"
        self.path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
        plane.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
        plane.call("POST", f"{RBAC}/{namespace}/roles", {"metadata": {"name": name}, "rules": rules})
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        plane.call("POST", f"{RBAC}/{namespace}/rolebindings", binding)
        self.token = plane.service_account_token(namespace, name)
        plane.wait_until(
            "GET",
            f"{self.path}/{JOB}",
            lambda answer: answer.status != 403,
            what="the role is in force",
            token=self.token,
        )

    def create(self, body: Object) -> Response:
        return self.plane.request("POST", self.path, body, token=self.token)

    def patch(self, body: Object, subresource: str = "") -> Response:
        path = f"{self.path}/{JOB}{subresource}"
        return self.plane.request("PATCH", path, body, content_type=MERGE_PATCH, token=self.token)


def refusal(author: Author, namespace: str) -> str:
    return (
        f"{author.name} may not create pods in namespace {namespace}, and a QMLJob has pods made: ask for the right to "
        "create pods there; the role edit has it"
    )


CHANGES: dict[str, tuple[Object, bool]] = {
    "a template": ({"spec": {"replicaSpecs": {"worker": {"template": {"spec": {"hostNetwork": True}}}}}}, False),
    "a number of replicas": ({"spec": {"replicaSpecs": {"worker": {"replicas": 3}}}}, False),
    "suspension": ({"spec": {"suspend": True}}, False),
    "a label": ({"metadata": {"labels": {"team": "a"}}}, True),
    "the same again": ({"spec": {"replicaSpecs": {"worker": {"template": TEMPLATE}}}}, True),
}


@pytest.mark.usefixtures("operator_rights")
def test_who_may_not_create_pods_can_not_have_them_created(control_plane: ControlPlane, namespace: str) -> None:
    author = Author(control_plane, namespace, "author", JOBS_ONLY)
    job = manifest({"name": JOB})
    # A policy is in force a moment after it is written.
    refused = control_plane.wait_until(
        "POST",
        author.path,
        lambda answer: not answer.ok,
        what="the admission policy is in force",
        body=job,
        token=author.token,
        query={"dryRun": "All"},
    )
    assert (refused.status, refusal(author, namespace) in refused.message) == (403, True), refused.message
    control_plane.call("POST", author.path, job)
    for what, (change, allowed) in CHANGES.items():
        answer = author.patch(change)
        assert answer.ok is allowed, f"{what}: {answer.status} {answer.message}"
        assert allowed or refusal(author, namespace) in answer.message
    # More or fewer of the pods that somebody else described, as with a Deployment's scale.
    assert author.patch({"spec": {"replicas": 4}}, "/scale").ok


@pytest.mark.usefixtures("operator_rights")
def test_who_may_create_pods_may_create_and_edit_jobs(control_plane: ControlPlane, namespace: str) -> None:
    author = Author(control_plane, namespace, "author", AND_PODS)
    assert author.create(manifest({"name": JOB})).ok
    for what, (change, _) in CHANGES.items():
        answer = author.patch(change)
        assert answer.ok, f"{what}: {answer.message}"


@pytest.mark.usefixtures("operator_rights")
def test_the_right_to_create_pods_counts_where_the_job_is(control_plane: ControlPlane, namespace: str) -> None:
    elsewhere = f"{namespace}-other"
    control_plane.make_namespace(elsewhere)
    author = Author(control_plane, namespace, "author", AND_PODS)
    binding = {
        "metadata": {"name": "author"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "author"},
        "subjects": [{"kind": "ServiceAccount", "name": "author", "namespace": namespace}],
    }
    control_plane.call("POST", f"{RBAC}/{elsewhere}/roles", {"metadata": {"name": "author"}, "rules": JOBS_ONLY})
    control_plane.call("POST", f"{RBAC}/{elsewhere}/rolebindings", binding)
    there = author.path.replace(f"/{namespace}/", f"/{elsewhere}/")
    refused = control_plane.wait_until(
        "POST",
        there,
        lambda answer: answer.ok or "QMLJob has pods made" in answer.message,
        what="the role is in force",
        body=manifest({"name": JOB}),
        token=author.token,
    )
    assert (refused.status, f"create pods in namespace {elsewhere}" in refused.message) == (403, True)
    control_plane.empty_namespace(elsewhere)


# Pods


def test_the_sample_meets_the_restricted_standard_and_no_pod_of_it_has_a_token(stage: Scene) -> None:
    enforce("restricted")(stage)
    with stage.playing(Story("", [], kubelet=starts_and_goes)):
        stage.manifest = yaml.safe_load(SAMPLE.read_text("utf-8"))
        create()(stage)
        stage.reach("the sample runs", phase=Phase.RUNNING, pods=gang(0))
        both(finish("worker-1"), finish("worker-0"), until(jobs=frozenset({"inference"})))(stage)
        assert stage.timeline.until(lambda: "inference-0" in stage.seen().pods), "inference has no pod"
        pods = [each.object for each in stage.timeline.happenings() if each.kind == "pods"]
    assert {pod["metadata"]["name"] for pod in pods} == {"qcnn-worker-0", "qcnn-worker-1", "qcnn-inference-0"}
    for pod in pods:
        assert not has_token(pod), pod["metadata"]["name"]
    stage.check_promises()


def has_token(pod: Object) -> bool:
    """Whether a pod gets a token of the API server, in whatever way."""
    projected = [volume.get("projected", {}).get("sources", ()) for volume in pod["spec"].get("volumes", ())]
    mounted = any("serviceAccountToken" in source for sources in projected for source in sources)
    return mounted or bool(pod["spec"].get("automountServiceAccountToken"))


FOREIGN: Object = {
    "name": "kube-dns",
    "generateName": "kube-",
    "namespace": "kube-system",
    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "1", "controller": True}],
    "finalizers": ["example.com/never"],
}


def test_a_template_can_not_place_its_pods_elsewhere_nor_say_whose_they_are(stage: Scene) -> None:
    template: dict[str, Any] = {**copy.deepcopy(TEMPLATE), "metadata": FOREIGN}
    with stage.playing(Story("", [], spec={"replicaSpecs": {"worker": {"replicas": 2, "template": template}}})):
        create()(stage)
        stage.reach("its pods are where it is", pods=gang(0))
        job = stage.job()
        assert job is not None
        for pod in stage.timeline.present("pods"):
            owners = [owner["uid"] for owner in pod["metadata"]["ownerReferences"]]
            assert (owners, pod["metadata"].get("finalizers")) == ([job["metadata"]["uid"]], None)
        assert stage.operator.writes("kube-system") == []
