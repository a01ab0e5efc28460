"""The end of a job, step by step: what is cleaned up, inference, and how long the job is kept. Finished is finished."""

import copy
from typing import Any

import pytest

from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.testing import TEMPLATE
from qmljob_operator.observation import Answer, Verdict
from support.planning_steps import (
    QUIET,
    both,
    create,
    deletions,
    ends,
    fail,
    nothing,
    run,
    service_deletions,
)
from support.planning_stories import Act, Step, Story, tell
from support.world import World

START = [create(), run()]
INFERENCE = {"template": {"spec": {"containers": [{"name": "inference", "image": "qmljob/inference:test"}]}}}
RESULT = '{"qmljob":"result/v1","artifact":"gs://b/a","mse":0.123456,"sign_accuracy":1.0,"examples":140}'
INFERENCE_STARTS = "Inference starts: Job qcnn-inference evaluates what was trained"
SUCCEEDED = "Training succeeded in attempt 0"
ALL_END = both(ends("worker-0", 0), ends("worker-1", 0))
JOB = "create jobs/qcnn-inference"


def policy(**fields: Any) -> Any:
    return lambda: World(runPolicy=fields)


def inferring(**spec: Any) -> Any:
    return lambda: World(inference=INFERENCE, **spec)


def inference_ends(*, complete: bool, message: str = "") -> Act:
    return lambda world: world.end_inference(complete=complete, message=message)


def refusing(verdict: Verdict, message: str, kind: str = "Job") -> Act:
    def act(world: World) -> None:
        world.admission = lambda document: Answer(verdict, message) if document["kind"] == kind else None

    return act


def accepting(world: World) -> None:
    world.admission = lambda _document: None


def succeed(*writes: str, act: Act = ALL_END, notes: tuple[str, ...] = ()) -> Step:
    return Step("training ends", act, ["status: Succeeded", *writes], [SUCCEEDED, *notes], Phase.SUCCEEDED, 60)


def with_sidecar() -> World:
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["containers"].append({"name": "sidecar", "image": "sidecar"})
    return World(replicaSpecs={"worker": {"replicas": 2, "template": template}})


TRAINED = succeed(*service_deletions(), JOB, notes=(INFERENCE_STARTS,))
STORIES = {
    "Running: what has ended stays with its logs": Story(World, [*START, succeed(*service_deletions()), QUIET]),
    "Running: peers are given half a minute, and then stopped": Story(
        World,
        [
            *START,
            succeed(act=ends("worker-0", 0)),
            Step("worker-1 still runs", nothing, [*deletions("worker-1", grace=None), "status: Succeeded"], time=30),
            Step("it goes", World.let_go, ["status: Succeeded", *service_deletions()]),
            QUIET,
        ],
    ),
    "Running: a pod whose sidecar goes on still runs": Story(
        with_sidecar,
        [
            *START,
            succeed(
                act=both(
                    ends("worker-0", 0, still_running=("sidecar",)), ends("worker-1", 0, still_running=("sidecar",))
                )
            ),
            Step("half a minute passes", nothing, deletions(grace=None), time=30),
            Step("they go", World.let_go, ["status: Succeeded", *service_deletions()]),
        ],
    ),
    "All: all pods go": Story(
        policy(cleanPodPolicy="All"),
        [
            *START,
            # Ended pods are gone at once.
            succeed(*deletions(grace=None), *service_deletions(), "status: Succeeded"),
            QUIET,
        ],
    ),
    "None: nothing is touched": Story(policy(cleanPodPolicy="None"), [*START, succeed(act=ends("worker-0", 0)), QUIET]),
    "a job that failed is cleaned up at once": Story(
        policy(backoffLimit=0),
        [
            *START,
            Step("worker-1 is configured wrongly", ends("worker-1", 64), ["status: Running"], time=60),
            fail(
                "it settles",
                nothing,
                "qcnn-worker-1 exited with 64 (invalid configuration) in attempt 0",
                *deletions("worker-0", grace=None),
                "status: Failed",
                time=65,
            ),
        ],
    ),
    "no edit, no suspension and no lost pod makes a finished job run again": Story(
        World,
        [
            *START,
            succeed(*service_deletions()),
            Step("it is scaled", lambda world: world.scale(4), ["status: Succeeded"]),
            Step("it is suspended", lambda world: world.edit(suspend=True), ["status: Succeeded"]),
            Step("its pods are collected", lambda world: world.pods.clear(), ["status: Succeeded"]),
            Step("a new operator comes", World.forget),
            QUIET,
        ],
    ),
    "inference runs once, and its answer lands in the status": Story(
        inferring(),
        [
            *START,
            TRAINED,
            QUIET,
            Step(
                "it ends",
                inference_ends(complete=True, message=f"some words\n{RESULT}\n"),
                ["status: Succeeded"],
                ["Inference succeeded: Mean squared error 0.123456 on 140 examples"],
            ),
            Step("its Job is collected", lambda world: world.jobs.clear()),
            QUIET,
        ],
    ),
    "an answer that is seen late is not lost": Story(
        inferring(),
        [
            *START,
            TRAINED,
            Step("the Job has ended, its pod is not seen yet", lambda world: world.complete_inference(complete=True)),
            Step(
                "the pod is seen",
                inference_ends(complete=True, message=RESULT),
                ["status: Succeeded"],
                ["Inference succeeded: Mean squared error 0.123456 on 140 examples"],
                time=3,
            ),
        ],
    ),
    "inference that says nothing has succeeded all the same": Story(
        inferring(),
        [
            *START,
            TRAINED,
            Step("it ends", inference_ends(complete=True, message="done")),
            Step(
                "nothing more comes",
                nothing,
                ["status: Succeeded"],
                ["Inference succeeded: Job qcnn-inference has ended with success and left no result line"],
                time=10,
            ),
        ],
    ),
    "inference that fails does not undo the training": Story(
        inferring(),
        [
            *START,
            TRAINED,
            Step(
                "it fails",
                inference_ends(complete=False, message="BadArtifactError: gs://b/a is of another model\n"),
                ["status: Succeeded"],
                ["Inference failed: BadArtifactError: gs://b/a is of another model"],
            ),
            QUIET,
        ],
    ),
    "an inference Job that is deleted before its end is made anew": Story(
        inferring(),
        [*START, TRAINED, Step("it is deleted", lambda world: world.jobs.clear(), [JOB], [INFERENCE_STARTS])],
    ),
    "inference that is forbidden waits for room": Story(
        inferring(),
        [
            *START,
            Step("there is no room", refusing(Verdict.FORBIDDEN, "exceeded quota")),
            Step(
                "training ends",
                ALL_END,
                ["status: Succeeded", *service_deletions(), f"{JOB}: forbidden", "status: Succeeded"],
                [SUCCEEDED, INFERENCE_STARTS, "Job qcnn-inference: exceeded quota"],
                Phase.SUCCEEDED,
                60,
            ),
            Step("it is tried again", nothing, [f"{JOB}: forbidden"], time=6),
            Step("there is room", accepting),
            Step("it is tried again", nothing, [JOB, "status: Succeeded"], time=20),
        ],
    ),
    "inference that can never run has failed, and the job ends": Story(
        inferring(runPolicy={"ttlSecondsAfterFinished": 100}),
        [
            *START,
            Step("its template is bad", refusing(Verdict.INVALID, "spec.template: Invalid value")),
            Step(
                "training ends",
                ALL_END,
                ["status: Succeeded", *service_deletions(), f"{JOB}: invalid", "status: Succeeded"],
                [
                    SUCCEEDED,
                    INFERENCE_STARTS,
                    "Inference can't run as it is written: Job qcnn-inference: spec.template: Invalid value",
                ],
                Phase.SUCCEEDED,
                60,
            ),
            Step(
                "its time is over",
                nothing,
                ["delete qmljobs/qcnn"],
                ["The job ended 100 s ago (runPolicy.ttlSecondsAfterFinished) and is deleted"],
                time=100,
            ),
        ],
    ),
    "its time to live counts from the end of inference": Story(
        inferring(runPolicy={"ttlSecondsAfterFinished": 100}),
        [
            *START,
            TRAINED,
            Step("nobody deletes it before", nothing, time=500),
            Step(
                "inference ends",
                inference_ends(complete=True, message=RESULT),
                ["status: Succeeded"],
                ["Inference succeeded: Mean squared error 0.123456 on 140 examples"],
            ),
            Step("almost", nothing, time=99),
            Step(
                "its time is over",
                nothing,
                ["delete qmljobs/qcnn"],
                ["The job ended 100 s ago (runPolicy.ttlSecondsAfterFinished) and is deleted"],
                time=1,
            ),
            QUIET,
        ],
    ),
    "a time to live of 0 ends a failed job at once": Story(
        policy(backoffLimit=0, ttlSecondsAfterFinished=0),
        [
            *START,
            Step(
                "both crash",
                both(ends("worker-0", 1), ends("worker-1", 1)),
                ["status: Failed", *service_deletions(), "delete qmljobs/qcnn"],
                [
                    "The job failed: qcnn-worker-0 exited with 1 in attempt 0, and all restarts of "
                    "runPolicy.backoffLimit (0) are used up",
                    "The job ended 0 s ago (runPolicy.ttlSecondsAfterFinished) and is deleted",
                ],
                Phase.FAILED,
                60,
            ),
        ],
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_the_end_of_a_job(story: Story) -> None:
    tell(story)


def test_the_results_of_inference_are_kept() -> None:
    status = tell(STORIES["inference runs once, and its answer lands in the status"]).status
    assert status.results is not None
    assert (status.results.mse, status.results.examples, status.results.artifact) == (0.123456, 140, "gs://b/a")
    assert status.holds(ConditionType.INFERENCE_SUCCEEDED)


def test_what_kept_a_job_from_going_on_does_not_outlive_it() -> None:
    world = World()
    world.settle()
    world.start("worker-0")
    world.waiting("worker-1", "ImagePullBackOff", "not found")
    world.settle()
    assert world.status.holds(ConditionType.BLOCKED)
    world.end("worker-0", 0)
    world.settle()
    assert world.status.holds(ConditionType.SUCCEEDED)
    assert not world.status.holds(ConditionType.BLOCKED)


def test_replicas_that_end_after_the_chief_are_counted() -> None:
    world = World(roles={"worker": 3})
    world.settle()
    world.start()
    world.settle()
    world.end("worker-0", 0)
    world.settle()
    counts = world.status.replica_statuses["worker"]
    assert (counts.running, counts.succeeded, world.status.ready) == (2, 1, "2/3")
    world.end("worker-1", 0)
    world.end("worker-2", 1)
    world.settle()
    world.pods.clear()
    world.settle()
    counts = world.status.replica_statuses["worker"]
    assert (counts.running, counts.succeeded, counts.failed, world.status.replicas) == (0, 2, 1, 0)


def test_what_was_refused_of_a_replica_does_not_hold_up_inference() -> None:
    world = World(roles={"worker": 1, "evaluator": 1}, inference=INFERENCE)
    world.settle()
    world.start()
    world.end("evaluator-0", 1)
    world.run(70)
    world.let_go()
    refusing(Verdict.INVALID, "spec: Invalid value", "Pod")(world)
    assert world.run(10) == ["create pods/qcnn-evaluator-0: invalid", "status: Starting"]
    world.end("worker-0", 0)
    assert JOB in world.settle()


def test_a_finished_job_that_can_not_be_read_any_more_is_kept_as_it_is() -> None:
    world = World(runPolicy={"ttlSecondsAfterFinished": 100})
    world.settle()
    world.start()
    ALL_END(world)
    world.settle()
    world.edit(port=0)
    world.settle()
    assert world.status.holds(ConditionType.SUCCEEDED)
    assert world.run(1000) == []
