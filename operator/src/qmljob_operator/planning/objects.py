"""Makes the objects of an attempt be what they should be: old pods gone, guarded and named, pods there."""

from collections.abc import Iterable, Mapping
from typing import Any

from qmljob_api import names
from qmljob_api.conditions import ConditionType
from qmljob_api.reasons import Reason
from qmljob_api.status import Gang
from qmljob_api.timestamps import format_time, parse_time
from qmljob_operator.gangstate import GangState
from qmljob_operator.kinds import Kind
from qmljob_operator.observation import Answer, Document, PodView, Verdict
from qmljob_operator.planning.draft import Draft
from qmljob_operator.planning.gang import is_replaced, pods_of, spec_changed
from qmljob_operator.planning.plan import Ask, Delete, Relabel
from qmljob_operator.planning.summary import summarize
from qmljob_operator.resources.networkpolicy import build_network_policy
from qmljob_operator.resources.pod import build_pod
from qmljob_operator.resources.service import build_service
from qmljob_operator.topology import Replica, Topology, listed, service_addresses

RESTART_GRACE_SECONDS = 10
"""For survivors of a failure: they may hang in a collective, and have nothing to save that the checkpoint lacks."""
OVERDUE_SECONDS = 15.0
"""How much longer than its grace a pod may take to go before its node is looked at."""
FORCE_AFTER_SECONDS = 300
"""How long a node is silent before forceDeleteUnreachable acts, where runPolicy.unreachableSeconds does not say."""
FOREIGN_SECONDS = 30.0
_PLANNED = frozenset({Reason.SPEC_CHANGED.value, Reason.JOB_SUSPENDED.value, Reason.STATUS_LOST.value})


def reach(draft: Draft, gang: Gang, state: GangState) -> Ask | None:
    """Plans the writes that bring the attempt about, as far as they are possible now."""
    older = [(pod, _grace(draft)) for pod in draft.seen.pods.values() if pod.attempt != gang.attempt]
    pods = pods_of(draft, gang)
    replaced = [(pod, RESTART_GRACE_SECONDS) for pod in pods.values() if is_replaced(gang, pod)]
    ask = clear_pods(draft, [*older, *replaced])
    if ask is not None:
        return ask
    _create(draft, gang, state.topology)
    _relabel(draft, state.topology, pods)
    summarize(draft, draft.status.gang or gang, state, pods)
    return None


def clear_pods(draft: Draft, doomed: Iterable[tuple[PodView, int | None]]) -> Ask | None:
    """Plans the deletion of all pods that have to go, each with its grace, and says what holds those that are overdue.

    To be called once in a pass, since it also says when nothing is held any more.
    """
    overdue = []
    for pod, grace_seconds in doomed:
        if not pod.deleting:
            draft.deletes.append(Delete(Kind.POD, pod.name, pod.uid, grace_seconds))
        elif pod.overdue_at is not None:
            draft.wake(pod.overdue_at + OVERDUE_SECONDS)
            if draft.now >= pod.overdue_at + OVERDUE_SECONDS:
                overdue.append(pod)
    unknown = {pod.node for pod in overdue} - draft.seen.nodes.keys() - {""}
    if unknown:
        return Ask(nodes=frozenset(unknown))
    silent = [pod for pod in overdue if pod.node and not draft.seen.nodes[pod.node].ready]
    # The pods of a node that was deleted go with it, by the cluster's own doing.
    waited_for = [pod for pod in silent if draft.seen.nodes[pod.node].exists]
    if waited_for:
        _wait_for_node(draft, waited_for)
    else:
        draft.condition(ConditionType.WAITING_FOR_NODE, False, Reason.RESOLVED, "No pod is held by a silent node.")
    _force(draft, silent)
    draft.slow = tuple(pod.name for pod in overdue if pod not in silent)
    if overdue:
        draft.wake(draft.now + OVERDUE_SECONDS)
    return None


def _wait_for_node(draft: Draft, pods: list[PodView]) -> None:
    nodes = sorted({pod.node for pod in pods})
    many = len(nodes) > 1
    message = (
        f"{listed([pod.name for pod in pods])} can't be deleted: {'nodes' if many else 'node'} {listed(nodes)} "
        f"{'do' if many else 'does'} not answer. The job goes on when the node is back, or when it is deleted or "
        f"tainted node.kubernetes.io/out-of-service; runPolicy.forceDeleteUnreachable: true lets the operator delete "
        f"such pods"
    )
    if draft.condition(ConditionType.WAITING_FOR_NODE, True, Reason.NODE_UNREACHABLE, message):
        draft.event(Reason.NODE_UNREACHABLE, message, warning=True)


def _force(draft: Draft, pods: list[PodView]) -> None:
    policy = draft.job.spec.run_policy
    if not policy.force_delete_unreachable:
        return
    patience = policy.unreachable_seconds or FORCE_AFTER_SECONDS
    for pod in pods:
        since = draft.seen.nodes[pod.node].since
        draft.wake(since + patience)
        if draft.now >= since + patience:
            draft.deletes.append(Delete(Kind.POD, pod.name, pod.uid, 0))
            draft.event(
                Reason.FORCE_DELETED,
                f"{pod.name} is deleted without the consent of node {pod.node}, which has not answered for "
                f"{patience} s; its writes to the store are refused from now on",
                warning=True,
            )


def _grace(draft: Draft) -> int | None:
    """Returns the grace of pods of an older attempt: their own where the restart was planned, so that they can save."""
    planned = not draft.status.history or draft.status.history[-1].reason in _PLANNED
    return None if planned else RESTART_GRACE_SECONDS


def _create(draft: Draft, gang: Gang, topology: Topology) -> None:
    """Plans the attempt's Services and its missing pods. No pod while one of an older attempt exists."""
    older = any(pod.attempt != gang.attempt for pod in draft.seen.pods.values())
    # A replica whose success was seen is not missing: its pod may have been collected.
    there = {*draft.seen.pods, *gang.succeeded}
    missing = [replica for replica in topology.replicas if replica.name not in there]
    if not older and not missing and not gang.complete:
        draft.update(gang=(draft.status.gang or gang).model_copy(update={"complete": True}), next_attempt_time=None)
    refused = draft.seen.refused
    if refused is not None and draft.now < refused.retry_at:
        draft.wake(refused.retry_at)
        draft.refusal = refused
        return
    if spec_changed(draft, gang):
        # An edit that can't be followed yet: what is there stays as it was built, and nothing is built from the edit.
        return
    guard(draft, edited=not gang.complete)
    _services(draft, gang, topology)
    if older or draft.refusal is not None:
        return
    begins_at = parse_time(draft.status.next_attempt_time) or 0.0
    if draft.now < begins_at:
        draft.wake(begins_at)
        return
    wanted = [replica for replica in missing if _may_create(draft, gang, replica)]
    taken = next((replica.name for replica in wanted if f"{Kind.POD}/{replica.name}" in draft.seen.foreign), None)
    if taken is not None:
        draft.refusal = _taken(draft, Kind.POD, taken)
        return
    addresses = service_addresses(draft.job, topology)
    draft.creates += [
        build_pod(
            draft.job,
            topology,
            replica,
            attempt=gang.attempt,
            restarts=draft.status.restarts,
            addresses=addresses,
        )
        for replica in wanted
    ]


def _taken(draft: Draft, kind: Kind, name: str) -> Answer:
    return Answer(Verdict.NAME_TAKEN, draft.seen.foreign[f"{kind}/{name}"], draft.now + FOREIGN_SECONDS)


def _may_create(draft: Draft, gang: Gang, replica: Replica) -> bool:
    entry = next((entry for entry in gang.replacing if entry.replica == replica.name), None)
    if entry is not None:
        at = parse_time(entry.time) or 0.0
        draft.wake(at if draft.now < at else None)
        return draft.now >= at
    return not gang.complete


def guard(draft: Draft, *, edited: bool = False) -> None:
    """Plans the job's NetworkPolicy, where it is missing or not as it should be; `edited`: because the job was."""
    wanted, existing = build_network_policy(draft.job), draft.seen.policy
    name = wanted["metadata"]["name"]
    if existing is None:
        if f"{Kind.NETWORK_POLICY}/{name}" in draft.seen.foreign:
            draft.refusal = draft.refusal or _taken(draft, Kind.NETWORK_POLICY, name)
        else:
            draft.creates.append(wanted)
    elif existing["metadata"].get("deletionTimestamp") is None and not _is_right(existing, wanted):
        draft.repairs.append(wanted)
        if not edited:
            at = format_time(draft.now)
            draft.event(Reason.REPAIRED, f"NetworkPolicy {name} was edited and is put right ({at})", warning=True)


def _services(draft: Draft, gang: Gang, topology: Topology) -> None:
    wanted = {replica.name: build_service(draft.job, replica) for replica in topology.replicas}
    for name, service in wanted.items():
        existing = draft.seen.services.get(name)
        if existing is None:
            if f"{Kind.SERVICE}/{name}" in draft.seen.foreign:
                draft.refusal = draft.refusal or _taken(draft, Kind.SERVICE, name)
            else:
                draft.creates.append(service)
        elif existing["metadata"].get("deletionTimestamp") is None and not _is_right(existing, service):
            draft.repairs.append(service)
            if gang.complete:  # else it is the job that was edited
                draft.event(Reason.REPAIRED, f"Service {name} was edited and is put right ({format_time(draft.now)})")
    draft.deletes += [
        Delete(Kind.SERVICE, name, service["metadata"]["uid"])
        for name, service in draft.seen.services.items()
        if name not in wanted and service["metadata"].get("deletionTimestamp") is None
    ]


def _relabel(draft: Draft, topology: Topology, pods: Mapping[str, PodView]) -> None:
    """Puts back labels of pods that somebody edited: a Service finds its pod by them."""
    for replica in topology.replicas:
        pod = pods.get(replica.name)
        labels = {
            names.LABEL_JOB: draft.job.metadata.name,
            names.LABEL_ROLE: replica.role.value,
            names.LABEL_INDEX: str(replica.index),
        }
        if pod is not None and not pod.deleting and any(pod.labels.get(key) != labels[key] for key in labels):
            draft.relabels.append(Relabel(pod.name, pod.uid, labels))


def _is_right(existing: Document, wanted: Document) -> bool:
    """Returns whether a Service or a NetworkPolicy is as it should be.

    One key more in a Service's selector, and it would select nothing. A policy's spec has no defaults of the API
    server beside ours, and one key more may let somebody in.
    """
    spec, own = existing.get("spec") or {}, wanted["spec"]
    whole = spec.get("selector") == own["selector"] if wanted["kind"] == "Service" else spec == own
    return whole and _covers(existing, wanted)


def _covers(actual: Any, wanted: Any) -> bool:
    """Returns whether an object has all that is wanted of it; what else it has (defaults, other people's) is free."""
    if isinstance(wanted, Mapping):
        return isinstance(actual, Mapping) and all(
            key in actual and _covers(actual[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        # A list is ours as a whole: a port more in a Service is an edit of it.
        return (
            isinstance(actual, list)
            and len(actual) == len(wanted)
            and all(_covers(have, want) for have, want in zip(actual, wanted, strict=True))
        )
    return bool(actual == wanted)


def services_to_delete(services: Mapping[str, Document]) -> list[Delete]:
    """Returns the deletions of all these Services that are not being deleted yet."""
    return [
        Delete(Kind.SERVICE, name, service["metadata"]["uid"])
        for name, service in services.items()
        if service["metadata"].get("deletionTimestamp") is None
    ]
