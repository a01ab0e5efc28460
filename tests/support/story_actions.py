"""What may happen in a story (`support.stories`): somebody, the cluster or the operator does something."""

import time
from collections.abc import Callable
from typing import Any

from qmljob_api import names
from qmljob_api.progress import Progress, to_line
from support.api_client import MERGE_PATCH, Object, Response
from support.stories import JOB, Action, Scene, full_name
from support.timeline import PATHS

STRANGER: Object = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1b9d", "controller": True}
"""The owner of an object that is somebody else's."""
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def both(*actions: Action) -> Action:
    """Several things, one after the other."""

    def act(scene: Scene) -> None:
        for action in actions:
            action(scene)

    return act


def nothing(_: Scene) -> None:
    """Nothing but time."""


def until(**changes: Any) -> Action:
    """Nothing but time, until these fields of `Seen` are so: for a step that goes on from there."""
    return lambda scene: scene.reach("on the way", **changes)


# People


def create() -> Action:
    """Somebody applies the story's manifest."""
    return lambda scene: scene.plane.call("POST", scene.path(names.PLURAL), scene.manifest)


def edit(**spec: Any) -> Action:
    """Somebody edits parts of the job's spec."""
    return lambda scene: scene.plane.call("PATCH", scene.job_path(), {"spec": spec}, content_type=MERGE_PATCH)


def edit_status(**parts: Any) -> Action:
    """Somebody edits parts of the job's status by hand; None takes one away."""

    def act(scene: Scene) -> None:
        scene.plane.call("PATCH", f"{scene.job_path()}/status", {"status": parts}, content_type=MERGE_PATCH)

    return act


def delete_job() -> Action:
    """Somebody deletes the job."""
    return lambda scene: scene.plane.call("DELETE", scene.job_path(), {"propagationPolicy": "Background"})


def delete(kind: str, name: str) -> Action:
    """Somebody deletes an object of the job."""
    return lambda scene: scene.plane.call("DELETE", scene.path(kind, name), {"propagationPolicy": "Background"})


def patch(kind: str, name: str, body: Object) -> Action:
    """Somebody edits an object of the job."""
    return lambda scene: scene.plane.call("PATCH", scene.path(kind, name), body, content_type=MERGE_PATCH)


def undone(kind: str, name: str, body: Object) -> Action:
    """Somebody edits an object of the job, and it becomes again what it was."""

    def act(scene: Scene) -> None:
        before = _contents(scene.plane.call("GET", scene.path(kind, name)))
        edited = scene.plane.call("PATCH", scene.path(kind, name), body, content_type=MERGE_PATCH)
        assert _contents(edited) != before, "this edit changes nothing"
        back = scene.timeline.until(
            lambda: _contents(_find(scene, kind, name)) == before and not _is_behind(scene, kind, edited)
        )
        assert back, f"{kind} {name} stayed as it was edited"

    return act


def made_anew(kind: str, name: str, *others: tuple[str, str]) -> Action:
    """Somebody deletes an object of the job, and it is made again, and so are `others` (kind, name) that go with it."""

    def act(scene: Scene) -> None:
        known = {each: _find(scene, *each)["metadata"]["uid"] for each in ((kind, name), *others)}
        delete(kind, name)(scene)

        def back() -> bool:
            return all(_find(scene, *each).get("metadata", {}).get("uid", old) != old for each, old in known.items())

        assert scene.timeline.until(back), f"{kind} {name} was not made again"

    return act


def occupy(kind: str, name: str, spec: Object, *, owned: bool = False, labelled: bool = False) -> Action:
    """Somebody has an object under a name that the job needs; `owned` by a ReplicaSet, `labelled` like the job's."""

    def act(scene: Scene) -> None:
        metadata: Object = {"name": full_name(name)}
        if owned:
            metadata["ownerReferences"] = [STRANGER]
        if labelled:
            metadata["labels"] = {names.LABEL_JOB: JOB}
        scene.plane.call("POST", scene.path(kind), {"metadata": metadata, "spec": spec})

    return act


POLICY = "networkpolicies"


def undone_policy(body: Object) -> Action:
    """Somebody edits the job's NetworkPolicy, and it becomes again what it was."""

    def act(scene: Scene) -> None:
        before = _contents(_policy(scene))
        path = f"{scene.path(POLICY)}/{JOB}"
        edited = scene.plane.call("PATCH", path, body, content_type=MERGE_PATCH)
        assert _contents(edited) != before, "this edit changes nothing"
        back = scene.timeline.until(
            lambda: _contents(_policy(scene)) == before and not _is_behind(scene, POLICY, edited)
        )
        assert back, "the NetworkPolicy stayed as it was edited"

    return act


def policy_made_anew(scene: Scene) -> None:
    """Somebody deletes the job's NetworkPolicy, and it is made again as it was."""
    before = _policy(scene)
    scene.plane.call("DELETE", f"{scene.path(POLICY)}/{JOB}")

    def back() -> bool:
        found = _policy(scene)
        return _contents(found) == _contents(before) and found["metadata"]["uid"] != before["metadata"]["uid"]

    assert scene.timeline.until(back), "the NetworkPolicy was not made again"


def _policy(scene: Scene) -> Object:
    return next((each for each in scene.timeline.present(POLICY) if each["metadata"]["name"] == JOB), {})


def make(path: str, name: str, **parts: Any) -> Action:
    """Somebody makes an object of a kind that jobs do not own, in the namespace."""

    def act(scene: Scene) -> None:
        place = f"/{path.format(f'namespaces/{scene.namespace}')}"
        scene.plane.call("POST", place, {"metadata": {"name": name}, **parts})

    return act


def make_account(name: str) -> Action:
    """Somebody makes a ServiceAccount in the namespace."""
    return make("api/v1/{}/serviceaccounts", name)


def set_quota(hard: int, used: int, *, kind: str = "pods") -> Action:
    """The namespace may have so many of a kind, and has some: no controller counts them here. In force at the end."""

    def act(scene: Scene) -> None:
        path = f"/api/v1/namespaces/{scene.namespace}/resourcequotas"
        key = {"pods": "pods", "jobs": "count/jobs.batch"}[kind]
        limit = {"hard": {key: str(hard)}}
        if not scene.plane.request("GET", f"{path}/{kind}").ok:
            scene.plane.call("POST", path, {"metadata": {"name": kind}, "spec": limit})
        status = {**limit, "used": {key: str(used)}}
        scene.plane.call("PATCH", f"{path}/{kind}", {"spec": limit}, content_type=MERGE_PATCH)
        scene.plane.call("PATCH", f"{path}/{kind}/status", {"status": status}, content_type=MERGE_PATCH)
        _await_admission(scene, kind, lambda answer: answer.ok if used < hard else "exceeded" in answer.message)

    return act


def enforce(level: str) -> Action:
    """The namespace takes only pods of this level of Pod Security. In force at the end."""

    def act(scene: Scene) -> None:
        labels = {"pod-security.kubernetes.io/enforce": level}
        path = f"/api/v1/namespaces/{scene.namespace}"
        scene.plane.call("PATCH", path, {"metadata": {"labels": labels}}, content_type=MERGE_PATCH)
        _await_admission(scene, "pods", lambda answer: answer.ok is (level == "privileged"))

    return act


def set_webhook(scene: Scene) -> None:
    """Whoever makes a pod in the namespace needs the consent of a server that is away. In force at the end."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    webhook = {
        "name": "consent.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": rules,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {"metadata": {"name": scene.namespace}, "webhooks": [webhook]}
    scene.plane.call("POST", _WEBHOOKS, body)
    _await_admission(scene, "pods", lambda answer: "failed calling webhook" in answer.message)


def remove_webhook(scene: Scene) -> None:
    """Nobody's consent is needed any more, at the end of this."""
    scene.plane.call("DELETE", f"{_WEBHOOKS}/{scene.namespace}")
    _await_admission(scene, "pods", lambda answer: answer.ok)


def _await_admission(scene: Scene, kind: str, done: Callable[[Response], bool]) -> None:
    """Waits until the API server judges new objects by what it was told a moment ago."""
    spec: Object = {"containers": [{"name": "a", "image": "x"}]}
    if kind == "jobs":
        spec = {"template": {"spec": {**spec, "restartPolicy": "Never"}}}
    probe = {"metadata": {"name": "probe"}, "spec": spec}
    place = PATHS[kind].format(scene.namespace)
    scene.plane.wait_until("POST", place, done, what="admission knows", body=probe, query={"dryRun": "All"})


# The cluster


def made(pods: int) -> Action:
    """The job gets so many pods: for a step that goes on with them."""

    def act(scene: Scene) -> None:
        assert scene.timeline.until(lambda: len(scene.seen().pods) == pods), f"{pods} pods were not made"

    return act


def unschedulable(replica: str) -> Action:
    """The scheduler finds no node for a replica."""
    return lambda scene: scene.kubelet.unschedulable(full_name(replica))


def waiting(replica: str, reason: str, message: str = "Back-off pulling image") -> Action:
    """A replica is on a node, and can't start."""
    return lambda scene: scene.kubelet.waiting(full_name(replica), reason, message)


def start(*replicas: str, node: str = "") -> Action:
    """These replicas start, or all that have not; on a node of this name, or on the usual one."""

    def act(scene: Scene) -> None:
        for pod in scene.kubelet.pods():
            short = pod["metadata"]["name"].removeprefix(f"{JOB}-")
            if pod["status"]["phase"] == "Pending" and (not replicas or short in replicas):
                scene.kubelet.start(pod, _node(scene, node))

    return act


def started(replica: str) -> Action:
    """A replica starts by itself: for a step that goes on from there."""

    def act(scene: Scene) -> None:
        runs = scene.timeline.until(lambda: _find(scene, "pods", replica).get("status", {}).get("phase") == "Running")
        assert runs, f"{replica} did not start"

    return act


def finish(
    replica: str, exit_code: int = 0, message: str = "", *, ago: float = 0.0, reason: str | None = None
) -> Action:
    """A replica's program ends; `ago` seconds before now, where it is only known now."""

    def act(scene: Scene) -> None:
        ended = time.time() - ago
        scene.kubelet.finish(full_name(replica), exit_code, message, reason=reason, finished_at=ended)

    return act


def say(replica: str, *lines: str) -> Action:
    """A replica's program writes lines to its output."""
    return lambda scene: scene.kubelet.say(full_name(replica), *lines)


def report(epoch: int, replica: str = "worker-0", **parts: Any) -> Action:
    """A replica's program writes a progress line."""
    return say(replica, to_line(progress(epoch, **parts)))


def progress(epoch: int, **parts: Any) -> Progress:
    """Returns the progress of worker 0 after an epoch."""
    numbers = dict.fromkeys(("sign_accuracy", "val_loss", "val_sign_accuracy", "learning_rate"), 0.5)
    times = dict.fromkeys(("seconds", "validation_seconds", "examples_per_second"), 1.0)
    place = {"role": "worker", "index": 0, "attempt": 0, "epochs": 20, "step": 10 * epoch}
    return Progress(**{**place, **numbers, **times, "epoch": epoch, "loss": 0.25, **parts})


def evict(replica: str, by: str = "api") -> Action:
    """The cluster takes a replica away."""
    return lambda scene: scene.kubelet.evict(full_name(replica), by)


def let_go(*replicas: str) -> Action:
    """Terminating pods go."""

    def act(scene: Scene) -> None:
        for replica in replicas:
            scene.kubelet.terminate(full_name(replica))

    return act


def make_node(node: str) -> Action:
    """There is another node. Its name is that of the usual one with a suffix, so that no two tests share one."""
    return lambda scene: scene.kubelet.make_node(_node(scene, node))


def lose(node: str) -> Action:
    """Nothing is heard of a node any more."""
    return lambda scene: scene.kubelet.set_node_ready(_node(scene, node), False)


def bring_back(node: str) -> Action:
    """A node answers again; its kubelet finds which of its pods were deleted, and lets them go."""

    def act(scene: Scene) -> None:
        name = _node(scene, node)
        scene.kubelet.set_node_ready(name, True)
        for pod in scene.kubelet.pods_on(name):
            if pod["metadata"].get("deletionTimestamp"):
                scene.kubelet.terminate(pod)

    return act


def delete_node(node: str) -> Action:
    """Somebody deletes a node, and the cluster's collector the pods that it had."""

    def act(scene: Scene) -> None:
        name = _node(scene, node)
        scene.kubelet.delete_node(name)
        for pod in scene.kubelet.pods_on(name):
            remove(pod["metadata"]["name"].removeprefix(f"{JOB}-"))(scene)

    return act


def remove(replica: str) -> Action:
    """A pod is deleted without its node's consent, as the collector does it for a node that is out of service."""

    def act(scene: Scene) -> None:
        scene.plane.call("DELETE", scene.path("pods", replica), {"gracePeriodSeconds": 0})

    return act


def node_name(scene: Scene, node: str) -> str:
    """Returns the full name of a node that goes by its suffix in stories."""
    return f"{scene.kubelet.node}-{node}"


# The operator


def kill_operator(scene: Scene) -> None:
    """The operator's node is lost."""
    scene.operator.kill()


def start_operator(scene: Scene) -> None:
    """An operator starts."""
    scene.operator.start()


def _find(scene: Scene, kind: str, name: str) -> Object:
    """Returns an object as the watches show it, empty where there is none."""
    found = (each for each in scene.timeline.present(kind) if each["metadata"]["name"] == full_name(name))
    return next(found, {})


def _is_behind(scene: Scene, kind: str, known: Object) -> bool:
    """Whether the watches show an object in no later version than the known one."""
    versions = {
        each["metadata"]["uid"]: int(each["metadata"]["resourceVersion"]) for each in scene.timeline.present(kind)
    }
    return versions.get(known["metadata"]["uid"], 0) <= int(known["metadata"]["resourceVersion"])


def _contents(item: Object) -> Object:
    return {"labels": item.get("metadata", {}).get("labels"), "spec": item.get("spec")}


def _node(scene: Scene, node: str) -> str | None:
    return node_name(scene, node) if node else None
