"""A job and what exists of it, as one frozen value: all that a pass decides on.

Pure: made from the API server's documents, which are never changed. Everything is sorted once, here: pods into ours
and others', an end into a failure or a disruption.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from qmljob_api import names
from qmljob_api.parse import ParseResult
from qmljob_api.status import JobStatus
from qmljob_api.timestamps import parse_time

Document = Mapping[str, Any]
"""A Kubernetes object as JSON has it. Nobody changes one."""
ATTEMPT_LIMIT = 10**8
"""No job gets there: a label with a number from here on was written by somebody else, and moves nothing."""
NO_ATTEMPT = -1
"""The attempt of a pod whose label does not say: older than any."""

_STUCK_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "PostStartHookError",
        "CrashLoopBackOff",
    }
)
"""Reasons of a waiting container behind which a person's help is needed; others (ContainerCreating) just take time. A
pod that never restarts has CrashLoopBackOff from an init container that does, a sidecar that the others wait for."""
_LOST_CONTAINER_REASONS = frozenset({"ContainerStatusUnknown", "Unknown"})
"""How kubelet and containerd report a container that was there before the node went down."""
_KILLED = 137
_WORDS = {
    "OOMKilled": "out of memory",
    "StartError": "its container can't be started",
    "ContainerCannotRun": "its container can't be started",
}
"""What a container's own reason means, where the exit code alone does not say it."""
_OWN_DEADLINE = "DeadlineExceeded"
_EVICTED = "Evicted"
_NODE_IN_NEED = "The node "
"""How kubelet's message begins where it evicts for the node's sake. Otherwise the pod took more storage than it asked
for: its own fault, which a fresh start repeats."""
_ATTEMPT = re.compile("[0-9]{1,9}")
"""An attempt that a status can hold: what is longer was written by somebody else."""


class PodState(StrEnum):
    """What the training container of a pod is doing."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class End:
    """How a pod's training container ended.

    Attributes:
        exit_code: of the container; 137 where the cluster took it and no code is known.
        finished_at: in seconds, by the node's clock.
        disruption: the cluster took it (see `ReplicaEnd.disruption`).
        detail: the cluster's words for it ("out of memory"); may be empty.
        message: the last lines of its output, or what it left as its termination message.
        refused: its node did not take it, and it never ran.
    """

    exit_code: int
    finished_at: float
    disruption: bool = False
    detail: str = ""
    message: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod of a job.

    Attributes:
        attempt: by its label; NO_ATTEMPT where that is missing or no number.
        deletion_requested_at: when someone asked for its deletion, in seconds; None: nobody did.
        overdue_at: when its grace for that is over.
        node: the node's name; empty while it is not scheduled.
        ready: its Ready condition, which the cluster takes away when it loses the node.
        busy: another container of the pod runs, whatever became of the training container.
        stuck: why it can't start without a person's help (reason, message); None: nothing is known to be wrong.
    """

    name: str
    uid: str
    attempt: int
    state: PodState
    node: str = ""
    ready: bool = False
    deletion_requested_at: float | None = None
    overdue_at: float | None = None
    end: End | None = None
    busy: bool = False
    stuck: tuple[str, str] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def deleting(self) -> bool:
        """Whether its deletion was asked for."""
        return self.deletion_requested_at is not None


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node that a pass asked about; `exists` is False where the API server has none of this name."""

    name: str
    ready: bool
    since: float
    exists: bool = True


class Verdict(StrEnum):
    """What the API server says of a write."""

    ACCEPTED = "accepted"
    INVALID = "invalid"
    """400 or 422: the object can never be created as it is."""
    FORBIDDEN = "forbidden"
    """403: a quota, a missing ServiceAccount, Pod Security …: may be lifted without a change of the job."""
    NAME_TAKEN = "name taken"
    """409: an object of somebody else has the name."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The API server's answer to a dry run or a creation.

    Attributes:
        verdict: the kind of the answer.
        message: the server's own words, or who has the name.
        retry_at: when to try again, in seconds; before that nothing is created.
    """

    verdict: Verdict
    message: str = ""
    retry_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Observation:
    """A job at one time.

    Attributes:
        document: the job as the API server has it.
        parsed: what the tolerant parser makes of it.
        status: its status.
        pods: its replicas' pods, by name.
        services, policy: its Services, by name; its NetworkPolicy, if there is one.
        inference_job: its inference Job, if there is one.
        inference_pods: that Job's pods.
        foreign: names that objects of other owners have, as far as the caches show them (`pods/qcnn-worker-0`), and
            the sentence on each (see `name_taken`).
        first_seen: when an end was first seen, by the pod's uid, in seconds of the operator's clock.
        nodes: the nodes that were asked about, by name.
        dry_run: the answer for the present generation; None: not asked yet.
        refused: the answer to the last creation, if it was refused.
        log_tails: the last lines of a pod's output, by the pod's name; empty where they could not be read.
        progress_due_at: from when on the chief's log may be read for its progress, in seconds.
    """

    document: Document
    parsed: ParseResult
    status: JobStatus
    pods: Mapping[str, PodView] = field(default_factory=dict)
    services: Mapping[str, Document] = field(default_factory=dict)
    policy: Document | None = None
    inference_job: Document | None = None
    inference_pods: Sequence[Document] = ()
    foreign: Mapping[str, str] = field(default_factory=dict)
    first_seen: Mapping[str, float] = field(default_factory=dict)
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    dry_run: Answer | None = None
    refused: Answer | None = None
    log_tails: Mapping[str, str] = field(default_factory=dict)
    progress_due_at: float = math.inf

    @property
    def generation(self) -> int:
        """The job's metadata.generation: it grows with each edit of the spec."""
        return int(self.document["metadata"].get("generation") or 0)

    @property
    def uid(self) -> str:
        """The job's uid."""
        return str(self.document["metadata"].get("uid", ""))

    @property
    def deleted(self) -> bool:
        """Whether the job is being deleted."""
        return self.document["metadata"].get("deletionTimestamp") is not None


def owner_of(document: Document) -> Document | None:
    """Returns the owner reference with controller=true of an object, or None."""
    references = document.get("metadata", {}).get("ownerReferences") or []
    return next((reference for reference in references if reference.get("controller")), None)


def is_owned_by(document: Document, uid: str) -> bool:
    """Returns whether the object's controller has this uid."""
    owner = owner_of(document)
    return owner is not None and owner.get("uid") == uid


def name_taken(existing: Document, job: str) -> str:
    """Returns the sentence on an object of somebody else that has a name that the job needs."""
    kind, name, owner = existing["kind"], existing["metadata"]["name"], owner_of(existing)
    if owner is None:
        whose = "has no owner"
    elif owner.get("kind") == names.KIND and owner.get("name") == job:
        return f"{kind} {name} is left from an earlier job {job} (uid {owner.get('uid')}) and goes with it"
    else:
        whose = f"belongs to {owner.get('kind')} {owner.get('name')} (uid {owner.get('uid')})"
    return f"{kind} {name} exists and {whose}: delete or rename it, or name the job otherwise; it is never touched"


def view_pod(pod: Document) -> PodView:
    """Returns a pod as a pass sees it."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    requested_at, overdue_at = _deletion(metadata)
    end = _end(pod, requested_at)
    state = PodState.ENDED if end else PodState.RUNNING if _main_state(pod).get("running") else PodState.WAITING
    labels = metadata.get("labels") or {}
    attempt = str(labels.get(names.LABEL_ATTEMPT, ""))
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        attempt=int(attempt) if _ATTEMPT.fullmatch(attempt) else NO_ATTEMPT,
        state=state,
        node=spec.get("nodeName") or "",
        ready=_is_ready(status),
        deletion_requested_at=requested_at,
        overdue_at=overdue_at,
        end=end,
        busy=_others_run(pod),
        stuck=_stuck(status) if state is PodState.WAITING else None,
        labels=labels,
    )


def view_node(node: Document) -> NodeView:
    """Returns a node as a pass sees it."""
    conditions = (node.get("status") or {}).get("conditions") or []
    ready: Document = next((condition for condition in conditions if condition.get("type") == "Ready"), {})
    since = parse_time(ready.get("lastTransitionTime")) or 0.0
    return NodeView(node["metadata"]["name"], ready.get("status") == "True", since)


def termination_message(pod: Document, preferred: Sequence[str]) -> str:
    """Returns what a pod's main container left as its termination message, or an empty text."""
    terminated = _state_of(pod, preferred).get("terminated") or {}
    return str(terminated.get("message") or "")


def _deletion(metadata: Document) -> tuple[float | None, float | None]:
    due = parse_time(metadata.get("deletionTimestamp"))
    if due is None:
        return None, None
    # The API server writes the time at which the grace is over, not the time of the request.
    return due - float(metadata.get("deletionGracePeriodSeconds") or 0), due


def _main_state(pod: Document) -> Document:
    return _state_of(pod, names.TRAINER_CONTAINER_NAMES)


def _main_name(pod: Document, preferred: Sequence[str]) -> str | None:
    containers = (pod.get("spec") or {}).get("containers") or []
    listed = [container.get("name") for container in containers]
    return next((name for name in listed if name in preferred), listed[0] if listed else None)


def _state_of(pod: Document, preferred: Sequence[str]) -> Document:
    main = _main_name(pod, preferred)
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    found: Document = next((status for status in statuses if status.get("name") == main), {})
    return found.get("state") or {}


def _others_run(pod: Document) -> bool:
    main = _main_name(pod, names.TRAINER_CONTAINER_NAMES)
    status = pod.get("status") or {}
    return status.get("phase") not in ("Failed", "Succeeded") and any(
        (container.get("state") or {}).get("running")
        for container in status.get("containerStatuses") or []
        if container.get("name") != main
    )


def _end(pod: Document, deletion_requested_at: float | None) -> End | None:
    status = pod.get("status") or {}
    terminated = _main_state(pod).get("terminated") or _failed_init_container(status)
    if terminated:
        return _container_end(terminated, status, deletion_requested_at)
    disrupted, disrupted_at = _disruption(status)
    if status.get("phase") in ("Failed", "Succeeded"):
        return _end_by_phase(status, disrupted)
    if deletion_requested_at is not None:
        return End(_KILLED, deletion_requested_at, True, disrupted or "its pod was deleted")
    return End(_KILLED, disrupted_at, True, disrupted) if disrupted else None


def _end_by_phase(status: Document, disrupted: str) -> End:
    """Returns the end of a pod of which no container says how it ended: its node refused it, or ended it as a whole."""
    message = str(status.get("message") or "")
    finished_at = _latest_transition(status)
    if status.get("phase") == "Succeeded":
        return End(0, finished_at, message=message)
    own = _own_limit(status)
    refused = not disrupted and not own
    words = disrupted or own or f"{status.get('reason') or 'Failed'}: {message or 'no further word'}"
    return End(_KILLED, finished_at, bool(disrupted) or refused, words, message, refused)


def _container_end(terminated: Document, status: Document, deletion_requested_at: float | None) -> End:
    code = int(terminated.get("exitCode") or 0)
    finished_at = parse_time(terminated.get("finishedAt")) or 0.0
    reason = str(terminated.get("reason") or "")
    disrupted, disrupted_at = _disruption(status)
    if code == 0 and finished_at < disrupted_at:
        # It had finished before its node was drained: that takes the pod, and nothing of the success.
        disrupted = ""
    if deletion_requested_at is not None and not disrupted and finished_at >= deletion_requested_at:
        disrupted = "its pod was deleted"
    if reason in _LOST_CONTAINER_REASONS:
        disrupted = disrupted or "its node was restarted"
    own = _own_limit(status)
    if status.get("reason") == _EVICTED and not own:
        disrupted = disrupted or str(status.get("message") or _EVICTED).strip()
    detail = disrupted or own or _WORDS.get(reason, "")
    return End(code, finished_at, bool(disrupted), detail, str(terminated.get("message") or ""))


def _own_limit(status: Document) -> str:
    """Returns which limit of its own the pod was ended for, or an empty text."""
    reason, message = status.get("reason"), str(status.get("message") or "").strip()
    if reason == _OWN_DEADLINE:
        return "the activeDeadlineSeconds of its own template are over"
    return message if reason == _EVICTED and message and not message.startswith(_NODE_IN_NEED) else ""


def _is_ready(status: Document) -> bool:
    conditions = status.get("conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def _disruption(status: Document) -> tuple[str, float]:
    """Returns why the cluster takes the pod away (an empty text: it does not), and since when in seconds."""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            words = str(condition.get("message") or condition.get("reason") or "disruption").strip()
            return words, parse_time(condition.get("lastTransitionTime")) or 0.0
    return "", 0.0


def _failed_init_container(status: Document) -> Document:
    if status.get("phase") != "Failed":
        return {}
    ended = [
        (container.get("state") or {}).get("terminated") for container in status.get("initContainerStatuses") or []
    ]
    return next((state for state in ended if state and state.get("exitCode")), {})


def _stuck(status: Document) -> tuple[str, str] | None:
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _STUCK_REASONS:
            return str(waiting["reason"]), str(waiting.get("message") or "")
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("reason") or "Unschedulable"), str(condition.get("message") or "")
    return None


def _latest_transition(status: Document) -> float:
    times = [parse_time(condition.get("lastTransitionTime")) for condition in status.get("conditions") or []]
    return max((time for time in times if time is not None), default=parse_time(status.get("startTime")) or 0.0)
