"""What a pass sees in the documents that kubelet, scheduler, node controllers and container runtimes write."""

import copy
from typing import Any

import pytest

from qmljob_api import names
from qmljob_api.timestamps import parse_time
from qmljob_operator.observation import (
    NO_ATTEMPT,
    End,
    NodeView,
    PodState,
    PodView,
    is_owned_by,
    name_taken,
    termination_message,
    view_node,
    view_pod,
)

Document = dict[str, Any]

NOON = "2026-11-21T12:00:00Z"
LATER = "2026-11-21T12:05:00Z"
LAST = "2026-11-21T12:10:00Z"
AT_NOON, AT_LATER = parse_time(NOON), parse_time(LATER)


def at(text: str) -> float:
    seconds = parse_time(text)
    assert seconds is not None
    return seconds


def document(
    *, deletion: Document | None = None, sidecar: bool = False, labels: Document | None = None, **status: Any
) -> Document:
    """A replica's pod with a status, as `kubectl get pod -o json` shows it."""
    containers = [{"name": "trainer", "image": "qmljob/training:0.1.0"}]
    if sidecar:
        containers.insert(0, {"name": "log-shipper", "image": "fluent-bit"})
    own = {names.LABEL_JOB: "qcnn", names.LABEL_ROLE: "worker", names.LABEL_INDEX: "1", names.LABEL_ATTEMPT: "3"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "qcnn-worker-1",
            "namespace": "default",
            "uid": "5f6a",
            "creationTimestamp": "2026-11-21T11:59:00Z",
            "labels": own if labels is None else labels,
            **(deletion or {}),
        },
        "spec": {"nodeName": "kind-worker", "restartPolicy": "Never", "containers": containers},
        "status": {"qosClass": "BestEffort", **status},
    }


def container(state: Document, name: str = "trainer") -> Document:
    up = "running" in state
    return {
        "name": name,
        "image": "i",
        "imageID": "",
        "ready": up,
        "started": up,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def terminated(code: int, reason: str = "Error", *, finished: str | None = LATER, message: str = "") -> Document:
    words = {"message": message} if message else {}
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "startedAt": NOON,
            "finishedAt": finished,
            "containerID": "containerd://0a1b",
            **words,
        }
    }


def waiting(reason: str, message: str | None = None) -> Document:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def condition(kind: str, status: str = "True", *, since: str = LATER, **words: str) -> Document:
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since, **words}


def target(reason: str, message: str, since: str = LATER) -> Document:
    return condition("DisruptionTarget", since=since, reason=reason, message=message)


RUNNING = {"running": {"startedAt": NOON}}
UP = [condition("PodScheduled"), condition("Initialized"), condition("ContainersReady"), condition("Ready")]
DOWN = [condition("Ready", "False", reason="PodFailed"), condition("PodScheduled")]
DELETED_LATER = {"deletionTimestamp": "2026-11-21T12:05:30Z", "deletionGracePeriodSeconds": 30}
API_EVICTION = target("EvictionByEvictionAPI", "Eviction API: evicting")
PREEMPTION = target("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod")
PRESSURE = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 48124Ki. "
STORAGE = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "
DEADLINE = "Pod was active on the node longer than the specified deadline"

ENDS: dict[str, tuple[Document, End | None]] = {
    # By itself
    "it ended with 0": (
        document(phase="Succeeded", containerStatuses=[container(terminated(0, "Completed"))]),
        End(0, at(LATER)),
    ),
    "it failed, and its last lines are its termination message": (
        document(phase="Failed", containerStatuses=[container(terminated(1, message="Traceback …\nValueError: no\n"))]),
        End(1, at(LATER), message="Traceback …\nValueError: no\n"),
    ),
    "it ran out of memory": (
        document(phase="Failed", containerStatuses=[container(terminated(137, "OOMKilled"))]),
        End(137, at(LATER), detail="out of memory"),
    ),
    "its command is not there": (
        document(
            phase="Failed",
            containerStatuses=[
                container(terminated(128, "StartError", message='exec: "pyhton": executable file not found in $PATH'))
            ],
        ),
        End(
            128,
            at(LATER),
            detail="its container can't be started",
            message='exec: "pyhton": executable file not found in $PATH',
        ),
    ),
    "the training container ended, a sidecar goes on": (
        document(
            sidecar=True,
            phase="Running",
            containerStatuses=[container(RUNNING, "log-shipper"), container(terminated(3))],
        ),
        End(3, at(LATER)),
    ),
    "a sidecar ended, the training container goes on": (
        document(
            sidecar=True,
            phase="Running",
            containerStatuses=[container(terminated(1), "log-shipper"), container(RUNNING)],
            conditions=UP,
        ),
        None,
    ),
    "an init container failed": (
        document(
            phase="Failed",
            initContainerStatuses=[container(terminated(0, "Completed"), "a"), container(terminated(7), "b")],
            containerStatuses=[container(waiting("PodInitializing"))],
        ),
        End(7, at(LATER)),
    ),
    "an init container failed, and kubelet has not said that this ends the pod": (
        document(
            phase="Pending",
            initContainerStatuses=[container(terminated(7), "b")],
            containerStatuses=[container(waiting("PodInitializing"))],
        ),
        None,
    ),
    "the deadline of its own template, with what the container did": (
        document(
            phase="Failed", reason="DeadlineExceeded", message=DEADLINE, containerStatuses=[container(terminated(143))]
        ),
        End(143, at(LATER), detail="the activeDeadlineSeconds of its own template are over"),
    ),
    "the deadline of its own template, without": (
        document(phase="Failed", reason="DeadlineExceeded", message=DEADLINE, conditions=DOWN),
        End(137, at(LATER), False, "the activeDeadlineSeconds of its own template are over", DEADLINE),
    ),
    "it took more storage than it may": (
        document(phase="Failed", reason="Evicted", message=STORAGE, containerStatuses=[container(terminated(137))]),
        End(137, at(LATER), detail=STORAGE.strip()),
    ),
    # By the cluster
    "evicted through the API, and still running": (
        document(
            deletion=DELETED_LATER,
            phase="Running",
            containerStatuses=[container(RUNNING)],
            conditions=[*UP, API_EVICTION],
        ),
        End(137, at(LATER), True, "Eviction API: evicting"),
    ),
    "preempted, and not deleted yet": (
        document(phase="Running", containerStatuses=[container(RUNNING)], conditions=[*UP, PREEMPTION]),
        End(137, at(LATER), True, "default-scheduler: preempting to accommodate a higher priority pod"),
    ),
    "preempted, and it answered SIGTERM with 75": (
        document(
            deletion=DELETED_LATER,
            phase="Failed",
            containerStatuses=[container(terminated(75, finished="2026-11-21T12:05:04Z"))],
            conditions=[*DOWN, PREEMPTION],
        ),
        End(75, at("2026-11-21T12:05:04Z"), True, "default-scheduler: preempting to accommodate a higher priority pod"),
    ),
    "evicted, and it answered SIGTERM with 0: it has not finished": (
        document(
            deletion=DELETED_LATER,
            phase="Succeeded",
            containerStatuses=[container(terminated(0, "Completed", finished="2026-11-21T12:05:04Z"))],
            conditions=[*DOWN, API_EVICTION],
        ),
        End(0, at("2026-11-21T12:05:04Z"), True, "Eviction API: evicting"),
    ),
    "it had ended with 0 before its node was drained": (
        document(
            phase="Succeeded",
            containerStatuses=[container(terminated(0, "Completed", finished=NOON))],
            conditions=[*DOWN, target("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")],
        ),
        End(0, at(NOON)),
    ),
    "the eviction was called off": (
        document(
            phase="Running",
            containerStatuses=[container(RUNNING)],
            conditions=[*UP, condition("DisruptionTarget", "False", reason="EvictionByEvictionAPI")],
        ),
        None,
    ),
    "its node was low on memory": (
        document(
            phase="Failed",
            reason="Evicted",
            message=PRESSURE,
            containerStatuses=[container(terminated(137))],
            conditions=[*DOWN, target("TerminationByKubelet", PRESSURE)],
        ),
        End(137, at(LATER), True, PRESSURE.strip()),
    ),
    "its node was low on memory, says a kubelet that knows no DisruptionTarget": (
        document(phase="Failed", reason="Evicted", message=PRESSURE, containerStatuses=[container(terminated(137))]),
        End(137, at(LATER), True, PRESSURE.strip()),
    ),
    "its node shut down": (
        document(
            phase="Failed",
            reason="Terminated",
            message="Pod was terminated in response to imminent node shutdown.",
            containerStatuses=[container(terminated(143))],
            conditions=[
                *DOWN,
                target("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown."),
            ],
        ),
        End(143, at(LATER), True, "Pod was terminated in response to imminent node shutdown."),
    ),
    "its node was restarted: containerd found the container dead": (
        document(phase="Failed", containerStatuses=[container(terminated(255, "Unknown"))]),
        End(255, at(LATER), True, "its node was restarted"),
    ),
    "its node was restarted: kubelet found no container": (
        document(
            phase="Failed", containerStatuses=[container(terminated(137, "ContainerStatusUnknown", finished=None))]
        ),
        End(137, 0.0, True, "its node was restarted"),
    ),
    "its node is gone, and the garbage collector marked it": (
        document(
            phase="Failed",
            containerStatuses=[container(RUNNING)],
            conditions=[condition("Ready", since=NOON), target("DeletionByPodGC", "PodGC: node no longer exists")],
        ),
        End(137, at(LATER), True, "PodGC: node no longer exists", ""),
    ),
    "its node refused it": (
        document(
            phase="Failed",
            reason="OutOfcpu",
            message="Node didn't have enough resource: cpu, requested: 4000, used: 1000, capacity: 4000",
            startTime=LATER,
        ),
        End(
            137,
            at(LATER),
            True,
            "OutOfcpu: Node didn't have enough resource: cpu, requested: 4000, used: 1000, capacity: 4000",
            "Node didn't have enough resource: cpu, requested: 4000, used: 1000, capacity: 4000",
            refused=True,
        ),
    ),
    "it failed, and nobody says why": (
        document(phase="Failed"),
        End(137, 0.0, True, "Failed: no further word", "", refused=True),
    ),
    "it succeeded, and its containers are forgotten": (document(phase="Succeeded", conditions=UP), End(0, at(LATER))),
    # By a person
    "deleted while it ran": (
        document(deletion=DELETED_LATER, phase="Running", containerStatuses=[container(RUNNING)], conditions=UP),
        End(137, at(LATER), True, "its pod was deleted"),
    ),
    "deleted before it started": (
        document(deletion=DELETED_LATER, phase="Pending", containerStatuses=[container(waiting("ContainerCreating"))]),
        End(137, at(LATER), True, "its pod was deleted"),
    ),
    "deleted, and it answered SIGTERM with 0": (
        document(
            deletion=DELETED_LATER,
            phase="Running",
            containerStatuses=[container(terminated(0, "Completed", finished="2026-11-21T12:05:10Z"))],
        ),
        End(0, at("2026-11-21T12:05:10Z"), True, "its pod was deleted"),
    ),
    "it had ended with 0 before somebody deleted it": (
        document(
            deletion=DELETED_LATER,
            phase="Running",
            sidecar=True,
            containerStatuses=[container(RUNNING, "log-shipper"), container(terminated(0, "Completed", finished=NOON))],
        ),
        End(0, at(NOON)),
    ),
    "it had failed before somebody deleted it": (
        document(
            deletion=DELETED_LATER,
            phase="Running",
            sidecar=True,
            containerStatuses=[container(RUNNING, "log-shipper"), container(terminated(1, finished=NOON))],
        ),
        End(1, at(NOON)),
    ),
    # Not at all
    "it waits": (document(phase="Pending", containerStatuses=[container(waiting("ContainerCreating"))]), None),
    "it runs": (document(phase="Running", containerStatuses=[container(RUNNING)], conditions=UP), None),
    "it was just created": (document(phase="Pending"), None),
}


@pytest.mark.parametrize(("pod", "end"), ENDS.values(), ids=ENDS.keys())
def test_how_a_pod_ended(pod: Document, end: End | None) -> None:
    before = copy.deepcopy(pod)
    view = view_pod(pod)
    assert view.end == end
    assert (view.state is PodState.ENDED) is (end is not None)
    assert pod == before


STUCK: dict[str, tuple[Document, tuple[str, str] | None]] = {
    **{
        f"a container waits: {reason}": (
            document(phase="Pending", containerStatuses=[container(waiting(reason, "words"))]),
            (reason, "words"),
        )
        for reason in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError")
    },
    "a container is being made": (
        document(phase="Pending", containerStatuses=[container(waiting("ContainerCreating"))]),
        None,
    ),
    "the image of a sidecar can't be pulled": (
        document(
            sidecar=True,
            phase="Pending",
            containerStatuses=[
                container(waiting("ErrImagePull", "not found"), "log-shipper"),
                container(waiting("ContainerCreating")),
            ],
        ),
        ("ErrImagePull", "not found"),
    ),
    "an init container that goes on beside the others crashes again and again": (
        document(
            phase="Pending",
            initContainerStatuses=[container(waiting("CrashLoopBackOff", "back-off 40s restarting"), "proxy")],
            containerStatuses=[container(waiting("PodInitializing"))],
        ),
        ("CrashLoopBackOff", "back-off 40s restarting"),
    ),
    "no node has room": (
        document(
            phase="Pending",
            conditions=[condition("PodScheduled", "False", reason="Unschedulable", message="0/3 nodes are available")],
        ),
        ("Unschedulable", "0/3 nodes are available"),
    ),
    "a gate holds it": (
        document(
            phase="Pending",
            conditions=[
                condition("PodScheduled", "False", reason="SchedulingGated", message="Scheduling is blocked due to …")
            ],
        ),
        ("SchedulingGated", "Scheduling is blocked due to …"),
    ),
    "it runs, whatever its sidecar's image": (
        document(
            sidecar=True,
            phase="Running",
            containerStatuses=[container(waiting("ImagePullBackOff"), "log-shipper"), container(RUNNING)],
        ),
        None,
    ),
}


@pytest.mark.parametrize(("pod", "stuck"), STUCK.values(), ids=STUCK.keys())
def test_what_keeps_a_pod_from_starting(pod: Document, stuck: tuple[str, str] | None) -> None:
    assert view_pod(pod).stuck == stuck


def test_a_pod_that_runs() -> None:
    pod = document(phase="Running", containerStatuses=[container(RUNNING)], conditions=UP)
    assert view_pod(pod) == PodView(
        name="qcnn-worker-1",
        uid="5f6a",
        attempt=3,
        state=PodState.RUNNING,
        node="kind-worker",
        ready=True,
        labels=pod["metadata"]["labels"],
    )


def test_a_pod_whose_deletion_was_asked_for() -> None:
    view = view_pod(document(deletion=DELETED_LATER, phase="Running", containerStatuses=[container(RUNNING)]))
    assert (view.deleting, view.deletion_requested_at, view.overdue_at) == (True, at(LATER), at(LATER) + 30)


def test_the_cluster_takes_readiness_away_from_a_pod_whose_node_it_lost() -> None:
    lost = [*UP[:-1], condition("Ready", "False", reason="NodeNotReady", message="Node is not ready")]
    assert not view_pod(document(phase="Running", containerStatuses=[container(RUNNING)], conditions=lost)).ready


@pytest.mark.parametrize(
    ("statuses", "busy"),
    [
        ([container(RUNNING, "log-shipper"), container(terminated(0))], True),
        ([container(RUNNING, "log-shipper"), container(RUNNING)], True),
        ([container(terminated(0), "log-shipper"), container(RUNNING)], False),
    ],
    ids=["it goes on", "both go on", "it has ended"],
)
def test_a_sidecar_keeps_a_pod_busy(statuses: list[Document], busy: bool) -> None:
    assert view_pod(document(sidecar=True, phase="Running", containerStatuses=statuses)).busy is busy


@pytest.mark.parametrize(
    ("label", "attempt"),
    [
        ("0", 0),
        ("41", 41),
        ("", NO_ATTEMPT),
        ("-1", NO_ATTEMPT),
        ("x", NO_ATTEMPT),
        ("٣", NO_ATTEMPT),
        ("9" * 10, NO_ATTEMPT),
    ],
)
def test_an_attempt_is_read_from_its_label_or_not_at_all(label: str, attempt: int) -> None:
    assert view_pod(document(labels={names.LABEL_ATTEMPT: label})).attempt == attempt


def test_a_pod_without_labels_and_status_is_looked_at_all_the_same() -> None:
    pod = document(labels={})
    del pod["status"], pod["metadata"]["labels"], pod["spec"]["nodeName"]
    assert view_pod(pod) == PodView("qcnn-worker-1", "5f6a", NO_ATTEMPT, PodState.WAITING)


@pytest.mark.parametrize(
    ("status", "ready"), [("True", True), ("False", False), ("Unknown", False)], ids=["answers", "says no", "is silent"]
)
def test_a_node_answers_or_not(status: str, ready: bool) -> None:
    conditions = [condition("MemoryPressure", "False"), condition("Ready", status, since=NOON)]
    assert view_node({"metadata": {"name": "n"}, "status": {"conditions": conditions}}) == NodeView(
        "n", ready, at(NOON)
    )


def test_a_node_that_has_said_nothing_yet_does_not_answer() -> None:
    assert view_node({"metadata": {"name": "n"}}) == NodeView("n", ready=False, since=0.0)


def test_the_termination_message_is_the_main_containers() -> None:
    pod = document(
        sidecar=True,
        containerStatuses=[
            container(terminated(0, message="of no interest"), "log-shipper"),
            container(terminated(0, message="the result")),
        ],
    )
    assert termination_message(pod, names.TRAINER_CONTAINER_NAMES) == "the result"
    assert termination_message(pod, names.INFERENCE_CONTAINER_NAMES) == "of no interest"
    assert termination_message(document(), names.TRAINER_CONTAINER_NAMES) == ""


NO_OWNER = (
    "Pod qcnn-worker-1 exists and has no owner: delete or rename it, or name the job otherwise; it is never touched"
)
OWNERS: dict[str, tuple[list[Document], bool, str]] = {
    "it has no owner": (
        [],
        False,
        NO_OWNER,
    ),
    "its owner controls nothing": (
        [{"kind": "QMLJob", "name": "qcnn", "uid": "job-1"}],
        False,
        NO_OWNER,
    ),
    "it is somebody else's": (
        [{"kind": "ReplicaSet", "name": "web", "uid": "1b9d", "controller": True}],
        False,
        "Pod qcnn-worker-1 exists and belongs to ReplicaSet web (uid 1b9d): delete or rename it, or name the job "
        "otherwise; it is never touched",
    ),
    "it is the job's of before": (
        [{"kind": "QMLJob", "name": "qcnn", "uid": "job-0", "controller": True}],
        False,
        "Pod qcnn-worker-1 is left from an earlier job qcnn (uid job-0) and goes with it",
    ),
}


@pytest.mark.parametrize(("references", "ours", "words"), OWNERS.values(), ids=OWNERS.keys())
def test_whose_an_object_is(references: list[Document], ours: bool, words: str) -> None:
    pod = document()
    pod["metadata"]["ownerReferences"] = references
    assert is_owned_by(pod, "job-1") is ours
    assert name_taken(pod, "qcnn") == words


def test_an_object_is_ours_by_the_uid_of_its_controller() -> None:
    pod = document()
    other = {"kind": "Namespace", "name": "n", "uid": "n-1"}
    pod["metadata"]["ownerReferences"] = [other, {"kind": "QMLJob", "name": "qcnn", "uid": "job-1", "controller": True}]
    assert is_owned_by(pod, "job-1")
