"""The operator's rights are what it needs: each verb is taken away in turn, and something breaks; none is lacking."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from qmljob_api import names
from qmljob_api.conditions import Phase
from qmljob_api.exitcodes import ExitCode
from support.api_client import LIMIT_SECONDS, MERGE_PATCH, Object, Response
from support.audit_log import describe, is_forbidden
from support.control_plane import ControlPlane
from support.kubelet import Kubelet, starts_and_goes
from support.operator_process import USER, OperatorProcess, running_operator
from support.stories import JOB, Action, Scene, Story, scene
from support.story_actions import (
    POLICY,
    both,
    create,
    edit,
    finish,
    lose,
    made,
    make,
    make_node,
    nothing,
    occupy,
    patch,
    policy_made_anew,
    start,
    until,
)
from support.story_steps import TEMPLATE, template

PERMISSIONS = Path(__file__).resolve().parents[2] / "manifests" / "base" / "permissions.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = {
    "ClusterRole": f"{RBAC}/clusterroles/{names.OPERATOR}",
    "Role": f"{RBAC}/namespaces/{names.OPERATOR_NAMESPACE}/roles/{names.OPERATOR}",
}
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{names.OPERATOR_NAMESPACE}/leases/{names.OPERATOR}"
HEADLESS = {"clusterIP": "None", "ports": [{"port": 1}]}
NO_POLICY = {"podSelector": {}}
WAITING_JOB = {"suspend": True, "template": template(restartPolicy="Never")}
NODE = "b"
LEADING = (f"--lease-namespace={names.OPERATOR_NAMESPACE}",)

RUNS = both(create(), until(phase=Phase.RUNNING))
ENDS = both(finish("worker-1"), finish("worker-0"))
INFERS = {"inference": {"template": TEMPLATE}}
ON_TWO_NODES = both(
    make_node(NODE), create(), made(2), start("worker-0"), start("worker-1", node=NODE), until(phase=Phase.RUNNING)
)


class Right(NamedTuple):
    """A verb on a resource of a group."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


@dataclass(frozen=True)
class Need:
    """How it shows that the operator needs a right.

    Attributes:
        breaks: what does not work without it, in words.
        before: what happens while the operator has all rights.
        then: what happens without the right.
        starts: whether the operator starts without it, too.
        spec: of the job.
        refused: the request that is refused (verb, resource), where it is another one.
        kubelet: whether pods start and go by themselves.
    """

    breaks: str
    before: Action = nothing
    then: Action = nothing
    starts: bool = False
    spec: Mapping[str, Any] = field(default_factory=dict)
    refused: tuple[str, str] | None = None
    kubelet: bool = True


def often_edited(stage: Scene) -> None:
    """Somebody edits the job faster than the operator writes its status, so that a status is refused as outdated."""
    stop = time.monotonic() + 3.0
    for number in range(10**6):
        if time.monotonic() > stop:
            return
        edit(runPolicy={"backoffLimit": 3 + number % 5})(stage)


def without_lease(stage: Scene) -> None:
    """No operator has led yet."""
    stage.plane.request("DELETE", LEASE)


def unlabelled(stage: Scene) -> None:
    """Somebody takes away the label by which the operator finds the inference Job."""
    patch("jobs", "inference", {"metadata": {"labels": {names.LABEL_JOB: None}}})(stage)


def open_policy(stage: Scene) -> None:
    """Somebody lets everybody in."""
    path = f"{stage.path(POLICY)}/{JOB}"
    stage.plane.call("PATCH", path, {"spec": {"ingress": [{}]}}, content_type=MERGE_PATCH)


UNFOUND = "is not seen: the operator never becomes ready"
UNTOLD = "is not told of: the operator learns of changes from its audits, minutes later"
NEEDS: dict[Right, Need] = {
    Right(names.GROUP, names.PLURAL, "list"): Need(f"what jobs there are {UNFOUND}", starts=True),
    Right(names.GROUP, names.PLURAL, "watch"): Need(f"a new job {UNTOLD}", starts=True),
    Right(names.GROUP, names.PLURAL, "get"): Need("a status that was refused is not reconsidered", RUNS, often_edited),
    Right(names.GROUP, names.PLURAL, "delete"): Need(
        "ttlSecondsAfterFinished", RUNS, ENDS, spec={"runPolicy": {"ttlSecondsAfterFinished": 0}}
    ),
    Right(names.GROUP, f"{names.PLURAL}/status", "update"): Need("no attempt can begin", then=create()),
    Right(names.GROUP, f"{names.PLURAL}/finalizers", "update"): Need(
        "nothing can be made that blocks its owner's deletion", then=create(), refused=("create", "pods")
    ),
    Right("", "pods", "list"): Need(f"what pods there are {UNFOUND}", starts=True),
    Right("", "pods", "watch"): Need(f"a pod's end {UNTOLD}", starts=True),
    Right("", "pods", "create"): Need("no pod is made", then=create()),
    Right("", "pods", "get"): Need(
        "nobody learns who has a pod's name", then=both(occupy("pods", "worker-1", TEMPLATE["spec"]), create())
    ),
    Right("", "pods", "delete"): Need("the gang does not restart as one", RUNS, finish("worker-1", 1)),
    Right("", "pods", "patch"): Need(
        "a pod that lost its labels is not found by its peers",
        RUNS,
        patch("pods", "worker-1", {"metadata": {"labels": {names.LABEL_INDEX: "7"}}}),
    ),
    Right("", "pods/log", "get"): Need("no progress, no last lines of a failure", RUNS),
    Right("", "services", "list"): Need(f"what Services there are {UNFOUND}", starts=True),
    Right("", "services", "watch"): Need(f"a Service that was deleted {UNTOLD}", starts=True),
    Right("", "services", "create"): Need("replicas have no names", then=create()),
    Right("", "services", "get"): Need(
        "nobody learns who has a Service's name", then=both(occupy("services", "worker-0", HEADLESS), create())
    ),
    Right("", "services", "patch"): Need(
        "a Service that was edited stays so",
        RUNS,
        patch("services", "worker-0", {"spec": {"selector": {"app": "another"}}}),
    ),
    Right("", "services", "delete"): Need(
        "Services of replicas that are gone stay", RUNS, edit(replicaSpecs={"worker": {"replicas": 1}})
    ),
    Right("networking.k8s.io", "networkpolicies", "list"): Need(f"what policies there are {UNFOUND}", starts=True),
    Right("networking.k8s.io", "networkpolicies", "watch"): Need(f"a policy that was deleted {UNTOLD}", starts=True),
    Right("networking.k8s.io", "networkpolicies", "create"): Need("no job is guarded, or has pods", then=create()),
    Right("networking.k8s.io", "networkpolicies", "get"): Need(
        "nobody learns who has the policy's name",
        then=both(make("apis/networking.k8s.io/v1/{}/networkpolicies", JOB, spec=NO_POLICY), create()),
    ),
    Right("networking.k8s.io", "networkpolicies", "patch"): Need(
        "a policy that was edited stays so", RUNS, open_policy
    ),
    Right("batch", "jobs", "list"): Need(f"what inference Jobs there are {UNFOUND}", starts=True),
    Right("batch", "jobs", "watch"): Need(f"inference's end {UNTOLD}", starts=True),
    Right("batch", "jobs", "create"): Need("no inference", RUNS, ENDS, spec=INFERS),
    Right("batch", "jobs", "get"): Need(
        "nobody learns who has the inference Job's name",
        both(RUNS, occupy("jobs", "inference", WAITING_JOB)),
        ENDS,
        spec=INFERS,
    ),
    Right("batch", "jobs", "patch"): Need(
        "an inference Job that lost its label is not found again",
        both(RUNS, ENDS, until(jobs=frozenset({"inference"}))),
        unlabelled,
        spec=INFERS,
    ),
    Right("", "nodes", "get"): Need(
        "a lost node is not told from a slow one",
        ON_TWO_NODES,
        both(lose(NODE), finish("worker-0", ExitCode.LOST_PEER, ago=8)),
        kubelet=False,
    ),
    Right("", "events", "create"): Need("kubectl describe tells nothing", then=create()),
    Right("coordination.k8s.io", "leases", "get"): Need("no operator leads", starts=True),
    Right("coordination.k8s.io", "leases", "create"): Need("no operator ever leads", without_lease, starts=True),
    Right("coordination.k8s.io", "leases", "update"): Need("no operator keeps leading", starts=True),
}
QUICK = (
    Right("", "pods", "delete"),
    Right("networking.k8s.io", "networkpolicies", "patch"),
    Right(names.GROUP, f"{names.PLURAL}/finalizers", "update"),
)
"""Those that `make test` tries; `make test-slow` tries all."""

pytestmark = pytest.mark.usefixtures("empty_stage", "operator_rights")


def test_there_is_a_need_for_each_right() -> None:
    listed = [
        Right(group, resource, verb)
        for document in yaml.safe_load_all(PERMISSIONS.read_text("utf-8"))
        if document["kind"] in ROLES
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    assert sorted(listed) == sorted(NEEDS)


@contextmanager
def without(plane: ControlPlane, right: Right) -> Iterator[None]:
    """The operator lacks a right, until the block ends."""
    path = ROLES["Role" if right.resource == "leases" else "ClusterRole"]
    rules: list[Object] = plane.call("GET", path)["rules"]
    lost = right.resource, right.verb
    kept = [
        {**rule, "verbs": [each for each in rule["verbs"] if (rule["resources"][0], each) != lost]} for rule in rules
    ]
    fewer = [rule for rule in kept if rule["verbs"]]
    assert fewer != rules
    try:
        plane.call("PATCH", path, {"rules": fewer}, content_type=MERGE_PATCH)
        await_review(plane, right, allowed=False)
        yield
    finally:
        plane.call("PATCH", path, {"rules": rules}, content_type=MERGE_PATCH)
        await_review(plane, right, allowed=True)


def await_review(plane: ControlPlane, right: Right, *, allowed: bool) -> None:
    """Waits until the API server knows whether the operator has a right."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {"group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb}
    body = {"spec": {"user": USER, "resourceAttributes": {**attributes, "namespace": names.OPERATOR_NAMESPACE}}}

    def known(answer: Response) -> bool:
        return answer.body["status"]["allowed"] is allowed

    plane.wait_until("POST", REVIEWS, known, what=f"the right to {right}", body=body)


def refused(plane: ControlPlane, wanted: tuple[str, str], since: int) -> bool:
    """Whether the operator was refused this request."""
    found = (each for each in plane.audit(USER, since) if (each.get("responseStatus") or {}).get("code") == 403)
    return any(describe(each).startswith(f"{wanted[0]} {wanted[1]}") for each in found)


def await_refusal(plane: ControlPlane, wanted: tuple[str, str], since: int) -> bool:
    """Waits until the operator was refused this request; returns whether that came."""
    again = threading.Event()
    deadline = time.monotonic() + LIMIT_SECONDS
    while not refused(plane, wanted, since):
        if time.monotonic() > deadline:
            return False
        again.wait(0.05)
    return True


def start_without(operator: OperatorProcess, wanted: tuple[str, str], since: int) -> bool:
    """Starts an operator that may not become ready for want of a right; returns whether it was refused the request."""
    seen: list[bool] = []

    def watch() -> None:
        seen.append(await_refusal(operator.plane, wanted, since))
        operator.kill()

    watching = threading.Thread(target=watch)
    watching.start()
    with suppress(RuntimeError):  # it was ended before it was ready
        operator.start()
    watching.join()
    return seen == [True]


def some(rights: Callable[[Right], bool]) -> list[Any]:
    return [pytest.param(right, need, id=f"{right}: {need.breaks}") for right, need in NEEDS.items() if rights(right)]


def check(right: Right, need: Need, kubelet: Kubelet, log: Path) -> None:
    plane = kubelet.plane
    wanted = need.refused or (right.verb, right.resource)
    flags = LEADING if right.resource == "leases" else ("--no-leader-election",)
    policy = starts_and_goes if need.kubelet else None
    with (
        running_operator(plane, log, namespaces=[kubelet.namespace], flags=flags) as operator,
        scene(plane, kubelet, operator) as stage,
        stage.playing(Story("", [], spec=need.spec, kubelet=policy)),
    ):
        if need.starts:
            operator.stop()
        need.before(stage)
        with without(plane, right):
            mark = plane.audit_mark()
            if need.starts:
                assert start_without(operator, wanted, mark), f"nothing needs the right to {right}"
                return
            need.then(stage)
            assert await_refusal(plane, wanted, mark), f"nothing needs the right to {right}"


@pytest.mark.parametrize(("right", "need"), some(lambda right: right in QUICK))
def test_without_it_something_breaks(right: Right, need: Need, kubelet: Kubelet, tmp_path: Path) -> None:
    check(right, need, kubelet, tmp_path / "log")


@pytest.mark.slow
@pytest.mark.parametrize(("right", "need"), some(lambda right: right not in QUICK))
def test_without_any_other_something_breaks(right: Right, need: Need, kubelet: Kubelet, tmp_path: Path) -> None:
    check(right, need, kubelet, tmp_path / "log")


def test_a_whole_story_asks_for_nothing_that_is_not_granted(kubelet: Kubelet, tmp_path: Path) -> None:
    """With leader election: a failure, edits, objects put right, success, inference, the end of its time."""
    plane = kubelet.plane
    mark = plane.audit_mark()
    spec = {**INFERS, "runPolicy": {"ttlSecondsAfterFinished": 1}}
    with (
        running_operator(plane, tmp_path / "log", namespaces=[kubelet.namespace], flags=LEADING) as operator,
        scene(plane, kubelet, operator) as stage,
        stage.playing(Story("", [], spec=spec, kubelet=starts_and_goes)),
    ):
        RUNS(stage)
        both(finish("worker-1", 1), until(phase=Phase.RUNNING, attempt=1))(stage)
        policy_made_anew(stage)
        both(edit(replicaSpecs={"worker": {"replicas": 1}}), until(phase=Phase.RUNNING, attempt=2))(stage)
        both(finish("worker-0"), until(jobs=frozenset({"inference"})))(stage)
        assert stage.timeline.until(lambda: "inference-0" in stage.seen().pods)
        finish("inference-0")(stage)
        stage.reach("its time is over", exists=False, pods={}, services=frozenset(), jobs=frozenset())
        requests = operator.requests(since=mark)
    assert {describe(each).split()[1] for each in requests} >= {"leases", "qmljobs", "pods", "networkpolicies", "jobs"}
    assert [describe(each) for each in requests if is_forbidden(each)] == []
