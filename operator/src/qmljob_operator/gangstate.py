"""An attempt as it is seen at one time: what policies decide on. A local run and the operator both make it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from qmljob_api.exitcodes import describe
from qmljob_operator.topology import Replica, Topology


@dataclass(frozen=True, slots=True)
class ReplicaEnd:
    """A replica that is no longer running.

    Attributes:
        replica: which one.
        exit_code: of its training container.
        finished_at: when it ended, in seconds. A caller that reads it from another machine's clock gives the time at
            which it first saw the end, where that is earlier: the settle time counts from here.
        disruption: the cluster ended it while it ran (eviction, preemption, a lost node, a deleted pod). Then the
            exit code says nothing: a program that answers SIGTERM with 0 has not finished its work.
        message: the last lines of its output, for people.
        detail: what the cluster says of the end, in a few words ("out of memory"); empty where it says nothing.
        refused: its node did not take it, so that it never ran; the next one may be refused just so.
    """

    replica: Replica
    exit_code: int
    finished_at: float
    disruption: bool = False
    message: str = ""
    detail: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class GangState:
    """An attempt, as it is seen now.

    Attributes:
        topology: the replicas it was built from.
        attempt: counts from 0.
        restarts: charged so far, in earlier attempts of the same job.
        ended: the replicas that ended, in any order, each once.
        never_started: names of the replicas whose container has not run yet.
        started_at: when the attempt's first pod was created, in seconds.
        job_started_at: when attempt 0 was; activeDeadlineSeconds counts from here.
        lost_peer_attempts: how many attempts right before this one ended with lost peers only. The caller keeps it:
            one more after a RestartGang with reason LostPeersOnly, 0 after any other RestartGang.
        replacements: how often a replica of this attempt was replaced alone, by its name; absent: never.
        replaced_at: from when on the replacement of such a replica may start, in seconds; its wait for a start counts
            from here.
    """

    topology: Topology
    attempt: int
    restarts: int
    ended: tuple[ReplicaEnd, ...]
    never_started: frozenset[str]
    started_at: float
    job_started_at: float
    lost_peer_attempts: int = 0
    replacements: Mapping[str, int] = field(default_factory=dict)
    replaced_at: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses a state that can't occur: a caller's bug must not look like a decision."""
        known = {replica.name for replica in self.topology.replicas}
        ended = [end.replica.name for end in self.ended]
        if len(set(ended)) != len(ended):
            raise ValueError("a replica ended twice in one attempt: give each replica's end once")
        if not {*ended, *self.never_started} <= known:
            raise ValueError("a replica that is not in the topology ended or never started")
        failed = {end.replica.name for end in self.ended if not end.disruption}
        if failed & self.never_started:
            raise ValueError("a replica that never started can't have ended by itself")


def how_it_ended(end: ReplicaEnd) -> str:
    """Returns an end as a person says it: `qcnn-worker-1 exited with 137 (out of memory)`."""
    words = describe(end.exit_code)
    if end.disruption:
        return f"{end.replica.name} was taken away ({end.detail or words})"
    if end.exit_code < 0:
        return f"{end.replica.name} was {words}"
    explained = end.detail or ("" if words == f"exit code {end.exit_code}" else words)
    return f"{end.replica.name} exited with {end.exit_code}{f' ({explained})' if explained else ''}"
