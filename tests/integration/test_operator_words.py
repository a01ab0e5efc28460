"""What people are told: events as whole sentences, progress, the last words of what failed, and where they stay."""

import pytest

from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.exitcodes import ExitCode
from qmljob_api.progress import InferenceResult, to_line
from qmljob_api.reasons import Reason
from qmljob_api.status import AttemptRecord, LastFailure, ProgressStatus
from support.stories import Scene, Step, Story, gang, step
from support.story_actions import both, create, delete, edit, evict, finish, progress, report, say, start
from support.story_steps import RUNS, SUCCEEDED, TEMPLATE, begins, fails, restarts, succeeds

LONG = "x" * 5000


def told(wanted: Step, *notes: str) -> Step:
    """A step whose events say exactly this."""
    return step(wanted.what, wanted.does, events=wanted.events, notes=notes, says=wanted.says, **wanted.changes)


def runs_again(attempt: int) -> Step:
    return step(
        f"attempt {attempt} runs",
        start(),
        phase=Phase.RUNNING,
        holds=RUNS,
        ready="2/2",
        events=[Reason.REPLICAS_RUNNING],
        notes=[f"All 2 replicas of attempt {attempt} run"],
    )


STORIES = [
    Story(
        "a job's whole way, word for word",
        [
            told(begins()[0], "Attempt 0 starts: 2 workers"),
            runs_again(0),
            step("epoch 12 is done", report(12), epoch=12),
            told(
                restarts(
                    "worker 1 runs out of memory",
                    both(
                        finish("worker-0", ExitCode.LOST_PEER),
                        finish("worker-1", 137, reason="OOMKilled", ago=8),
                    ),
                    1,
                    Reason.REPLICA_FAILED,
                    restarts=1,
                    failure=("worker-1", 137, Reason.REPLICA_FAILED),
                ),
                "Restart 1 of 3 (attempt 1): qcnn-worker-1 exited with 137 (out of memory); "
                "training resumes from epoch 12",
            ),
            runs_again(1),
            told(
                restarts(
                    "worker 1 is evicted",
                    evict("worker-1"),
                    2,
                    Reason.DISRUPTED,
                    disruptions=1,
                    failure=("worker-1", None, Reason.DISRUPTED),
                ),
                "Restart, not charged (attempt 2): qcnn-worker-1 was taken away (Eviction API: evicting); "
                "training resumes from epoch 12",
            ),
            runs_again(2),
            told(
                restarts("the port is edited", edit(port=2300), 3, Reason.SPEC_CHANGED),
                "Planned restart (attempt 3): the job was edited; training resumes from epoch 12",
            ),
            runs_again(3),
            step(
                "the job is suspended",
                edit(suspend=True),
                phase=Phase.SUSPENDED,
                holds={ConditionType.SUSPENDED: Reason.JOB_SUSPENDED},
                ready="0/2",
                pods={},
                events=[Reason.JOB_SUSPENDED],
                notes=["The job is suspended after attempt 3; epoch 12 was done"],
            ),
            told(
                restarts("it is resumed", edit(suspend=False), 4, Reason.JOB_RESUMED),
                "Planned restart (attempt 4): the job goes on; training resumes from epoch 12",
            ),
            runs_again(4),
            told(
                restarts(
                    "both lose their peers",
                    both(finish("worker-0", ExitCode.LOST_PEER), finish("worker-1", ExitCode.LOST_PEER)),
                    5,
                    Reason.LOST_PEERS_ONLY,
                    failure=("worker-0", ExitCode.LOST_PEER, Reason.LOST_PEERS_ONLY),
                ),
                "Restart, not charged (attempt 5): qcnn-worker-0 exited with 69 (lost peer); "
                "training resumes from epoch 12",
            ),
            runs_again(5),
            told(
                restarts(
                    "worker 0 fails",
                    both(finish("worker-0", 1), finish("worker-1", ExitCode.LOST_PEER)),
                    6,
                    Reason.REPLICA_FAILED,
                    restarts=2,
                    failure=("worker-0", 1, Reason.REPLICA_FAILED),
                ),
                "Restart 2 of 3 (attempt 6 in 2 s): qcnn-worker-0 exited with 1; training resumes from epoch 12",
            ),
            runs_again(6),
            told(
                succeeds(
                    does=both(finish("worker-1"), finish("worker-0", 0, to_line(progress(20)))),
                    epoch=20,
                    pods=gang(6) | {"inference-0": None},
                    jobs=frozenset({"inference"}),
                    events=[Reason.TRAINING_SUCCEEDED, Reason.INFERENCE_STARTED],
                ),
                "Training succeeded in attempt 6; loss 0.25 after epoch 20",
                "Inference starts: Job qcnn-inference evaluates what was trained",
            ),
            step(
                "inference ends",
                both(
                    start("inference-0"),
                    finish(
                        "inference-0",
                        0,
                        to_line(
                            InferenceResult(
                                artifact="gs://bucket/w.h5", mse=0.2512345678, sign_accuracy=0.9, examples=12
                            )
                        ),
                    ),
                ),
                holds=SUCCEEDED | {ConditionType.INFERENCE_SUCCEEDED: Reason.INFERENCE_SUCCEEDED},
                mse=0.251235,
                events=[Reason.INFERENCE_SUCCEEDED],
                notes=["Inference succeeded: Mean squared error 0.251235 on 12 examples"],
            ),
        ],
        spec={"inference": {"template": TEMPLATE}},
    ),
    Story(
        "why a job failed, word for word",
        [
            *begins(),
            told(
                fails(
                    "both fail",
                    both(finish("worker-0", 1), finish("worker-1", 1)),
                    Reason.BACKOFF_LIMIT_EXCEEDED,
                    failure=("worker-0", 1, Reason.BACKOFF_LIMIT_EXCEEDED),
                    says={
                        ConditionType.FAILED: "qcnn-worker-0 exited with 1 in attempt 0, and all restarts of "
                        "runPolicy.backoffLimit (0) are used up"
                    },
                ),
                "The job failed: qcnn-worker-0 exited with 1 in attempt 0, and all restarts of "
                "runPolicy.backoffLimit (0) are used up",
            ),
        ],
        spec={"runPolicy": {"backoffLimit": 0}},
    ),
    Story(
        "that a job took too long, word for word",
        [
            told(begins()[0], "Attempt 0 starts: 2 workers"),
            told(
                fails(
                    "time passes",
                    lambda scene: None,
                    Reason.STARTUP_DEADLINE_EXCEEDED,
                    pods={},
                ),
                "The job failed: qcnn-worker-0, qcnn-worker-1 did not start within "
                "runPolicy.startupDeadlineSeconds (2 s)",
            ),
        ],
        spec={"runPolicy": {"startupDeadlineSeconds": 2}},
    ),
    Story(
        "a replica that starts anew alone, word for word",
        [
            *begins(evaluator=1),
            step(
                "the evaluator fails",
                finish("evaluator-0", 1, ago=8),
                phase=Phase.STARTING,
                holds={},
                ready="2/3",
                again=frozenset({"evaluator-0"}),
                failure=("evaluator-0", 1, Reason.REPLICA_REPLACED),
                events=[Reason.REPLICA_REPLACED],
                notes=["qcnn-evaluator-0 exited with 1 and starts anew alone (not charged)"],
            ),
        ],
        spec={
            "replicaSpecs": {
                role: {"replicas": n, "template": TEMPLATE} for role, n in (("worker", 2), ("evaluator", 1))
            }
        },
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.promise)
def test_events_tell(story: Story, stage: Scene) -> None:
    stage.tell(story)


def fail_with(stage: Scene, *last: object, code: int = 1, message: str = "") -> LastFailure:
    """Runs a job whose worker 1 says something and fails; returns what is kept of it."""
    with stage.playing(Story("", [])):
        both(create(), lambda scene: scene.reach("made", pods=gang(0)), start())(stage)
        stage.reach("runs", phase=Phase.RUNNING)
        both(*last, finish("worker-0", ExitCode.LOST_PEER), finish("worker-1", code, message, ago=8))(stage)
        stage.reach("starts anew", attempt=1)
    stage.check_promises()
    failure = stage.status().last_failure
    assert failure is not None
    return failure


def test_the_last_lines_of_a_failed_replica_stay_when_its_pod_goes(stage: Scene) -> None:
    lines = [f"line {number}" for number in range(30)]
    failure = fail_with(stage, say("worker-1", *lines), message="what kubelet kept")
    assert (failure.replica, failure.attempt, failure.exit_code) == ("qcnn-worker-1", 0, 1)
    assert failure.message.splitlines() == lines[-20:]


def test_where_a_replicas_output_can_not_be_read_kubelets_copy_of_its_end_stays(stage: Scene) -> None:
    assert fail_with(stage, message="Traceback: boom").message == "Traceback: boom"


def test_of_a_replica_that_said_nothing_its_end_is_told(stage: Scene) -> None:
    assert fail_with(stage, code=139).message == "qcnn-worker-1 exited with 139 (killed by SIGSEGV)"


def test_the_end_of_a_long_output_is_kept(stage: Scene) -> None:
    message = fail_with(stage, say("worker-1", *[LONG] * 3, "the end")).message
    assert message.splitlines()[-1] == "the end"
    assert len(message) <= 4096


def test_progress_is_read_from_the_chiefs_output(stage: Scene) -> None:
    with stage.playing(Story("", [])):
        both(create(), lambda scene: scene.reach("made", pods=gang(0)), start())(stage)
        stage.reach("runs", phase=Phase.RUNNING)
        both(report(3, "worker-1"), report(1), say("worker-0", "no progress", '{"qmljob": "progress/v1"}'))(stage)
        stage.reach("epoch 1", epoch=1)
        report(2, loss=0.123456789, val_loss=1e-9)(stage)
        stage.reach("epoch 2", epoch=2)
        found = stage.status().progress
        assert found is not None
        assert found == ProgressStatus(
            attempt=0,
            epoch=2,
            epochs=20,
            step=20,
            loss=0.123457,
            sign_accuracy=0.5,
            val_loss=1e-9,
            val_sign_accuracy=0.5,
            learning_rate=0.5,
            seconds=1.0,
            examples_per_second=1.0,
            time=found.time,
        )
        assert found.time is not None
    stage.check_promises()


def test_an_epoch_that_is_known_already_is_not_written_again(stage: Scene) -> None:
    with stage.playing(Story("", [])):
        both(create(), lambda scene: scene.reach("made", pods=gang(0)), start())(stage)
        stage.reach("runs", phase=Phase.RUNNING)
        report(1)(stage)
        stage.reach("epoch 1", epoch=1)
        stage.come_to_rest()
        mark = stage.plane.audit_mark()
        for _ in range(3):
            report(1)(stage)
            stage.touch()
        report(2)(stage)
        stage.reach("epoch 2", epoch=2)
        writes = stage.operator.writes(stage.namespace, since=mark)
        assert len(writes) == 1


def test_history_tells_of_the_last_five_attempts(stage: Scene) -> None:
    with stage.playing(Story("", [])):
        create()(stage)
        for attempt in range(7):
            stage.reach(f"attempt {attempt}", pods=gang(attempt))
            start()(stage)
            stage.reach(f"attempt {attempt} runs", phase=Phase.RUNNING)
            if attempt == 4:
                both(finish("worker-0", 1), finish("worker-1", 1))(stage)
            elif attempt < 6:
                delete("pods", "worker-1")(stage)
    history = stage.status().history
    taken = "qcnn-worker-1 was taken away (its pod was deleted)"
    assert [_without_time(record) for record in history] == [
        (1, Reason.DISRUPTED, False, "qcnn-worker-1", taken),
        (2, Reason.DISRUPTED, False, "qcnn-worker-1", taken),
        (3, Reason.DISRUPTED, False, "qcnn-worker-1", taken),
        (4, Reason.REPLICA_FAILED, True, "qcnn-worker-0", "qcnn-worker-0 exited with 1"),
        (5, Reason.DISRUPTED, False, "qcnn-worker-1", taken),
    ]
    stage.check_promises()


def _without_time(record: AttemptRecord) -> tuple[object, ...]:
    return (record.attempt, record.reason, record.charged, record.replica, record.message)
