"""The present attempt: from what a pass sees to the state that the policy decides on."""

import hashlib
import json

from qmljob_api.exitcodes import ExitCode
from qmljob_api.status import Gang, JobStatus
from qmljob_api.timestamps import parse_time
from qmljob_api.types import MAX_REPLICAS, QMLJob, Role
from qmljob_operator.gangstate import GangState, ReplicaEnd
from qmljob_operator.observation import Document, NodeView, PodState, PodView
from qmljob_operator.planning.draft import Draft
from qmljob_operator.topology import Replica, Topology, topology_of

_SIGNALLED = (137, 143)
"""Exit codes of SIGKILL and SIGTERM: what a node's shutdown does to a container, but other things do as well."""
_PARTS_OF_PODS = ("port", "ports", "replicaSpecs")


def fingerprint_of(spec: Document) -> str:
    """Returns a digest of the parts of a spec that pods are made from.

    It reads the spec as it is stored, and is compared only after an edit (see `spec_changed`): so neither a new version
    of the operator nor a new default of the CRD looks like an edit.
    """
    parts = {key: spec.get(key) for key in _PARTS_OF_PODS}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def spec_changed(draft: Draft, gang: Gang) -> bool:
    """Returns whether the job's pods would be made from something else than this gang's were."""
    if gang.generation == draft.seen.generation:
        return False
    return gang.fingerprint != fingerprint_of(draft.seen.document["spec"])


def roles_of(job: QMLJob) -> dict[Role, int]:
    """Returns how many replicas of each role the job asks for."""
    return {role: spec.replicas for role, spec in job.spec.replica_specs.present()}


def usable(gang: Gang | None, attempt: int | None) -> bool:
    """Returns whether a status describes the present attempt. One that was edited by hand may not."""
    if gang is None or gang.attempt != attempt:
        return False
    leaders = gang.roles.get(Role.CHIEF, 0) + gang.roles.get(Role.WORKER, 0)
    return leaders > 0 and sum(gang.roles.values()) <= MAX_REPLICAS


def last_attempt(status: JobStatus, newest: int) -> int:
    """Returns the last attempt that anything tells of, -1 where there was none.

    `newest` is that of the pods. A status that lost a part must not make an attempt begin whose number was there: the
    store would take its writes for those of an old one.
    """
    told = [record.attempt for record in status.history]
    told += [part.attempt for part in (status.gang, status.last_failure) if part is not None]
    return max([newest, *told, -1 if status.attempt is None else status.attempt])


def gang_state(draft: Draft, gang: Gang) -> GangState:
    """Returns the state of the present attempt."""
    topology = topology_of(draft.job.metadata.name, gang.roles)
    lonely = {replica.name for replica in topology.of(Role.EVALUATOR)}
    failed = any(
        pod.end is not None and pod.end.exit_code != ExitCode.SUCCESS and not is_replaced(gang, pod)
        for name, pod in pods_of(draft, gang).items()
        if name not in lonely
    )
    ended, never_started = [], []
    for replica in topology.replicas:
        end = _end_of(draft, gang, replica, failed)
        if isinstance(end, ReplicaEnd):
            ended.append(end)
        elif end is None:
            never_started.append(replica.name)
    started_at = parse_time(gang.start_time) or draft.now
    return GangState(
        topology=topology,
        attempt=gang.attempt,
        restarts=draft.status.restarts,
        ended=tuple(ended),
        never_started=frozenset(never_started),
        started_at=started_at,
        job_started_at=parse_time(draft.status.start_time) or started_at,
        lost_peer_attempts=draft.status.lost_peer_attempts,
        replacements={entry.replica: entry.count for entry in gang.replacing},
        replaced_at={entry.replica: parse_time(entry.time) or started_at for entry in gang.replacing},
    )


def record_successes(draft: Draft, gang: Gang, state: GangState) -> Gang:
    """Keeps which replicas were seen to succeed: it counts when their pods are gone, too."""
    done = {end.replica.name for end in state.ended if end.exit_code == ExitCode.SUCCESS and not end.disruption}
    return _keep(draft, gang, done)


def keep_successes(draft: Draft, gang: Gang) -> None:
    """Does the same as `record_successes` for a job that can't be parsed, of which no state is known."""
    pods = pods_of(draft, gang).values()
    ended = {pod.name for pod in pods if pod.end and pod.end.exit_code == ExitCode.SUCCESS and not pod.end.disruption}
    _keep(draft, gang, {*gang.succeeded, *ended})


def _keep(draft: Draft, gang: Gang, done: set[str]) -> Gang:
    if done != set(gang.succeeded):
        gang = gang.model_copy(update={"succeeded": tuple(sorted(done))})
        draft.update(gang=gang)
    return gang


def pods_of(draft: Draft, gang: Gang) -> dict[str, PodView]:
    """Returns the pods of the attempt, by name."""
    return {name: pod for name, pod in draft.seen.pods.items() if pod.attempt == gang.attempt}


def is_replaced(gang: Gang, pod: PodView) -> bool:
    """Returns whether the pod has to go, so that its replica can start anew alone."""
    return any(entry.replica == pod.name and entry.uid == pod.uid for entry in gang.replacing)


def unknown_nodes(draft: Draft, topology: Topology, pods: dict[str, PodView]) -> frozenset[str]:
    """Returns the nodes of an attempt that nobody has looked at in this pass."""
    nodes = {pods[replica.name].node for replica in topology.replicas if replica.name in pods}
    return frozenset(nodes - draft.seen.nodes.keys() - {""})


def lost_node(draft: Draft, pod: PodView) -> NodeView | None:
    """Returns the pod's node if it was looked at and does not answer."""
    node = draft.seen.nodes.get(pod.node)
    return node if node is not None and not node.ready else None


def _end_of(draft: Draft, gang: Gang, replica: Replica, failed: bool) -> ReplicaEnd | str | None:
    """Returns a replica's end, "running", or None where it has not started; `failed` says whether any peer has."""
    if replica.name in gang.succeeded:
        return ReplicaEnd(replica, ExitCode.SUCCESS, 0.0)
    pod = draft.seen.pods.get(replica.name)
    if pod is None or pod.attempt != gang.attempt:
        expected = gang.complete and all(entry.replica != replica.name for entry in gang.replacing)
        gone = ReplicaEnd(replica, 137, draft.now, disruption=True, detail="its pod was deleted")
        return gone if expected else None
    if is_replaced(gang, pod):
        return None
    node = lost_node(draft, pod)
    if pod.end is not None:
        # Where the cluster has said why (out of memory, a disruption), that is why.
        down = node is not None and pod.end.exit_code in _SIGNALLED and not pod.end.detail
        finished_at = min(pod.end.finished_at, draft.seen.first_seen.get(pod.uid, draft.now))
        return ReplicaEnd(
            replica,
            pod.end.exit_code,
            finished_at,
            disruption=pod.end.disruption or down,
            message=pod.end.message,
            detail=f"its node {pod.node} went down" if down else pod.end.detail,
            refused=pod.end.refused,
        )
    if node is not None and _is_lost(draft, node, failed):
        words = f"its node {pod.node} {'does not answer' if node.exists else 'is gone'}"
        return ReplicaEnd(replica, 137, draft.now, disruption=True, detail=words)
    return "running" if pod.state is PodState.RUNNING else None


def _is_lost(draft: Draft, node: NodeView, failed: bool) -> bool:
    """Returns whether the replicas of a node that does not answer count as lost.

    Where peers have failed already, at once: the silent node explains them. Else only where the job says after which
    time; otherwise Kubernetes' own eviction decides.
    """
    seconds = draft.job.spec.run_policy.unreachable_seconds
    return failed or (seconds is not None and draft.now >= node.since + seconds)
