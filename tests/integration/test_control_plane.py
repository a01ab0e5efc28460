"""The tests' own control plane keeps what it promises: a real API server, an honest audit log, plays with effect."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qmljob_api import names
from qmljob_api.timestamps import parse_time
from support.api_client import MERGE_PATCH, Event, Refused, Watch
from support.audit_log import describe, is_write
from support.control_plane import ControlPlane, remove_abandoned_data
from support.control_plane_programs import KUBERNETES_VERSION, Programs, control_plane_programs
from support.kubelet import Kubelet, Policy, goes, succeeds

LIMIT_SECONDS = 30
READER = {
    "metadata": {"name": "reader"},
    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}],
}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A pod with one container, or whatever else `spec` says."""
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "trainer", "image": "x"}], **spec}}


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def worker(control_plane: ControlPlane, pods: str) -> str:
    """A new pod's name."""
    control_plane.call("POST", pods, pod("worker-0"))
    return "worker-0"


@pytest.fixture
def account(control_plane: ControlPlane, namespace: str) -> str:
    """A token of a ServiceAccount that may list pods in its namespace, and nothing else."""
    control_plane.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "reader"}})
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    control_plane.call("POST", f"{roles}/roles", READER)
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    }
    control_plane.call("POST", f"{roles}/rolebindings", binding)
    token = control_plane.service_account_token(namespace, "reader")
    control_plane.wait_until("GET", f"/api/v1/namespaces/{namespace}/pods", what="the role is in force", token=token)
    return token


def of(name: str, kind: str) -> Callable[[Event], bool]:
    return lambda event: event.name == name and event.type == kind


# The server


def test_it_is_the_version_that_is_pinned_and_kubectl_talks_to_it(control_plane: ControlPlane) -> None:
    command = [control_plane.kubectl, "--kubeconfig", control_plane.kubeconfig, "version", "--output=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS)
    versions = json.loads(done.stdout)
    assert {versions[side]["gitVersion"] for side in ("clientVersion", "serverVersion")} == {KUBERNETES_VERSION}


def test_a_namespace_takes_pods_with_its_default_account_only(
    control_plane: ControlPlane, pods: str, worker: str
) -> None:
    assert control_plane.call("GET", f"{pods}/{worker}")["spec"]["serviceAccountName"] == "default"
    refused = control_plane.request("POST", pods, pod("other", serviceAccountName="nobody"))
    assert (refused.status, "serviceaccount" in refused.message) == (403, True)


def test_rbac_refuses_what_was_not_granted(control_plane: ControlPlane, pods: str, account: str) -> None:
    assert control_plane.request("GET", pods, token=account).status == 200
    refused = control_plane.request("POST", pods, pod("a"), token=account)
    assert (refused.status, "cannot create resource" in refused.message) == (403, True)
    assert control_plane.request("GET", pods, token="a stranger's").status == 401


def test_an_owner_that_blocks_its_deletion_wants_the_right_to(
    control_plane: ControlPlane, namespace: str, pods: str, account: str
) -> None:
    """As on distributions that turn this admission on: the operator must have it in its role."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/reader"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    control_plane.call("PATCH", path, {"rules": rules}, content_type=MERGE_PATCH)
    dry = {"dryRun": "All"}
    control_plane.wait_until("POST", pods, what="the role is in force", body=pod("a"), token=account, query=dry)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u", "blockOwnerDeletion": True}
    child = pod("b")
    child["metadata"]["ownerReferences"] = [owner]
    refused = control_plane.request("POST", pods, child, token=account)
    assert (refused.status, "blockOwnerDeletion" in refused.message) == (403, True)


def test_a_kubeconfig_carries_its_tokens_rights(control_plane: ControlPlane, namespace: str, account: str) -> None:
    kubeconfig = control_plane.kubeconfig_for(account, namespace=namespace)

    def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
        command = [control_plane.kubectl, "--kubeconfig", kubeconfig, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)

    assert kubectl("get", "pods").returncode == 0
    assert "Forbidden" in kubectl("delete", "pod", "a").stderr


def test_a_namespace_is_empty_after_its_test(control_plane: ControlPlane, kubelet: Kubelet, worker: str) -> None:
    """Also of what is Terminating, and of what a finalizer holds."""
    namespace = kubelet.namespace
    kubelet.start(worker)
    path = f"/api/v1/namespaces/{namespace}/pods/{worker}"
    control_plane.call("PATCH", path, {"metadata": {"finalizers": ["qml.dev/test"]}}, content_type=MERGE_PATCH)
    control_plane.call("DELETE", path)
    control_plane.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "left"}})
    control_plane.empty_namespace(namespace)
    assert kubelet.pods() == []
    assert control_plane.call("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"] == []


def test_a_refusal_that_a_test_did_not_expect_names_request_and_reason(control_plane: ControlPlane) -> None:
    with pytest.raises(Refused, match=r'GET /api/v1/nodes/none: 404: nodes "none" not found'):
        control_plane.call("GET", "/api/v1/nodes/none")


def test_servers_and_data_end_with_a_killed_test_run() -> None:
    program = """
import os, signal
from support.control_plane import running_control_plane
with running_control_plane() as plane:
    print(plane.url, flush=True)
    signal.pause()
"""
    folder = Path(__file__).parents[1]
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout is not None
        port = process.stdout.readline().rsplit(":", 1)[-1].strip()
        servers = [line for line in processes() if f"--secure-port={port}" in line]
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_SECONDS)
    assert len(servers) == 1
    again = threading.Event()
    while any(f"--secure-port={port}" in line for line in processes()):
        again.wait(0.01)
    data = Path(re.findall(r"--cert-dir=([^\0]*)/certificates", servers[0])[0])
    assert data.exists()
    remove_abandoned_data()
    assert not data.exists()


def test_the_data_of_a_running_control_plane_stays(control_plane: ControlPlane) -> None:
    remove_abandoned_data()
    assert (control_plane.folder / "etcd").exists()


def processes() -> list[str]:
    """The command lines of all processes."""
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines.append((entry / "cmdline").read_bytes().decode(errors="replace"))
            except OSError:
                continue
    return lines


# Where its programs come from


@pytest.mark.parametrize("missing", ["kube-apiserver", "etcd", "kubectl"])
def test_an_incomplete_folder_of_programs_is_named(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in {"kube-apiserver", "etcd", "kubectl"} - {missing}:
        (tmp_path / name).touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(RuntimeError, match=f"KUBEBUILDER_ASSETS: {missing} is not in {tmp_path}; unset it"):
        control_plane_programs()


def test_programs_that_were_named_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kube-apiserver", "etcd", "kubectl"):
        (tmp_path / name).touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert control_plane_programs() == Programs(tmp_path / "kube-apiserver", tmp_path / "etcd", tmp_path / "kubectl")


# The audit log


def test_the_audit_log_has_every_request_once_with_its_answer(
    control_plane: ControlPlane, namespace: str, pods: str, account: str
) -> None:
    user = f"system:serviceaccount:{namespace}:reader"
    start = control_plane.audit_mark()
    for _ in range(3):
        control_plane.request("GET", pods, token=account)
    control_plane.request("POST", pods, pod("a"), token=account)
    control_plane.request("GET", pods)
    seen = control_plane.audit(user, since=start)
    assert [describe(each) for each in seen] == [*[f"list pods {namespace} 200"] * 3, f"create pods {namespace} 403"]
    assert [is_write(each) for each in seen] == [False, False, False, True]
    assert control_plane.audit(user, since=control_plane.audit_mark()) == []


def test_an_open_watch_is_a_request_too(control_plane: ControlPlane, namespace: str, pods: str, account: str) -> None:
    start = control_plane.audit_mark()
    with control_plane.watch(pods, token=account):
        seen = control_plane.audit(f"system:serviceaccount:{namespace}:reader", since=start)
    assert [each["verb"] for each in seen] == ["watch"]


# Watches


def test_a_watch_sees_what_was_there_and_what_comes(control_plane: ControlPlane, pods: str, worker: str) -> None:
    with control_plane.watch(pods) as watch:
        watch.until(of(worker, "ADDED"))
        control_plane.call("POST", pods, pod("worker-1"))
        control_plane.call("DELETE", f"{pods}/{worker}")
        watch.until(of("worker-1", "ADDED"))
        watch.until(of(worker, "DELETED"))
        kinds = [event.type for event in watch.events if event.name == worker]
        assert (kinds[0], kinds[-1]) == ("ADDED", "DELETED")


def test_a_wait_that_fails_says_what_came(control_plane: ControlPlane, pods: str, worker: str) -> None:
    with control_plane.watch(pods) as watch:
        watch.until(of(worker, "ADDED"))
        with pytest.raises(TimeoutError, match=r"the end did not come; the last ones were: ADDED worker-0"):
            watch.until(of(worker, "DELETED"), timeout=0.05, what="the end")


def test_a_watch_that_may_not_be_is_refused(control_plane: ControlPlane, namespace: str, account: str) -> None:
    with pytest.raises(Refused, match="cannot watch resource"):
        control_plane.watch(f"/api/v1/namespaces/{namespace}/services", token=account)


def test_closing_a_watch_ends_its_reader(control_plane: ControlPlane, pods: str, worker: str) -> None:
    watch: Watch = control_plane.watch(pods)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.extend(event.name for event in watch))
    reader.start()
    watch.until(of(worker, "ADDED"))
    watch.close()
    reader.join(LIMIT_SECONDS)
    assert (read, reader.is_alive()) == ([worker], False)


# Plays


def ready(found: dict[str, Any]) -> str:
    conditions = {each["type"]: each["status"] for each in found["status"].get("conditions", ())}
    return conditions.get("Ready", "")


def test_a_pod_starts_on_a_node_and_succeeds(kubelet: Kubelet, worker: str) -> None:
    started = kubelet.start(worker)
    assert (started["spec"]["nodeName"], started["status"]["phase"], ready(started)) == (
        kubelet.node,
        "Running",
        "True",
    )
    assert started["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    ended = kubelet.finish(worker, 0, "done")
    state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["status"]["phase"], ready(ended)) == ("Succeeded", "False")
    assert (state["exitCode"], state["reason"], state["message"]) == (0, "Completed", "done")
    assert state["startedAt"] == started["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]


def test_a_pod_fails_with_code_reason_message_and_time(kubelet: Kubelet, worker: str) -> None:
    kubelet.start(worker)
    ended = kubelet.finish(worker, 137, "out of memory", reason="OOMKilled", finished_at=1_700_000_000)
    state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["status"]["phase"] == "Failed"
    assert (state["exitCode"], state["reason"], state["message"]) == (137, "OOMKilled", "out of memory")
    assert parse_time(state["finishedAt"]) == 1_700_000_000


def test_a_pod_runs_while_one_of_its_containers_does(control_plane: ControlPlane, kubelet: Kubelet, pods: str) -> None:
    containers = [{"name": "beside", "image": "x"}, {"name": names.TRAINER_CONTAINER_NAMES[0], "image": "x"}]
    control_plane.call("POST", pods, pod("two", containers=containers))
    kubelet.start("two")
    ended = kubelet.finish("two", 7, still_running=("beside",))
    states = {each["name"]: list(each["state"]) for each in ended["status"]["containerStatuses"]}
    assert (ended["status"]["phase"], states) == ("Running", {"beside": ["running"], "trainer": ["terminated"]})
    assert kubelet.finish("two", 0)["status"]["phase"] == "Failed"


def test_a_pod_waits_for_its_image_on_a_node_and_for_a_node_on_none(kubelet: Kubelet, worker: str) -> None:
    unbound = kubelet.unschedulable(worker, "no room")
    condition = next(each for each in unbound["status"]["conditions"] if each["type"] == "PodScheduled")
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Unschedulable", "no room")
    assert "nodeName" not in unbound["spec"]
    waiting = kubelet.waiting(worker, "ErrImagePull", "no such image")
    assert (waiting["spec"]["nodeName"], waiting["status"]["phase"]) == (kubelet.node, "Pending")
    assert waiting["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"


def test_a_bound_pod_that_is_deleted_stays_until_its_kubelet_lets_it_go(
    control_plane: ControlPlane, kubelet: Kubelet, pods: str, worker: str
) -> None:
    kubelet.start(worker)
    with control_plane.watch(pods) as watch:
        control_plane.call("DELETE", f"{pods}/{worker}")
        assert kubelet.pod(worker)["metadata"]["deletionTimestamp"]
        kubelet.terminate(worker, exit_code=3)
        last = watch.until(of(worker, "DELETED")).object
    assert kubelet.pods() == []
    assert last["status"]["phase"] == "Failed"
    assert last["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_an_unbound_pod_that_is_deleted_is_gone(
    control_plane: ControlPlane, kubelet: Kubelet, pods: str, worker: str
) -> None:
    control_plane.call("DELETE", f"{pods}/{worker}")
    assert kubelet.pods() == []


@pytest.mark.parametrize(
    ("by", "reason", "stays"),
    [
        ("api", "EvictionByEvictionAPI", "Running"),
        ("scheduler", "PreemptionByScheduler", "Running"),
        ("taint-manager", "DeletionByTaintManager", "Running"),
        ("kubelet", "TerminationByKubelet", "Failed"),
    ],
)
def test_an_eviction_says_who_disrupts(kubelet: Kubelet, worker: str, by: str, reason: str, stays: str) -> None:
    kubelet.start(worker)
    kubelet.evict(worker, by)
    found = kubelet.pod(worker)
    target = next(each for each in found["status"]["conditions"] if each["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"], found["status"]["phase"]) == ("True", reason, stays)
    assert ("deletionTimestamp" in found["metadata"]) == (by != "kubelet")


def test_a_node_is_lost_and_comes_back(control_plane: ControlPlane, kubelet: Kubelet) -> None:
    def condition() -> tuple[str, str]:
        node = control_plane.call("GET", f"/api/v1/nodes/{kubelet.node}")
        found = next(each for each in node["status"]["conditions"] if each["type"] == "Ready")
        return found["status"], found["reason"]

    assert condition() == ("True", "KubeletReady")
    kubelet.set_node_ready(kubelet.node, False)
    assert condition() == ("Unknown", "NodeStatusUnknown")
    kubelet.set_node_ready(kubelet.node, True)
    assert condition() == ("True", "KubeletReady")


def test_what_a_pod_says_is_in_its_log(control_plane: ControlPlane, kubelet: Kubelet, pods: str, worker: str) -> None:
    kubelet.start(worker)
    kubelet.say(worker, "one", "two", "three")
    assert control_plane.call("GET", f"{pods}/{worker}/log") == "one\ntwo\nthree\n"
    assert control_plane.call("GET", f"{pods}/{worker}/log", query={"tailLines": 1}) == "three\n"


def test_a_play_for_a_pod_that_is_gone_does_not_meet_its_successor(
    control_plane: ControlPlane, kubelet: Kubelet, pods: str, worker: str
) -> None:
    first = kubelet.pod(worker)
    control_plane.call("DELETE", f"{pods}/{worker}")
    control_plane.call("POST", pods, pod(worker))
    with pytest.raises(Refused) as refused:
        kubelet.unschedulable(first)
    assert refused.value.status == 409


def test_a_playing_kubelet_starts_pods_and_lets_them_go(
    control_plane: ControlPlane, kubelet: Kubelet, pods: str, worker: str
) -> None:
    with control_plane.watch(pods) as watch, kubelet.playing():
        watch.until(lambda event: event.object["status"].get("phase") == "Running")
        control_plane.call("DELETE", f"{pods}/{worker}")
        watch.until(of(worker, "DELETED"))


def test_a_playing_kubelet_follows_a_policy(
    control_plane: ControlPlane, kubelet: Kubelet, pods: str, worker: str
) -> None:
    with control_plane.watch(pods) as watch, kubelet.playing(succeeds):
        watch.until(lambda event: event.object["status"].get("phase") == "Succeeded")
    control_plane.call("POST", pods, pod("worker-1"))
    kubelet.start("worker-1")
    with control_plane.watch(pods) as watch, kubelet.playing(goes):
        control_plane.call("DELETE", f"{pods}/worker-1")
        watch.until(of("worker-1", "DELETED"))


def test_what_goes_wrong_in_a_playing_kubelet_is_seen(control_plane: ControlPlane, kubelet: Kubelet, pods: str) -> None:
    def fail(_: Kubelet, __: dict[str, Any]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        create_under(control_plane, kubelet, pods, fail)


def create_under(control_plane: ControlPlane, kubelet: Kubelet, pods: str, policy: Policy) -> None:
    with control_plane.watch(pods) as watch, kubelet.playing(policy):
        control_plane.call("POST", pods, pod("worker-0"))
        watch.until(of("worker-0", "ADDED"))
