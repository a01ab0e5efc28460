"""Steps that many stories share: a job begins, runs again, ends; and the parts of manifests that they are about."""

from typing import Any

from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.reasons import Reason
from support.stories import Step, gang, step
from support.story_actions import Action, both, create, finish, start

RUNS = {ConditionType.RUNNING: Reason.REPLICAS_RUNNING}
SUCCEEDED = {ConditionType.SUCCEEDED: Reason.TRAINING_SUCCEEDED}
CONTAINER = {"name": "trainer", "image": "x"}
TEMPLATE = {"spec": {"containers": [CONTAINER]}}


def template(**spec: Any) -> dict[str, Any]:
    """Returns a pod template with more in its spec."""
    return {"spec": {**TEMPLATE["spec"], **spec}}


def roles(**replicas: int) -> dict[str, Any]:
    """Returns `replicaSpecs` with so many replicas of each role."""
    return {role: {"replicas": count, "template": TEMPLATE} for role, count in replicas.items()}


def begins(worker: int = 2, **others: int) -> list[Step]:
    """A job is made, and its replicas run."""
    pods = gang(0, worker=worker, **others)
    total = len(pods)
    return [
        step(
            "the job is made",
            create(),
            exists=True,
            phase=Phase.STARTING,
            attempt=0,
            ready=f"0/{total}",
            pods=pods,
            services=frozenset(pods),
            events=[Reason.STARTING],
        ),
        runs(0, total),
    ]


def runs(attempt: int, total: int = 2) -> Step:
    """All replicas of an attempt run."""
    return step(
        f"attempt {attempt} runs",
        start(),
        phase=Phase.RUNNING,
        holds=RUNS,
        ready=f"{total}/{total}",
        events=[Reason.REPLICAS_RUNNING],
    )


def restarts(what: str, does: Action, attempt: int, why: Reason, **changes: Any) -> Step:
    """Something makes the gang start anew; of two workers, where nothing else is said."""
    pods = changes.get("pods", gang(attempt))
    restarted = {"pods": pods, "phase": Phase.STARTING, "holds": {}, "ready": f"0/{len(pods)}", "events": [why]}
    return step(what, does, attempt=attempt, **{**restarted, **changes})


def fails(what: str, does: Action, why: Reason, **changes: Any) -> Step:
    """Something ends the job without success."""
    failed = {"holds": {ConditionType.FAILED: why}, "ready": "0/2", "services": frozenset(), "events": [why]}
    return step(what, does, phase=Phase.FAILED, **{**failed, **changes})


def succeeds(what: str = "both workers end with success", does: Action | None = None, **changes: Any) -> Step:
    """Something ends the job with success; without `does`, both workers do."""
    succeeded = {"holds": SUCCEEDED, "ready": "0/2", "services": frozenset(), "events": [Reason.TRAINING_SUCCEEDED]}
    act = does or both(finish("worker-1"), finish("worker-0"))
    return step(what, act, phase=Phase.SUCCEEDED, **{**succeeded, **changes})
