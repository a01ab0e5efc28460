"""What jobs live through, without any fault: the table of scenarios, and how each of them ends.

A scenario is played to its end with no fault first. Then it is played again and again with one fault at one of its
calls, and must come to the same end. So nothing in it may depend on the operator being alive: whoever plays it waits
for what a user or a cluster would see.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qmljob_api import names
from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.exitcodes import ExitCode
from qmljob_api.progress import InferenceResult, to_line
from qmljob_api.reasons import Reason
from support.api_client import Object
from support.kubelet import Kubelet, Policy, starts_and_goes
from support.stories import JOB, Action, Scene, gang
from support.story_actions import (
    both,
    create,
    delete_job,
    edit,
    evict,
    finish,
    let_go,
    occupy,
    remove,
    until,
)
from support.story_steps import CONTAINER, SUCCEEDED, TEMPLATE, roles

RESULT = InferenceResult(artifact="gs://bucket/w.h5", mse=0.25, sign_accuracy=0.9, examples=12)
BLOCKED = {ConditionType.BLOCKED: Reason.NAME_TAKEN}


@dataclass(frozen=True)
class Scenario:
    """A life of a job.

    Attributes:
        name: on the command line.
        promise: what it shows, in words.
        play: what happens, until its end is near.
        ends: fields of `Seen` at the end, whatever the faults.
        spec: adds to that of a job of two workers.
        kubelet: what pods do by themselves.
    """

    name: str
    promise: str
    play: Action
    ends: Mapping[str, Any]
    spec: Mapping[str, Any] = field(default_factory=dict)
    kubelet: Policy = starts_and_goes


def begin_only(kubelet: Kubelet, pod: Object) -> None:
    """A policy: pods start, and those that are deleted stay, Terminating, until somebody lets them go."""
    if not pod["metadata"].get("deletionTimestamp"):
        starts_and_goes(kubelet, pod)


def run_inference(kubelet: Kubelet, pod: Object) -> None:
    """A policy: pods start and go, and inference succeeds."""
    inference = names.LABEL_ATTEMPT not in pod["metadata"]["labels"]
    if inference and pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp"):
        kubelet.finish(pod, 0, to_line(RESULT))
    else:
        starts_and_goes(kubelet, pod)


def running(attempt: int = 0, **changes: Any) -> Action:
    """All replicas of an attempt run."""
    return until(phase=Phase.RUNNING, attempt=attempt, **changes)


def terminating(*replicas: str) -> Action:
    """These pods are being deleted; then they go."""
    return both(until(ending=frozenset(replicas)), let_go(*replicas))


def some_pod_made(scene: Scene) -> None:
    """A first pod of the job exists."""
    assert scene.timeline.until(lambda: bool(scene.present("pods")), scene.patience), "no pod was made"


def succeed(*replicas: str) -> Action:
    """Replicas end with success, the last one last."""
    return both(*(finish(replica) for replica in replicas))


def fail_together() -> Action:
    """A worker fails, and its peer notices."""
    return both(finish("worker-1", 1), finish("worker-0", ExitCode.LOST_PEER))


def two_at_once(scene: Scene) -> None:
    """Two replicas fail for reasons of their own: one restart, one charge."""
    both(finish("worker-0", 2), finish("worker-1", 1))(scene)


GONE: Mapping[str, Any] = {"exists": False, "pods": {}, "services": frozenset(), "jobs": frozenset()}
RUNS: Mapping[str, Any] = {"phase": Phase.RUNNING, "ready": "2/2", "pods": gang(0), "services": frozenset(gang(0))}
ENDED: Mapping[str, Any] = {"phase": Phase.SUCCEEDED, "services": frozenset()}


SCENARIOS: Sequence[Scenario] = (
    Scenario("create", "a job gets its pods, and runs", both(create(), running()), {**RUNS, "attempt": 0}),
    Scenario(
        "succeed",
        "a job succeeds, its inference runs, and a pod that is collected afterwards changes nothing",
        both(
            create(),
            running(),
            succeed("worker-1", "worker-0"),
            until(mse=RESULT.mse, services=frozenset()),
            remove("worker-0"),
        ),
        {
            **ENDED,
            "holds": SUCCEEDED | {ConditionType.INFERENCE_SUCCEEDED: Reason.INFERENCE_SUCCEEDED},
            "pods": {"worker-1": 0, "inference-0": None},
            "jobs": frozenset({"inference"}),
            "mse": RESULT.mse,
            "restarts": 0,
            "disruptions": 0,
        },
        {"inference": {"template": TEMPLATE}},
        run_inference,
    ),
    Scenario(
        "fail",
        "a failure restarts the gang for one charge, and the next one is one too many",
        both(create(), running(), fail_together(), running(1), two_at_once, until(phase=Phase.FAILED)),
        {
            "phase": Phase.FAILED,
            "holds": {ConditionType.FAILED: Reason.BACKOFF_LIMIT_EXCEEDED},
            "attempt": 1,
            "restarts": 1,
            "disruptions": 0,
            "pods": gang(1),
            "services": frozenset(),
        },
        {"runPolicy": {"backoffLimit": 1}},
    ),
    Scenario(
        "disruption",
        "a pod that the cluster takes away restarts the gang, for no charge",
        both(create(), running(), evict("worker-1"), running(1), succeed("worker-0"), until(phase=Phase.SUCCEEDED)),
        {**ENDED, "attempt": 1, "restarts": 0, "disruptions": 1, "pods": {"worker-0": 1}},
    ),
    Scenario(
        "suspend",
        "a job that is suspended has no pods, and goes on where it was",
        both(
            create(),
            running(),
            fail_together(),
            running(1),
            edit(suspend=True),
            terminating("worker-0", "worker-1"),
            until(pods={}, phase=Phase.SUSPENDED, holds={ConditionType.SUSPENDED: Reason.JOB_SUSPENDED}),
            edit(suspend=False),
            running(2),
        ),
        {**RUNS, "attempt": 2, "restarts": 1, "disruptions": 0, "pods": gang(2)},
        kubelet=lambda kubelet, pod: (
            starts_and_goes if pod["metadata"]["labels"].get(names.LABEL_ATTEMPT) == "0" else begin_only
        )(kubelet, pod),
    ),
    Scenario(
        "resize",
        "a gang that is resized starts anew, after the last pod of the old size",
        both(
            create(),
            running(),
            edit(replicaSpecs=roles(worker=3)),
            until(attempt=1),
            terminating("worker-0", "worker-1"),
            running(1, pods=gang(1, worker=3)),
            edit(replicaSpecs=roles(worker=1)),
            until(attempt=2),
            terminating("worker-0", "worker-1", "worker-2"),
            running(2),
        ),
        {
            "phase": Phase.RUNNING,
            "attempt": 2,
            "restarts": 0,
            "disruptions": 0,
            "pods": gang(2, worker=1),
            "services": frozenset(gang(2, worker=1)),
        },
        kubelet=begin_only,
    ),
    Scenario(
        "deadline",
        "a job that takes too long fails",
        both(create(), running(), until(phase=Phase.FAILED)),
        {
            "phase": Phase.FAILED,
            "holds": {ConditionType.FAILED: Reason.DEADLINE_EXCEEDED},
            "attempt": 0,
            "pods": {},
            "services": frozenset(),
        },
        {"runPolicy": {"activeDeadlineSeconds": 10}},
    ),
    Scenario(
        "ttl",
        "a job that has ended is deleted when its time to live is over",
        both(create(), running(), succeed("worker-1", "worker-0"), until(exists=False)),
        GONE,
        {"runPolicy": {"ttlSecondsAfterFinished": 2}},
    ),
    Scenario(
        "delete",
        "a job that is deleted in the middle of its creation leaves nothing",
        both(create(), some_pod_made, delete_job(), until(exists=False)),
        GONE,
    ),
    Scenario(
        "recreate",
        "a job that is deleted and made again under its name takes nothing for its own that was the other one's",
        both(
            create(),
            running(),
            delete_job(),
            until(exists=False, ending=frozenset(gang(0))),
            create(),
            until(holds=BLOCKED),
            let_go("worker-0", "worker-1"),
            running(),
        ),
        {**RUNS, "attempt": 0, "restarts": 0, "disruptions": 0},
        kubelet=begin_only,
    ),
    Scenario(
        "evaluator",
        "an evaluator that fails starts anew alone",
        both(
            create(),
            running(),
            finish("evaluator-0", 1),
            until(again=frozenset({"evaluator-0"}), ready="3/3"),
            succeed("worker-1", "worker-0"),
            until(phase=Phase.SUCCEEDED),
        ),
        {**ENDED, "attempt": 0, "restarts": 0, "disruptions": 0, "pods": gang(0)},
        {"replicaSpecs": roles(worker=2, evaluator=1)},
    ),
    Scenario(
        "ps",
        "in a job with ps a worker starts anew alone, and a lost ps restarts the gang",
        both(
            create(),
            running(),
            finish("worker-1", 1),
            until(again=frozenset({"worker-1"}), ready="3/3"),
            evict("ps-0"),
            running(1),
        ),
        {
            "phase": Phase.RUNNING,
            "attempt": 1,
            "restarts": 1,
            "disruptions": 1,
            "pods": gang(1, ps=1),
            "services": frozenset(gang(1, ps=1)),
        },
        {"replicaSpecs": roles(worker=2, ps=1)},
    ),
    Scenario(
        "name-taken",
        "a job waits for a name that somebody else has, and touches nothing of theirs",
        both(
            occupy("pods", "worker-1", {"containers": [CONTAINER]}, owned=True),
            create(),
            until(holds=BLOCKED),
            remove("worker-1"),
            running(),
        ),
        {**RUNS, "attempt": 0},
        kubelet=lambda kubelet, pod: (
            starts_and_goes(kubelet, pod) if names.LABEL_JOB in pod["metadata"].get("labels", {}) else None
        ),
    ),
)
BY_NAME: Mapping[str, Scenario] = {scenario.name: scenario for scenario in SCENARIOS}

__all__ = ["BY_NAME", "JOB", "SCENARIOS", "Scenario"]
