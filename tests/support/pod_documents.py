"""Pods as the API server shows them, at each turn of their life: what kubelet, scheduler and controllers write.

Every function takes a pod's document and returns a new one; times are seconds since the epoch.
"""

import copy
from typing import Any

from qmljob_api import names
from qmljob_api.timestamps import format_time, parse_time
from qmljob_operator.resources.common import main_container

Document = dict[str, Any]

NODE = "node-a"
GRACE_SECONDS = 30
_CONTAINERS = (*names.TRAINER_CONTAINER_NAMES, *names.INFERENCE_CONTAINER_NAMES)
DISRUPTIONS = {
    "EvictionByEvictionAPI": "Eviction API: evicting",
    "PreemptionByScheduler": "default-scheduler: preempting to accommodate a higher priority pod",
    "DeletionByTaintManager": "Taint manager: deleting due to NoExecute taint",
    "DeletionByPodGC": "PodGC: node no longer exists",
    "TerminationByKubelet": "The node was low on resource: memory. Threshold quantity: 100Mi, available: 48124Ki. ",
}
"""The reasons of a DisruptionTarget condition, with the words that come with each."""


def created(pod: Document, *, uid: str, at: float) -> Document:
    """Returns a pod as the API server answers its creation."""
    metadata = {**pod["metadata"], "uid": uid, "creationTimestamp": format_time(at)}
    return {**copy.deepcopy(pod), "metadata": metadata, "status": {"phase": "Pending", "qosClass": "BestEffort"}}


def unschedulable(pod: Document, message: str = "0/3 nodes are available: 3 Insufficient cpu.") -> Document:
    """Returns a pod that the scheduler finds no node for."""
    _must(not pod["spec"].get("nodeName"), "a pod with a node is scheduled")
    return _with_condition(pod, "PodScheduled", "False", "Unschedulable", message)


def waiting(pod: Document, reason: str = "ContainerCreating", message: str = "", *, node: str = NODE) -> Document:
    """Returns a pod on a node whose main container can't start yet."""
    _must(_phase(pod) == "Pending", "only a pending pod waits")
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    bound = _bound(_without_condition(pod, "PodScheduled"), node)
    return _with_status(bound, phase="Pending", containerStatuses=_containers(bound, state))


def running(pod: Document, *, at: float, node: str = NODE) -> Document:
    """Returns a pod whose containers run."""
    _must(_phase(pod) == "Pending" and not _deleting(pod), "only a pending pod that nobody deletes starts")
    bound = _bound(_without_condition(pod, "PodScheduled"), node)
    state = {"running": {"startedAt": format_time(at)}}
    found = _with_status(bound, phase="Running", startTime=format_time(at), containerStatuses=_containers(bound, state))
    return _with_condition(found, "Ready", "True", at=at)


def ended(
    pod: Document, code: int, *, at: float, reason: str = "", message: str = "", still_running: tuple[str, ...] = ()
) -> Document:
    """Returns a pod whose main container ended, with the containers `still_running` going on and others ended with 0.

    `message` is the termination message, `reason` kubelet's word where it is another than Completed or Error.
    """
    _must(_phase(pod) == "Running", "only a running pod ends")
    main = main_container(pod["spec"], _CONTAINERS)["name"]
    statuses = []
    for status in pod["status"]["containerStatuses"]:
        if status["name"] in still_running:
            statuses.append(status)
            continue
        own = code if status["name"] == main else 0
        words = reason if reason and status["name"] == main else "Error" if own else "Completed"
        terminated = {"exitCode": own, "reason": words, "finishedAt": format_time(at)}
        if message and status["name"] == main:
            terminated["message"] = message
        statuses.append({**status, "ready": False, "state": {"terminated": terminated}})
    phase = "Running" if still_running else "Failed" if code else "Succeeded"
    return _with_condition(_with_status(pod, phase=phase, containerStatuses=statuses), "Ready", "False", at=at)


def failed(pod: Document, reason: str, message: str, *, at: float) -> Document:
    """Returns a pod that its node refused or ended as a whole, without a word on its containers."""
    found = _with_status(_bound(pod, NODE), phase="Failed", reason=reason, message=message, startTime=format_time(at))
    found["status"].pop("containerStatuses", None)
    return found


def disrupted(pod: Document, reason: str = "EvictionByEvictionAPI", *, at: float) -> Document:
    """Returns a pod that the cluster has said to take away."""
    return _with_condition(pod, "DisruptionTarget", "True", reason, DISRUPTIONS[reason], at=at)


def unready(pod: Document, *, at: float) -> Document:
    """Returns a pod whose node the cluster has lost sight of."""
    return _with_condition(pod, "Ready", "False", at=at)


def deleting(pod: Document, *, at: float, grace_seconds: int | None = None) -> Document | None:
    """Returns a pod whose deletion was asked for, or None where it is gone with that.

    As the API server does it: a pod without a node, or one that has ended, goes at once; a second request may shorten
    the grace and never extends it.
    """
    if not pod["spec"].get("nodeName") or _phase(pod) in ("Failed", "Succeeded") or grace_seconds == 0:
        return None
    own = pod["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS)
    grace = own if grace_seconds is None else grace_seconds
    before = parse_time(pod["metadata"].get("deletionTimestamp"))
    if before is not None and before <= at + grace:
        return pod
    times = {"deletionTimestamp": format_time(at + grace), "deletionGracePeriodSeconds": grace}
    return {**pod, "metadata": {**pod["metadata"], **times}}


def is_deleting(pod: Document) -> bool:
    """Returns whether a pod's deletion was asked for."""
    return _deleting(pod)


def _must(condition: bool, sentence: str) -> None:
    if not condition:
        raise ValueError(f"this can't happen on a cluster: {sentence}")


def _phase(pod: Document) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _deleting(pod: Document) -> bool:
    return pod["metadata"].get("deletionTimestamp") is not None


def _bound(pod: Document, node: str) -> Document:
    known = pod["spec"].get("nodeName") or node
    return _with_condition({**pod, "spec": {**pod["spec"], "nodeName": known}}, "PodScheduled", "True")


def _containers(pod: Document, state: Document) -> list[Document]:
    up = "running" in state
    return [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": up,
            "started": up,
            "restartCount": 0,
            "lastState": {},
            "state": state,
        }
        for container in pod["spec"]["containers"]
    ]


def _with_status(pod: Document, **fields: Any) -> Document:
    return {**pod, "status": {**(pod.get("status") or {}), **fields}}


def _without_condition(pod: Document, kind: str) -> Document:
    known = (pod.get("status") or {}).get("conditions") or []
    return _with_status(pod, conditions=[condition for condition in known if condition["type"] != kind])


def _with_condition(
    pod: Document, kind: str, status: str, reason: str = "", message: str = "", *, at: float | None = None
) -> Document:
    condition = {"type": kind, "status": status}
    if reason:
        condition |= {"reason": reason, "message": message}
    if at is not None:
        condition["lastTransitionTime"] = format_time(at)
    bare = _without_condition(pod, kind)
    return _with_status(bare, conditions=[*bare["status"]["conditions"], condition])
