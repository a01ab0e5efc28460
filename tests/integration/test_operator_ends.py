"""Stories of ends: success, deadlines, what is cleaned up, inference, and the time to live."""

import pytest

from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.exitcodes import ExitCode
from qmljob_api.progress import InferenceResult, to_line
from qmljob_api.reasons import Reason
from qmljob_api.timestamps import parse_time
from support.stories import Scene, Story, gang, step
from support.story_actions import (
    both,
    create,
    delete,
    delete_job,
    edit,
    finish,
    kill_operator,
    made,
    made_anew,
    nothing,
    start,
    start_operator,
    waiting,
)
from support.story_steps import CONTAINER, SUCCEEDED, TEMPLATE, begins, fails, restarts, runs, succeeds, template

RESULT = InferenceResult(artifact="gs://bucket/w.h5", mse=0.25, sign_accuracy=0.9, examples=12)
INFERENCE = {"inference": {"template": TEMPLATE}}
INFERENCE_SUCCEEDED = SUCCEEDED | {ConditionType.INFERENCE_SUCCEEDED: Reason.INFERENCE_SUCCEEDED}
INFERENCE_FAILED = SUCCEEDED | {ConditionType.INFERENCE_FAILED: Reason.INFERENCE_FAILED}
GONE = {"exists": False, "phase": None, "holds": {}, "attempt": None, "ready": "", "pods": {}}


def trains_then_infers(**changes: object) -> list:
    """A job runs, succeeds, and its inference begins."""
    return [
        *begins(),
        succeeds(
            **{
                "pods": gang(0) | {"inference-0": None},
                "jobs": frozenset({"inference"}),
                "events": [Reason.TRAINING_SUCCEEDED, Reason.INFERENCE_STARTED],
                **changes,
            }
        ),
    ]


STORIES = [
    Story(
        "the chief's success is the job's: its peers are cleaned up, what has ended stays to be read",
        [
            *begins(),
            succeeds("worker 0 ends", finish("worker-0"), pods={"worker-0": 0}),
            step("somebody deletes what stayed", delete("pods", "worker-0"), pods={}),
        ],
    ),
    Story(
        "cleanPodPolicy All leaves no pod",
        [*begins(), succeeds(pods={})],
        spec={"runPolicy": {"cleanPodPolicy": "All"}},
    ),
    Story(
        "cleanPodPolicy None leaves all pods and their Services, also those that run on",
        [
            *begins(),
            succeeds("worker 0 ends", finish("worker-0"), ready="1/2", services=frozenset(gang(0))),
            step("worker 1 ends much later", finish("worker-1", 1), ready="0/2"),
        ],
        spec={"runPolicy": {"cleanPodPolicy": "None"}},
    ),
    Story(
        "cleanPodPolicy is followed for a job that failed, too",
        [
            *begins(),
            fails(
                "worker 1 is out of order",
                finish("worker-1", 64),
                Reason.INVALID_CONFIGURATION,
                pods={},
                failure=("worker-1", 64, Reason.INVALID_CONFIGURATION),
            ),
        ],
        spec={"runPolicy": {"cleanPodPolicy": "All"}},
    ),
    Story(
        "the deadline of a job ends it while it runs",
        [
            *begins(),
            fails("time passes", nothing, Reason.DEADLINE_EXCEEDED, pods={}),
        ],
        spec={"runPolicy": {"activeDeadlineSeconds": 3}},
    ),
    Story(
        "the deadline of a job is kept by an operator that starts after it",
        [
            *begins(),
            step("no operator runs", kill_operator),
            fails("one starts", start_operator, Reason.DEADLINE_EXCEEDED, pods={}),
        ],
        spec={"runPolicy": {"activeDeadlineSeconds": 3}},
    ),
    Story(
        "the startup deadline ends a job whose replicas never start",
        [
            step(
                "one replica's image can't be pulled",
                both(create(), made(2), waiting("worker-1", "ErrImagePull"), start("worker-0")),
                exists=True,
                phase=Phase.STARTING,
                holds={ConditionType.BLOCKED: Reason.IMAGE_UNAVAILABLE},
                attempt=0,
                ready="1/2",
                pods=gang(0),
                services=frozenset(gang(0)),
                events=[Reason.STARTING, Reason.IMAGE_UNAVAILABLE],
            ),
            fails("time passes", nothing, Reason.STARTUP_DEADLINE_EXCEEDED, pods={}),
        ],
        spec={"runPolicy": {"startupDeadlineSeconds": 4}},
    ),
    Story(
        "the startup deadline does not touch a job that runs",
        [
            *begins(),
            fails(
                "time passes, and the deadline of the job comes",
                nothing,
                Reason.DEADLINE_EXCEEDED,
                pods={},
            ),
        ],
        spec={"runPolicy": {"startupDeadlineSeconds": 2, "activeDeadlineSeconds": 4}},
    ),
    Story(
        "inference follows a success, and its error lands in the status",
        [
            *trains_then_infers(),
            step(
                "inference ends",
                both(start("inference-0"), finish("inference-0", 0, to_line(RESULT))),
                holds=INFERENCE_SUCCEEDED,
                mse=0.25,
                events=[Reason.INFERENCE_SUCCEEDED],
                notes=["Inference succeeded: Mean squared error 0.25 on 12 examples"],
            ),
            step("somebody deletes the Job", delete("jobs", "inference"), jobs=frozenset(), pods=gang(0)),
        ],
        spec=INFERENCE,
    ),
    Story(
        "inference that says nothing has succeeded all the same",
        [
            *trains_then_infers(),
            step(
                "inference ends",
                both(start("inference-0"), finish("inference-0", 0, "done")),
                holds=INFERENCE_SUCCEEDED,
                events=[Reason.INFERENCE_SUCCEEDED],
                notes=["Inference succeeded: Job qcnn-inference has ended with success and left no result line"],
            ),
        ],
        spec=INFERENCE,
    ),
    Story(
        "inference that fails leaves the job's success as it is",
        [
            *trains_then_infers(),
            step(
                "the artifact is another model's",
                both(
                    start("inference-0"),
                    finish("inference-0", ExitCode.BAD_ARTIFACT, "error: the artifact has 12 weights, not 8"),
                ),
                holds=INFERENCE_FAILED,
                events=[Reason.INFERENCE_FAILED],
                notes=["Inference failed: error: the artifact has 12 weights, not 8"],
            ),
        ],
        spec=INFERENCE,
    ),
    Story(
        "inference is tried again where that may help, and its Job says when it does not",
        [
            *trains_then_infers(),
            *(
                step(
                    f"pod {number} fails",
                    both(start(f"inference-{number}"), finish(f"inference-{number}", ExitCode.STORE_FAILED)),
                    pods=gang(0) | {f"inference-{made}": None for made in range(number + 2)},
                )
                for number in (0, 1)
            ),
            step(
                "the last one fails",
                both(start("inference-2"), finish("inference-2", ExitCode.STORE_FAILED, "error: no bucket")),
                holds=INFERENCE_FAILED,
                events=[Reason.INFERENCE_FAILED],
                says={ConditionType.INFERENCE_FAILED: "Job qcnn-inference failed: error: no bucket"},
            ),
        ],
        spec=INFERENCE,
    ),
    Story(
        "inference that the API server refuses as it is written has failed, and training has not",
        [
            *begins(),
            succeeds(
                holds=SUCCEEDED | {ConditionType.INFERENCE_FAILED: Reason.INVALID_SPEC},
                events=[Reason.TRAINING_SUCCEEDED, Reason.INFERENCE_STARTED, Reason.INVALID_SPEC],
                says={ConditionType.INFERENCE_FAILED: 'containers[0].volumeMounts[0].name: Not found: "data"'},
            ),
        ],
        spec={
            "inference": {
                "template": template(
                    containers=[CONTAINER | {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}]
                )
            }
        },
    ),
    Story(
        "an inference Job that somebody deletes while it runs is made again",
        [
            *trains_then_infers(),
            step("somebody deletes it", made_anew("jobs", "inference", ("pods", "inference-0"))),
            step(
                "inference ends",
                both(start("inference-0"), finish("inference-0", 0, to_line(RESULT))),
                holds=INFERENCE_SUCCEEDED,
                mse=0.25,
                events=[Reason.INFERENCE_SUCCEEDED],
            ),
        ],
        spec=INFERENCE,
    ),
    Story(
        "inference that is asked for after a success follows it then",
        [
            *begins(),
            succeeds(),
            step(
                "inference is asked for",
                edit(**INFERENCE),
                pods=gang(0) | {"inference-0": None},
                jobs=frozenset({"inference"}),
                events=[Reason.INFERENCE_STARTED],
            ),
        ],
    ),
    Story(
        "a job that failed has no inference",
        [
            *begins(),
            fails(
                "both refuse their flags",
                both(finish("worker-0", 64), finish("worker-1", 64)),
                Reason.INVALID_CONFIGURATION,
                failure=("worker-0", 64, Reason.INVALID_CONFIGURATION),
            ),
        ],
        spec=INFERENCE,
    ),
    Story(
        "a finished job is deleted after its time to live, with what it left",
        [
            *begins(),
            succeeds(),
            step("time passes", nothing, **GONE, events=[Reason.DELETED]),
        ],
        spec={"runPolicy": {"ttlSecondsAfterFinished": 3}},
    ),
    Story(
        "a job that failed is deleted after its time to live by an operator that starts later",
        [
            *begins(),
            fails(
                "both refuse their flags",
                both(finish("worker-0", 64), finish("worker-1", 64)),
                Reason.INVALID_CONFIGURATION,
                failure=("worker-0", 64, Reason.INVALID_CONFIGURATION),
            ),
            step("no operator runs", kill_operator),
            step("one starts", start_operator, **GONE, failure=None, events=[Reason.DELETED]),
        ],
        spec={"runPolicy": {"ttlSecondsAfterFinished": 3}},
    ),
    Story(
        "a job that is deleted goes with all that it owns, also while no operator runs",
        [
            *begins(),
            step("no operator runs", kill_operator),
            step("the job is deleted", delete_job(), **GONE, services=frozenset()),
            step("an operator starts", start_operator),
        ],
    ),
    Story(
        "a success whose pod was collected while no operator ran is sought again, for no charge",
        [
            *begins(),
            step("no operator runs", kill_operator),
            restarts(
                "one starts when worker 0 has ended with success, and its pod is gone",
                both(finish("worker-0"), delete("pods", "worker-0"), start_operator),
                1,
                Reason.DISRUPTED,
                disruptions=1,
                failure=("worker-0", None, Reason.DISRUPTED),
            ),
            runs(1),
            succeeds("it finds its last checkpoint, and ends", both(finish("worker-1"), finish("worker-0"))),
        ],
    ),
    Story(
        "what happened while no operator ran is dealt with when one starts",
        [
            *begins(),
            step("no operator runs", kill_operator),
            succeeds("one starts after the end", both(finish("worker-1"), finish("worker-0"), start_operator)),
        ],
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.promise)
def test_a_job_ends_as_promised(story: Story, stage: Scene) -> None:
    stage.tell(story)


def test_the_time_to_live_counts_from_the_end_of_inference(stage: Scene) -> None:
    story = Story(
        "the job outlives its training by inference and its time to live",
        [
            *trains_then_infers(),
            step(
                "inference ends without a word, for which the operator waits a while",
                both(start("inference-0"), finish("inference-0")),
                holds=INFERENCE_SUCCEEDED,
                events=[Reason.INFERENCE_SUCCEEDED],
            ),
            step("time passes", nothing, **GONE, jobs=frozenset(), events=[Reason.DELETED]),
        ],
        spec={**INFERENCE, "runPolicy": {"ttlSecondsAfterFinished": 2}},
    )
    stage.tell(story)
    last = [each.object for each in stage.timeline.happenings() if each.kind == "qmljobs"][-1]
    ended = {each["type"]: parse_time(each["lastTransitionTime"]) for each in last["status"]["conditions"]}
    deleted = parse_time(stage.events()[-1]["firstTimestamp"])
    assert deleted is not None
    inferred, trained = ended["InferenceSucceeded"], ended["Succeeded"]
    assert inferred is not None
    assert trained is not None
    assert inferred > trained
    assert deleted >= inferred + 2
