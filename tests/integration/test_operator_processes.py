"""The operator as a process: one of two leads, one finishes what a crash left of another, and what it tells."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from qmljob_api import names
from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.exitcodes import ExitCode
from qmljob_api.progress import InferenceResult, to_line
from qmljob_api.reasons import Reason
from qmljob_api.testing import manifest
from support.api_client import LIMIT_SECONDS, Object
from support.audit_log import describe
from support.control_plane import ControlPlane
from support.injector.proxy import injector_before
from support.kubelet import Kubelet, starts_and_goes
from support.operator_process import OperatorProcess, running_operator
from support.stories import Scene, Seen, Story, gang, scene
from support.story_actions import both, create, delete_job, evict, finish, start, until
from support.story_steps import SUCCEEDED, TEMPLATE, roles

pytestmark = pytest.mark.usefixtures("empty_stage", "operator_rights")

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{names.OPERATOR_NAMESPACE}/leases"
WITH_A_LEASE = (f"--lease-namespace={names.OPERATOR_NAMESPACE}",)
MANY = 40
RESULT = InferenceResult(artifact="gs://bucket/w.h5", mse=0.25, sign_accuracy=0.9, examples=12)


def await_metric(operator: OperatorProcess, name: str, value: float, **labels: str) -> None:
    again = threading.Event()
    for _ in range(int(LIMIT_SECONDS / 0.05)):
        if operator.metric(name, **labels) == value:
            return
        again.wait(0.05)
    raise AssertionError(f"{name}{labels} is {operator.metric(name, **labels)}, not {value}")


# Two of them


@pytest.fixture
def pair(control_plane: ControlPlane, tmp_path: Path) -> Iterator[tuple[OperatorProcess, OperatorProcess]]:
    """Two operators: the first one leads, the other one stands by."""
    control_plane.request("DELETE", f"{LEASES}/{names.OPERATOR}")
    with ExitStack() as stack:
        leader = stack.enter_context(running_operator(control_plane, tmp_path / "leader", flags=WITH_A_LEASE))
        await_metric(leader, "qmljob_leader", 1)
        yield leader, stack.enter_context(running_operator(control_plane, tmp_path / "standby", flags=WITH_A_LEASE))
    control_plane.request("DELETE", f"{LEASES}/{names.OPERATOR}")


def writes_of(operator: OperatorProcess) -> float:
    """How many writes a process has counted; both have one identity to the API server."""
    verbs = ("create", "update", "patch", "delete", "apply")
    return sum(operator.metric("qmljob_api_requests_total", verb=verb) for verb in verbs)


def test_of_two_operators_the_one_that_leads_writes(
    kubelet: Kubelet, pair: tuple[OperatorProcess, OperatorProcess]
) -> None:
    leader, standby = pair
    with scene(kubelet.plane, kubelet, leader) as stage, stage.playing(Story("", [], kubelet=starts_and_goes)):
        both(create(), until(phase=Phase.RUNNING))(stage)
        assert standby.metric("qmljob_leader") == 0
        assert (writes_of(standby), standby.passes()) == (0, 0)
        assert [standby.get(path)[0] for path in ("/healthz", "/readyz")] == [200, 200]
        assert standby.metric("qmljob_cache_objects", kind="pods") == 2
        assert standby.metric("qmljob_jobs", phase="Running") == 1
        stage.check_promises()


def test_a_leader_that_is_killed_in_the_middle_of_its_writes_is_followed_by_the_other_one(
    kubelet: Kubelet, pair: tuple[OperatorProcess, OperatorProcess]
) -> None:
    leader, standby = pair
    story = Story("", [], spec={"replicaSpecs": roles(worker=MANY)})
    with scene(kubelet.plane, kubelet, standby) as stage, stage.playing(story):
        create()(stage)
        assert stage.timeline.until(lambda: any(stage.timeline.present("pods")))
        leader.kill()
        assert len(stage.seen().pods) < MANY, "it was killed too late"
        stage.reach("the other one goes on", attempt=0, pods=gang(0, worker=MANY), again=frozenset())
        both(start(), until(phase=Phase.RUNNING, restarts=0, disruptions=0))(stage)
        assert writes_of(standby) > 0
        stage.check_promises()
    assert standby.complaints() == []


def test_a_leader_that_is_stopped_gives_its_lease_to_the_other_one(
    kubelet: Kubelet, pair: tuple[OperatorProcess, OperatorProcess]
) -> None:
    leader, standby = pair
    plane = kubelet.plane
    with scene(plane, kubelet, standby) as stage, stage.playing(Story("", [], kubelet=starts_and_goes)):
        with plane.watch(LEASES) as watch:
            assert leader.stop() == 0
            both(create(), until(phase=Phase.RUNNING))(stage)
            holders = [event.object["spec"].get("holderIdentity") or "" for event in watch.events]
        changes = [holder for before, holder in zip(["", *holders], holders, strict=False) if holder != before]
        assert len(changes) == 3, changes
        assert changes[1] == ""  # given back, not run out
        assert leader.complaints() + standby.complaints() == []
        stage.check_promises()


# Crashes


def plays(kubelet: Kubelet, pod: Object) -> None:
    """A policy: attempt 0 fails, the next one succeeds, and so does inference."""
    attempt = pod["metadata"]["labels"].get(names.LABEL_ATTEMPT)
    first = pod["metadata"]["name"].endswith("-0")
    if pod["metadata"].get("deletionTimestamp") or pod["status"]["phase"] == "Pending":
        starts_and_goes(kubelet, pod)
    elif pod["status"]["phase"] == "Running" and attempt is None:
        kubelet.finish(pod, 0, to_line(RESULT))
    elif pod["status"]["phase"] == "Running" and attempt == "0":
        kubelet.finish(pod, ExitCode.LOST_PEER if first else 1)
    elif pod["status"]["phase"] == "Running":
        kubelet.finish(pod, 0)


@pytest.mark.parametrize("served", [False, True], ids=["before they arrive", "before their answer arrives"])
def test_requests_that_get_lost_are_made_good(served: bool, kubelet: Kubelet, tmp_path: Path) -> None:
    story = Story("", [], spec={"inference": {"template": TEMPLATE}}, kubelet=plays)
    with (
        injector_before(kubelet.plane) as proxy,
        running_operator(kubelet.plane, tmp_path / "log", url=proxy.url) as operator,
        scene(kubelet.plane, kubelet, operator) as stage,
        stage.playing(story),
    ):
        proxy.lose(every=3, served=served)
        create()(stage)
        ends_well(stage)
        assert operator.metric("qmljob_reconcile_errors_total", kind="transient") > 0
        assert operator.metric("qmljob_reconcile_errors_total", kind="bug") == 0
    assert operator.complaints() == []


def ends_well(stage: Scene) -> None:
    """The story that `plays` makes ends as it does without any trouble."""
    stage.reach("inference is over", mse=0.25, services=frozenset(), ready="0/2")
    stage.come_to_rest()
    assert stage.seen() == Seen(
        exists=True,
        phase=Phase.SUCCEEDED,
        holds=SUCCEEDED | {ConditionType.INFERENCE_SUCCEEDED: Reason.INFERENCE_SUCCEEDED},
        attempt=1,
        restarts=1,
        ready="0/2",
        pods=gang(1) | {"inference-0": None},
        jobs=frozenset({"inference"}),
        failure=("worker-1", 1, Reason.REPLICA_FAILED),
        mse=0.25,
    )
    stage.check_promises()


def test_an_operator_that_loses_the_api_server_stays_alive_and_goes_on(kubelet: Kubelet, tmp_path: Path) -> None:
    with (
        injector_before(kubelet.plane) as proxy,
        running_operator(kubelet.plane, tmp_path / "log", url=proxy.url) as operator,
        scene(kubelet.plane, kubelet, operator) as stage,
        stage.playing(Story("", [], kubelet=starts_and_goes)),
    ):
        both(create(), until(phase=Phase.RUNNING))(stage)
        proxy.cut()
        await_answer(operator, "/readyz", 503)
        assert operator.get("/healthz")[0] == 200
        assert "api-server" in operator.get("/readyz")[1]
        evict("worker-1")(stage)
        proxy.mend()
        await_answer(operator, "/readyz", 200)
        stage.reach("it goes on", phase=Phase.RUNNING, attempt=1, disruptions=1, pods=gang(1))
        assert operator.running
        stage.check_promises()


def await_answer(operator: OperatorProcess, path: str, status: int) -> None:
    again = threading.Event()
    for _ in range(int(LIMIT_SECONDS / 0.05)):
        if operator.get(path)[0] == status:
            return
        again.wait(0.05)
    raise AssertionError(f"{path} answers {operator.get(path)}")


# What it serves, and what it tells


def test_an_operator_of_some_namespaces_leaves_the_others_alone(kubelet: Kubelet, tmp_path: Path) -> None:
    plane = kubelet.plane
    other = f"{kubelet.namespace}-other"
    plane.make_namespace(other)
    jobs = f"/apis/{names.API_VERSION}/namespaces/{other}/{names.PLURAL}"
    try:
        plane.call("POST", jobs, manifest({"name": "qcnn"}))
        mark = plane.audit_mark()
        with (
            running_operator(plane, tmp_path / "log", namespaces=(kubelet.namespace,)) as operator,
            scene(plane, kubelet, operator) as stage,
            stage.playing(Story("", [], kubelet=starts_and_goes)),
        ):
            both(create(), until(phase=Phase.RUNNING))(stage)
            stage.check_promises()
            assert [describe(each) for each in operator.requests(other, since=mark)] == []
            everywhere = [each for each in operator.requests(since=mark) if each["verb"] in {"list", "watch"}]
            scopes = {(each.get("objectRef") or {}).get("namespace") for each in everywhere}
            assert scopes == {kubelet.namespace}
            assert operator.complaints() == []
        assert "status" not in plane.call("GET", f"{jobs}/qcnn")
    finally:
        plane.empty_namespace(other)


def test_metrics_tell_what_happened(kubelet: Kubelet, tmp_path: Path) -> None:
    with (
        running_operator(kubelet.plane, tmp_path / "log") as operator,
        scene(kubelet.plane, kubelet, operator) as stage,
        stage.playing(Story("", [], spec={"runPolicy": {"backoffLimit": 1}})),
    ):
        mark = kubelet.plane.audit_mark()
        both(create(), until(pods=gang(0)), start(), until(phase=Phase.RUNNING))(stage)
        both(evict("worker-1"), until(pods=gang(1)), start(), until(phase=Phase.RUNNING))(stage)
        both(finish("worker-0", 1), finish("worker-1", 1))(stage)
        both(until(pods=gang(2)), start(), until(phase=Phase.RUNNING))(stage)
        both(finish("worker-0", 1), finish("worker-1", 1), until(phase=Phase.FAILED, services=frozenset()))(stage)
        both(delete_job(), until(exists=False, pods={}))(stage)
        both(create(), until(pods=gang(0)), start(), until(phase=Phase.RUNNING))(stage)
        both(finish("worker-1"), finish("worker-0"), until(phase=Phase.SUCCEEDED, services=frozenset()))(stage)
        stage.come_to_rest()
        wanted: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {
            ("jobs_created_total", ()): 2,
            ("jobs_succeeded_total", ()): 1,
            ("jobs_failed_total", (("reason", "BackoffLimitExceeded"),)): 1,
            ("restarts_total", (("reason", "Disrupted"), ("charged", "false"))): 1,
            ("restarts_total", (("reason", "ReplicaFailed"), ("charged", "true"))): 1,
            ("restarts_total", ()): 2,
            ("jobs", (("phase", "Succeeded"),)): 1,
            ("jobs", ()): 1,
            ("reconcile_errors_total", ()): 0,
            ("queue_depth", ()): 0,
            ("leader", ()): 1,
            ("cache_objects", (("kind", "qmljobs"),)): 1,
            ("cache_objects", (("kind", "pods"),)): 2,
            ("cache_objects", (("kind", "services"),)): 0,
        }
        told = {(name, labels): operator.metric(f"qmljob_{name}", **dict(labels)) for name, labels in wanted}
        assert told == wanted
        created = [
            describe(each) for each in operator.writes(stage.namespace, since=mark) if "create pods" in describe(each)
        ]
        assert (
            operator.metric("qmljob_api_requests_total", verb="create", resource="pods", code="201")
            == len(created)
            == 8
        )
        assert [operator.get(path) for path in ("/healthz", "/readyz")] == [(200, "ok\n")] * 2


def test_the_log_has_the_job_and_its_attempt_in_each_line_of_a_pass(kubelet: Kubelet, tmp_path: Path) -> None:
    with (
        running_operator(kubelet.plane, tmp_path / "log") as operator,
        scene(kubelet.plane, kubelet, operator) as stage,
        stage.playing(Story("", [], kubelet=starts_and_goes)),
    ):
        both(create(), until(phase=Phase.RUNNING), evict("worker-1"), until(phase=Phase.RUNNING, attempt=1))(stage)
        stage.come_to_rest()
        lines: list[dict[str, Any]] = [line for line in operator.log() if "job" in line]
        assert {line["job"] for line in lines} == {f"{stage.namespace}/qcnn"}
        notes = {event["message"]: event["reason"] for event in stage.events()}
        logged = {line["message"].partition(": ")[2]: line["message"].partition(": ")[0] for line in lines}
        assert notes.items() <= logged.items()
        assert {line.get("attempt") for line in lines} == {None, 0, 1}
        assert any(line["message"].endswith(f" on port {operator.port}") for line in operator.log())
