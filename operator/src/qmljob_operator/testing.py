"""Jobs and gangs for tests: a state of a gang in one line."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from qmljob_api.types import (
    CodeOperator,
    FailureAction,
    FailurePolicy,
    FailureRule,
    Metadata,
    OnExitCodes,
    QMLJob,
    QMLJobSpec,
    ReplicaSpec,
    ReplicaSpecs,
    Role,
    RunPolicy,
    SuccessPolicy,
)
from qmljob_operator.gangstate import GangState, ReplicaEnd
from qmljob_operator.topology import build_topology

STARTED = 1000.0
"""When the attempts of `make_gang` started, in seconds."""


def make_rule(
    action: FailureAction, *values: int, roles: tuple[Role, ...] | None = None, negate: bool = False
) -> FailureRule:
    """Returns a rule about the exit codes `values`, or about all others where `negate` is set."""
    operator = CodeOperator.NOT_IN if negate else CodeOperator.IN
    return FailureRule(on_exit_codes=OnExitCodes(operator=operator, values=values, roles=roles), action=action)


def make_job(
    roles: dict[str, int] | None = None,
    rules: tuple[FailureRule, ...] = (),
    success: SuccessPolicy = SuccessPolicy.CHIEF,
    **run_policy: Any,
) -> QMLJob:
    """Returns the job `qcnn`: `roles` maps a role to its number of replicas (three workers where absent)."""
    specs = {role: ReplicaSpec(replicas=count, template={}) for role, count in (roles or {"worker": 3}).items()}
    return QMLJob(
        metadata=Metadata(name="qcnn", uid="u-1"),
        spec=QMLJobSpec(
            replica_specs=ReplicaSpecs(**specs),
            run_policy=RunPolicy(**run_policy),
            failure_policy=FailurePolicy(rules=rules),
            success_policy=success,
        ),
    )


def make_gang(job: QMLJob, *ended: tuple[Any, ...], never_started: Iterable[str] = (), **changes: Any) -> GangState:
    """Returns attempt 0 of a job.

    Args:
        job: the job.
        ended: (replica, exit code, seconds after the attempt's start, disruption or nothing); a replica is named
            without its job, `worker-0`.
        never_started: replicas, named likewise.
        changes: other fields of the state.
    """
    topology = build_topology(job)
    prefix = f"{job.metadata.name}-"
    replicas = {replica.name.removeprefix(prefix): replica for replica in topology.replicas}
    ends = tuple(ReplicaEnd(replicas[name], code, STARTED + at, *rest) for name, code, at, *rest in ended)
    waiting = frozenset(prefix + name for name in never_started)
    return replace(GangState(topology, 0, 0, ends, waiting, STARTED, STARTED), **changes)
