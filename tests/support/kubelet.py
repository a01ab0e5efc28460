"""Plays scheduler, kubelet and node controllers against an API server: what happens to pods and nodes on a cluster.

    kubelet.start("qcnn-worker-0")
    kubelet.finish("qcnn-worker-0", exit_code=1, message="boom")
    with kubelet.playing():      # every pod starts, and goes when it is deleted, without being told
        ...

Pods are bound through their `binding`, as a scheduler does it, so that reality is kept: a pod that was bound and is
deleted stays, Terminating, until its kubelet lets it go; one that never was is gone at once. Times are to the second.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeAlias

from qmljob_api import names
from qmljob_api.timestamps import format_time
from qmljob_operator.resources.common import main_container
from support.api_client import LIMIT_SECONDS, MERGE_PATCH, STRATEGIC_PATCH, Event, Object, Refused, Response
from support.control_plane import ControlPlane
from support.kubelet_logs import PodLogs, log_server

SIGTERM_EXIT_CODE = 143
"""How a program ends that does nothing about SIGTERM."""
_CONTAINERS = (*names.TRAINER_CONTAINER_NAMES, *names.INFERENCE_CONTAINER_NAMES)
_ADDRESSES = itertools.count(1)
_ENDED = "may not be transitioned"
"""What the API server says of a container that would run again."""
_GONE = frozenset({404, 409})

Pod: TypeAlias = Object | str
"""A pod's object, or its name."""


class Kubelet:
    """The plays, in one namespace. Each reads the pod as it is now, and returns what it has become."""

    def __init__(self, plane: ControlPlane, namespace: str, *, node: str = "node-0", logs_port: int = 0) -> None:
        """`node` is where pods go that no play binds elsewhere; `logs_port` is served by a `log_server`."""
        self.plane = plane
        self.namespace = namespace
        self.node = node
        self.logs = PodLogs()
        self.nodes: dict[str, bool] = {}
        """The nodes that were made here, and whether they answer."""
        self._logs_port = logs_port

    def pod(self, pod: Pod) -> Object:
        """Returns a pod as the server has it.

        Raises:
            Refused: there is none (404), or it is another one of the same name than the object given (409).
        """
        path = self._path(pod)
        found: Object = self.plane.call("GET", path)
        if isinstance(pod, dict) and found["metadata"]["uid"] != pod["metadata"]["uid"]:
            raise Refused("GET", path, Response(409, "this is another pod of the same name"))
        return found

    def pods(self) -> list[Object]:
        """Returns all pods of the namespace."""
        items: list[Object] = self.plane.call("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return items

    # Nodes

    def make_node(self, name: str | None = None, *, ready: bool = True, taints: list[Object] | None = None) -> Object:
        """Makes a node, or does nothing where it is there."""
        name = name or self.node
        created = self.plane.request("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        if not created.ok and created.status != 409:
            raise Refused("POST", "/api/v1/nodes", created)
        # Admission taints a new node; the node controller takes that away once it is ready.
        self.set_taints(name, taints or [])
        return self.set_node_ready(name, ready)

    def set_node_ready(self, name: str, ready: bool) -> Object:
        """Says that a node's kubelet reports, or that nothing was heard of it for too long.

        Its pods are then no longer ready, as the node controller has it, and no policy plays for them.
        """
        self.nodes[name] = ready
        now = format_time(time.time())
        condition = {"type": "Ready", "lastHeartbeatTime": now, "lastTransitionTime": now}
        condition |= (
            {"status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
            if ready
            else {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
        )
        status: Object = {
            "conditions": [condition],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._logs_port}},
        }
        node = self._patch(f"/api/v1/nodes/{name}/status", {"status": status})
        if not ready:
            for pod in self.pods_on(name):
                self._set_status(pod, {"conditions": [_condition("Ready", False)]})
        return node

    def delete_node(self, name: str) -> None:
        """Deletes a node, its pods aside."""
        self.nodes[name] = False
        self.plane.call("DELETE", f"/api/v1/nodes/{name}")

    def pods_on(self, node: str) -> list[Object]:
        """Returns the pods that were bound to a node."""
        return [pod for pod in self.pods() if pod["spec"].get("nodeName") == node]

    def set_taints(self, name: str, taints: list[Object]) -> Object:
        """Replaces a node's taints, `{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}` for one."""
        path = f"/api/v1/nodes/{name}"
        result: Object = self.plane.call("PATCH", path, {"spec": {"taints": taints}}, content_type=MERGE_PATCH)
        return result

    # A pod's way up

    def bind(self, pod: Pod, node: str | None = None) -> Object:
        """Schedules a pod to a node; does nothing where it is on one."""
        found = self.pod(pod)
        if not found["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": node or self.node}
            binding = {"metadata": {"name": found["metadata"]["name"]}, "target": target}
            self.plane.call("POST", f"{self._path(found)}/binding", binding)
            found = self.pod(pod)
        return found

    def unschedulable(self, pod: Pod, message: str = "0/1 nodes are available: 1 Insufficient cpu.") -> Object:
        """Says that the scheduler finds no node for a pod."""
        condition = _condition("PodScheduled", False, reason="Unschedulable", message=message)
        return self._set_status(self.pod(pod), {"conditions": [condition]})

    def waiting(self, pod: Pod, reason: str = "ImagePullBackOff", message: str = "Back-off pulling image") -> Object:
        """Binds a pod, and keeps its containers from starting."""
        found = self.bind(pod)
        state = {"waiting": {"reason": reason, "message": message}}
        conditions = [_condition("PodScheduled", True), _condition("Initialized", True), *_ready(False)]
        statuses = {"containerStatuses": [_container_status(each, state) for each in _containers(found)]}
        return self._set_status(found, {"phase": "Pending", "conditions": conditions, **self._host(found), **statuses})

    def start(self, pod: Pod, node: str | None = None, *, at: float | None = None) -> Object:
        """Binds a pod and starts all its containers, at a time in seconds since the epoch, or now."""
        found = self.bind(pod, node)
        started = format_time(time.time() if at is None else at)
        self.logs.clear(self.namespace, found["metadata"]["name"])
        state = {"running": {"startedAt": started}}
        conditions = [_condition("PodScheduled", True), _condition("Initialized", True), *_ready(True)]
        status: Object = {
            "phase": "Running",
            "startTime": started,
            "conditions": conditions,
            "containerStatuses": [_container_status(each, state, running=True) for each in _containers(found)],
            **self._host(found),
        }
        if "initContainers" in found["spec"]:
            ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": started}}
            status["initContainerStatuses"] = [
                _container_status(each, state, running=True)
                if each.get("restartPolicy") == "Always"
                else _container_status(each, ended)
                for each in found["spec"]["initContainers"]
            ]
        return self._set_status(found, status)

    def say(self, pod: Pod, *lines: str) -> None:
        """Writes lines to the output of a pod's main container: what `kubectl logs` shows."""
        found = self.pod(pod)
        container = main_container(found["spec"], _CONTAINERS)["name"]
        self.logs.write(self.namespace, found["metadata"]["name"], container, lines)

    # A pod's way down

    def finish(
        self,
        pod: Pod,
        exit_code: int = 0,
        message: str = "",
        *,
        reason: str | None = None,
        finished_at: float | None = None,
        others: Mapping[str, int] | None = None,
        still_running: tuple[str, ...] = (),
    ) -> Object:
        """Ends a pod's containers: the main one as told, `others` with their own exit codes, the rest with 0.

        The pod stays Running while a container named in `still_running` does. `finished_at` is in seconds since the
        epoch, now where it is left out; `message` is the termination message; `reason` is the kubelet's word where it
        is another than Completed or Error (OOMKilled).
        """
        found = self.pod(pod)
        main = main_container(found["spec"], _CONTAINERS)["name"]
        codes = {main: exit_code, **(others or {})}
        ended = format_time(time.time() if finished_at is None else finished_at)
        statuses = []
        for known in (found.get("status") or {}).get("containerStatuses") or [
            _container_status(each, {}) for each in _containers(found)
        ]:
            name = known["name"]
            if name in still_running or "terminated" in known["state"]:
                statuses.append(known)
                continue
            code = codes.get(name, 0)
            terminated = {
                "exitCode": code,
                "reason": (reason if name == main else None) or ("Error" if code else "Completed"),
                "startedAt": known["state"].get("running", {}).get("startedAt", ended),
                "finishedAt": ended,
            }
            if name == main and message:
                terminated["message"] = message
            statuses.append(known | {"ready": False, "started": False, "state": {"terminated": terminated}})
        return self._set_status(found, _ended_status(statuses))

    def evict(self, pod: Pod, by: str = "api") -> Object:
        """Takes a pod away by api (kubectl drain), scheduler (preemption), taint-manager (a lost node) or kubelet.

        A kubelet under pressure ends the pod itself, which stays, Failed. The others mark it and delete it: a pod that
        was bound stays, Terminating, until `terminate`.
        """
        found = self.pod(pod)
        name = found["metadata"]["name"]
        if by == "api":
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            self.plane.call("POST", f"{self._path(pod)}/eviction", body)
            return found
        word, message = _DISRUPTIONS[by]
        target = _condition("DisruptionTarget", True, reason=word, message=message)
        if by == "kubelet":
            return self._set_status(
                found, {"phase": "Failed", "reason": "Evicted", "message": message, "conditions": [target]}
            )
        marked = self._set_status(found, {"conditions": [target]})
        self.plane.call("DELETE", self._path(pod))
        return marked

    def terminate(self, pod: Pod, exit_code: int = SIGTERM_EXIT_CODE) -> None:
        """Lets a Terminating pod go: its containers end, with this exit code where they still run, then it is gone."""
        found = self.pod(pod)
        if found["metadata"].get("deletionTimestamp") is None:
            raise AssertionError(f"pod {found['metadata']['name']} is not being deleted")
        if found["status"].get("phase") == "Running":
            self.finish(found, exit_code)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": found["metadata"]["uid"]}}
        try:
            self.plane.call("DELETE", self._path(pod), options)
        except Refused as refused:
            if refused.status != HTTPStatus.NOT_FOUND:  # gone is what it has to be, whoever was first
                raise

    # Without being told

    @contextmanager
    def playing(self, policy: "Policy | None" = None) -> Iterator[None]:
        """Follows a policy for each change of a pod, until the block ends. What the policy raises, the block raises."""
        act = policy or starts_and_goes
        failures: list[BaseException] = []
        with self.plane.watch(f"/api/v1/namespaces/{self.namespace}/pods") as watch:

            def play() -> None:
                try:
                    for event in watch:
                        self.react(act, event)
                except BaseException as error:
                    failures.append(error)

            thread = threading.Thread(target=play, name="kubelet", daemon=True)
            thread.start()
            try:
                yield
            finally:
                watch.close()
                thread.join(LIMIT_SECONDS)
        if failures:
            raise failures[0]

    def react(self, policy: "Policy", event: Event) -> None:
        """Follows a policy for one change of a pod."""
        node = event.object["spec"].get("nodeName")
        if event.type == "DELETED" or not self.nodes.get(node, True):
            return
        try:
            policy(self, event.object)
        except Refused as error:
            # Else the pod has moved on since the event (it has ended, perhaps), and its next one comes.
            if error.status not in _GONE and _ENDED not in str(error):
                raise

    def _host(self, pod: Object) -> Object:
        known = (pod.get("status") or {}).get("podIP")
        number = next(_ADDRESSES)
        address = known or f"10.244.{number // 250 % 250}.{number % 250 + 1}"
        return {"hostIP": "127.0.0.1", "hostIPs": [{"ip": "127.0.0.1"}], "podIP": address, "podIPs": [{"ip": address}]}

    def _set_status(self, pod: Object, status: Object) -> Object:
        # The uid keeps a play for one pod from another one of the same name.
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        return self._patch(f"{self._path(pod)}/status", body)

    def _patch(self, path: str, body: Object) -> Object:
        result: Object = self.plane.call("PATCH", path, body, content_type=STRATEGIC_PATCH)
        return result

    def _path(self, pod: Pod) -> str:
        name = pod if isinstance(pod, str) else pod["metadata"]["name"]
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"


Policy: TypeAlias = Callable[[Kubelet, Object], None]
"""What a kubelet does when a pod has changed, without being told."""


@contextmanager
def running_kubelet(plane: ControlPlane, namespace: str) -> Iterator[Kubelet]:
    """A kubelet with a node of its own, and a server for its pods' logs, until the block ends."""
    with log_server(plane) as server:
        kubelet = Kubelet(plane, namespace, node=f"node-of-{namespace}", logs_port=server.port)
        server.logs = kubelet.logs
        kubelet.make_node()
        try:
            yield kubelet
        finally:
            for node in kubelet.nodes:
                plane.request("DELETE", f"/api/v1/nodes/{node}")


def starts_and_goes(kubelet: Kubelet, pod: Object) -> None:
    """A policy: a new pod starts, a Terminating one goes."""
    if pod["metadata"].get("deletionTimestamp"):
        kubelet.terminate(pod)
    elif pod["status"]["phase"] == "Pending":
        kubelet.start(pod)


def succeeds(kubelet: Kubelet, pod: Object) -> None:
    """A policy: a new pod starts and succeeds, a Terminating one goes."""
    if pod["metadata"].get("deletionTimestamp") or pod["status"]["phase"] == "Pending":
        starts_and_goes(kubelet, pod)
    elif pod["status"]["phase"] == "Running":
        kubelet.finish(pod, 0)


def goes(kubelet: Kubelet, pod: Object) -> None:
    """A policy: nothing starts by itself, but a Terminating pod goes."""
    if pod["metadata"].get("deletionTimestamp"):
        kubelet.terminate(pod)


_DISRUPTIONS = {
    "scheduler": ("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"),
    "taint-manager": ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
    "kubelet": ("TerminationByKubelet", "The node was low on resource: memory."),
}


def _containers(pod: Object) -> list[Object]:
    containers: list[Object] = pod["spec"]["containers"]
    return containers


def _condition(kind: str, holds: bool, *, reason: str = "", message: str = "") -> Object:
    condition = {
        "type": kind,
        "status": "True" if holds else "False",
        "lastTransitionTime": format_time(time.time()),
        "reason": reason,
        "message": message,
    }
    return {key: value for key, value in condition.items() if value}


def _ready(holds: bool) -> list[Object]:
    reason = "" if holds else "ContainersNotReady"
    return [_condition(kind, holds, reason=reason) for kind in ("ContainersReady", "Ready")]


def _container_status(container: Object, state: Object, *, running: bool = False) -> Object:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "restartCount": 0,
        "ready": running,
        "started": running,
        "state": state,
    }


def _ended_status(statuses: list[Object]) -> Object:
    """Returns the status of a pod some or all of whose containers have ended."""
    codes = [status["state"]["terminated"]["exitCode"] for status in statuses if "terminated" in status["state"]]
    if len(codes) < len(statuses):
        return {"containerStatuses": statuses, "conditions": _ready(False)}
    phase, reason = ("Failed", "PodFailed") if any(codes) else ("Succeeded", "PodCompleted")
    conditions: list[dict[str, Any]] = [
        _condition("Initialized", True, reason=reason if phase == "Succeeded" else ""),
        _condition("ContainersReady", False, reason=reason),
        _condition("Ready", False, reason=reason),
    ]
    return {"phase": phase, "containerStatuses": statuses, "conditions": conditions}
