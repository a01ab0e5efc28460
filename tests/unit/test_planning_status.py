"""What a status says: how far training is, what failed, what is waited for, and when it is worth a write."""

import math
from dataclasses import replace
from typing import Any

import pytest

from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.reasons import Reason
from qmljob_api.status import JobStatus, ReplicaStatus
from qmljob_api.timestamps import format_time
from qmljob_api.types import Role
from qmljob_operator.observation import Answer, Observation, Verdict
from qmljob_operator.planning.attempts import PROGRESS_SECONDS
from qmljob_operator.planning.lifecycle import plan
from qmljob_operator.planning.plan import Ask, Count, Plan, Total
from support.planning_steps import both, ends
from support.world import T0, World

PROGRESS = (
    '{"qmljob":"progress/v1","role":"worker","index":0,"attempt":0,"epoch":12,"epochs":20,"step":480,"loss":0.25,'
    '"sign_accuracy":0.9,"val_loss":0.3,"val_sign_accuracy":0.8,"learning_rate":0.01,"seconds":2.5,'
    '"validation_seconds":0.5,"examples_per_second":1000}'
)


def running(**spec: Any) -> World:
    """A job whose replicas all run."""
    world = World(**spec)
    world.settle()
    world.start()
    world.settle()
    return world


def planned(world: World, **changes: Any) -> Plan:
    outcome = plan(replace(world.observe(), progress_due_at=math.inf, **changes), world.now)
    assert isinstance(outcome, Plan), outcome
    return outcome


def message(world: World, kind: ConditionType) -> str:
    condition = world.status.condition(kind)
    assert condition is not None
    return condition.message


# What failed


def test_the_last_lines_of_the_replica_at_fault_are_kept_since_its_pod_goes() -> None:
    world = running()
    world.logs["qcnn-worker-1"] = "epoch 3\nTraceback (most recent call last):\nValueError: no such file\n"
    world.now += 60
    world.end("worker-1", 1, message="what kubelet kept")
    world.run(8)
    world.end("worker-0", 69)
    world.settle()
    failure = world.status.last_failure
    assert failure is not None
    assert failure.model_dump() == {
        "replica": "qcnn-worker-1",
        "attempt": 0,
        "exit_code": 1,
        "reason": "ReplicaFailed",
        "message": "epoch 3\nTraceback (most recent call last):\nValueError: no such file\n",
        "time": format_time(T0 + 60),
    }


@pytest.mark.parametrize(
    ("left", "kept"),
    [("what kubelet kept", "what kubelet kept"), ("", "qcnn-worker-1 exited with 1")],
    ids=["its termination message", "how it ended"],
)
def test_without_a_log_there_is_something_else_to_keep(left: str, kept: str) -> None:
    world = running()
    world.end("worker-1", 1, message=left)
    world.end("worker-0", 69)
    world.settle()
    assert world.status.last_failure is not None
    assert world.status.last_failure.message == kept


def test_the_end_of_a_long_log_is_what_is_kept() -> None:
    world = running()
    world.logs["qcnn-worker-1"] = "x" * 10_000 + "the end"
    world.end("worker-1", 1)
    world.end("worker-0", 69)
    world.settle()
    assert world.status.last_failure is not None
    assert len(world.status.last_failure.message) <= 4096
    assert world.status.last_failure.message.endswith("the end")


def test_a_disruption_has_no_exit_code() -> None:
    world = running()
    world.disrupt("worker-1")
    world.settle()
    failure = world.status.last_failure
    assert failure is not None
    assert (failure.exit_code, failure.reason) == (None, "Disrupted")
    assert failure.message == "qcnn-worker-1 was taken away (Eviction API: evicting)"
    assert (world.status.disruptions, world.status.restarts) == (1, 0)


def test_the_history_keeps_the_last_five_attempts() -> None:
    world = running(runPolicy={"backoffLimit": 9})
    for _ in range(7):
        world.end("worker-1", 1)
        world.end("worker-0", 69)
        world.settle()
        world.run(400)
        world.start()
        world.settle()
    history = world.status.history
    assert [record.attempt for record in history] == [2, 3, 4, 5, 6]
    assert {(record.reason, record.charged, record.replica, record.message) for record in history} == {
        ("ReplicaFailed", True, "qcnn-worker-1", "qcnn-worker-1 exited with 1")
    }
    assert world.status.restarts == 7


# What people are told


@pytest.mark.parametrize(
    ("act", "note"),
    [
        (
            lambda world: world.disrupt("worker-1"),
            "Restart, not charged (attempt 1 in 8 s): qcnn-worker-1 was taken away (Eviction API: evicting); training "
            "resumes from epoch 12",
        ),
        (
            lambda world: world.scale(3),
            "Planned restart (attempt 1): the job was edited; training resumes from epoch 12",
        ),
        (lambda world: world.edit(suspend=True), "The job is suspended after attempt 0; epoch 12 was done"),
        (lambda world: world.end("worker-0", 0), "Training succeeded in attempt 0; loss 0.25 after epoch 12"),
    ],
    ids=["a restart", "an edit", "a suspension", "success"],
)
def test_events_say_how_far_training_was(act: Any, note: str) -> None:
    world = running()
    world.logs["qcnn-worker-0"] = f"{PROGRESS}\n"
    world.run(20)
    act(world)
    world.settle()
    assert world.events[-1].note == note


def test_a_condition_says_which_replicas_still_run() -> None:
    world = running(successPolicy="AllReplicas")
    assert message(world, ConditionType.RUNNING) == "All 2 replicas of attempt 0 run"
    world.end("worker-0", 0)
    world.settle()
    assert message(world, ConditionType.RUNNING) == "Attempt 0: 1 of 2 replicas run, 1 ended"
    assert world.status.holds(ConditionType.RUNNING)
    assert world.status.phase is Phase.RUNNING


def test_a_pod_that_does_not_go_is_named() -> None:
    world = running()
    world.scale(3)
    world.settle()
    assert message(world, ConditionType.RUNNING) == "0 of 3 replicas of attempt 1 run"
    world.run(50)
    assert message(world, ConditionType.RUNNING) == (
        "0 of 3 replicas of attempt 1 run; qcnn-worker-0, qcnn-worker-1 had to be gone by now (a finalizer, or a node "
        "that is slow)"
    )


def test_the_time_of_a_condition_moves_with_its_status_only() -> None:
    world = running()
    since = world.status.condition(ConditionType.RUNNING)
    world.run(100)
    world.end("worker-1", 0)
    world.settle()
    still = world.status.condition(ConditionType.RUNNING)
    assert since is not None
    assert still is not None
    assert (still.message != since.message, still.last_transition_time) == (True, since.last_transition_time)


def test_counts_are_by_role() -> None:
    world = running(roles={"chief": 1, "worker": 2, "ps": 1})
    world.end("worker-0", 0)
    world.settle()
    status = world.status
    assert status.replica_statuses == {
        Role.CHIEF: ReplicaStatus(replicas=1, running=1),
        Role.WORKER: ReplicaStatus(replicas=2, running=1, succeeded=1),
        Role.PS: ReplicaStatus(replicas=1, running=1),
    }
    assert (status.ready, status.replicas, status.selector) == ("3/4", 2, "qml.dev/job=qcnn,qml.dev/role=worker")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ImagePullBackOff", Reason.IMAGE_UNAVAILABLE),
        ("CreateContainerConfigError", Reason.CONTAINER_CANNOT_START),
        ("Unschedulable", Reason.UNSCHEDULABLE),
    ],
)
def test_what_keeps_a_replica_from_starting_has_a_reason(reason: str, expected: Reason) -> None:
    world = World(roles={"worker": 3})
    world.settle()
    for replica in ("worker-1", "worker-2"):
        if reason == "Unschedulable":
            world.unschedulable(replica, "0/3 nodes are available")
        else:
            world.waiting(replica, reason, "words")
    world.settle()
    condition = world.status.condition(ConditionType.BLOCKED)
    assert condition is not None
    assert condition.reason == expected.value
    assert condition.message.startswith(f"qcnn-worker-1 (and 1 more replicas): {reason}: ")


def refused(verdict: Verdict, words: str) -> Any:
    def act(world: World) -> None:
        world.admission = lambda document: Answer(verdict, words) if document["metadata"]["name"] != "dry-run" else None
        world.scale(3)
        world.settle()
        world.let_go()

    return act


TOLD: dict[str, tuple[Any, Reason, bool]] = {
    "it runs": (World.settle, Reason.REPLICAS_RUNNING, False),
    "a charged restart": (both(ends("worker-0", 69), ends("worker-1", 1)), Reason.REPLICA_FAILED, True),
    "a free restart": (lambda world: world.disrupt("worker-1"), Reason.DISRUPTED, True),
    "a planned restart": (lambda world: world.scale(3), Reason.SPEC_CHANGED, False),
    "a lost status": (lambda world: world.edit_status({}), Reason.STATUS_LOST, False),
    "a failed job": (both(ends("worker-0", 64), ends("worker-1", 69)), Reason.INVALID_CONFIGURATION, True),
    "success": (ends("worker-0", 0), Reason.TRAINING_SUCCEEDED, False),
    "a suspension": (lambda world: world.edit(suspend=True), Reason.JOB_SUSPENDED, False),
    "an unknown field": (lambda world: world.edit(color="red"), Reason.UNKNOWN_FIELDS, True),
    "a spec that can't be read": (lambda world: world.edit(port=0), Reason.INVALID_SPEC, True),
    "a refusal": (refused(Verdict.FORBIDDEN, "exceeded quota"), Reason.FORBIDDEN, True),
    "a refusal for good": (refused(Verdict.INVALID, "bad image"), Reason.INVALID_SPEC, True),
    "a name that is taken": (refused(Verdict.NAME_TAKEN, "it is there"), Reason.NAME_TAKEN, True),
    "a Service that was edited": (
        lambda world: world.services["qcnn-worker-0"]["spec"].update(ports=[]),
        Reason.REPAIRED,
        False,
    ),
}


@pytest.mark.parametrize(("act", "reason", "warning"), TOLD.values(), ids=TOLD.keys())
def test_an_event_has_a_reason_and_warns_of_what_is_wrong(act: Any, reason: Reason, warning: bool) -> None:
    world = running()
    act(world)
    world.settle()
    assert (world.events[-1].reason, world.events[-1].warning) == (reason, warning)


def test_a_suspended_job_counts_nothing_that_runs() -> None:
    world = running()
    world.edit(suspend=True)
    world.settle()
    status = world.status
    assert status.replica_statuses == {Role.WORKER: ReplicaStatus(replicas=2, running=0)}
    assert (status.ready, status.replicas) == ("0/2", 0)


def test_an_edit_that_changes_no_pod_is_the_generation_that_the_attempt_is_of() -> None:
    world = running()
    world.edit(runPolicy={"backoffLimit": 9})
    world.settle()
    assert world.status.gang is not None
    assert (world.status.gang.attempt, world.status.gang.generation) == (0, 2)


def test_a_job_that_was_invalid_and_is_edited_while_suspended_is_judged_when_it_goes_on() -> None:
    world = World(port=0)
    world.settle()
    assert world.status.holds(ConditionType.INVALID)
    world.edit(port=2222, suspend=True)
    world.settle()
    assert not world.status.holds(ConditionType.INVALID)


def test_another_trouble_of_another_replica_is_said() -> None:
    world = World()
    world.settle()
    world.waiting("worker-0", "ImagePullBackOff", "not found")
    world.waiting("worker-1", "ImagePullBackOff", "not found")
    world.settle()
    assert message(world, ConditionType.BLOCKED).startswith("qcnn-worker-0 (and 1 more replicas)")
    world.start("worker-0")
    world.settle()
    assert message(world, ConditionType.BLOCKED) == "qcnn-worker-1: ImagePullBackOff: not found"


# Nodes


def test_no_node_is_asked_about_while_all_replicas_are_ready() -> None:
    world = running(runPolicy={"unreachableSeconds": 60})
    assert isinstance(planned(world), Plan)


def test_a_node_that_answers_again_is_noticed_without_any_event() -> None:
    world = running()
    world.scale(3)
    world.settle()
    world.silence()
    world.run(50)
    assert world.status.holds(ConditionType.WAITING_FOR_NODE)
    del world.nodes["node-a"]
    world.run(15)
    assert not world.status.holds(ConditionType.WAITING_FOR_NODE)


def test_nobody_waits_for_the_log_of_a_replica_on_a_silent_node() -> None:
    world = running()
    world.logs["qcnn-worker-1"] = "out of reach"
    world.end("worker-1", 1)
    world.silence()
    world.run(50)
    # The silent node explains why its other replica says nothing, and so the failure.
    assert world.status.disruptions == 1
    assert world.status.last_failure is not None
    assert world.status.last_failure.message == "qcnn-worker-0 was taken away (its node node-a does not answer)"


# Progress


def test_the_chiefs_last_progress_line_lands_in_the_status() -> None:
    world = running()
    world.logs["qcnn-worker-0"] = f"{PROGRESS}\nsomething else\n" + '{"qmljob":"progress/v1","epoch":"13"}\n'
    world.run(PROGRESS_SECONDS)
    progress = world.status.progress
    assert progress is not None
    assert (progress.epoch, progress.epochs, progress.loss, progress.time) == (12, 20, 0.25, format_time(T0 + 15))


def test_a_running_job_without_news_costs_no_write() -> None:
    world = running()
    world.logs["qcnn-worker-0"] = f"{PROGRESS}\n"
    world.run(20)
    assert world.run(600) == []


def test_the_log_is_read_every_fifteen_seconds_and_not_before_all_run_and_have_had_as_much_time() -> None:
    world = World()
    world.settle()
    world.start("worker-0")
    world.settle()
    world.start("worker-1")
    world.settle()
    assert world.memory["asked_at"] == 0.0
    asked = []
    for _ in range(60):
        world.run(1)
        asked.append(world.memory["asked_at"] - T0)
    assert sorted(set(asked)) == [-T0, 15, 30, 45, 60]


def test_the_log_is_not_read_before_all_run() -> None:
    world = World()
    world.settle()
    world.start("worker-0")
    world.run(60)
    assert world.memory["asked_at"] == 0.0
    world.start("worker-1")
    world.settle()
    assert world.memory["asked_at"] == T0 + 60


def test_an_evaluator_that_finds_no_node_does_not_hide_the_progress() -> None:
    world = World(roles={"worker": 2, "evaluator": 1})
    world.settle()
    world.start("worker-0", "worker-1")
    world.unschedulable("evaluator-0")
    world.logs["qcnn-worker-0"] = f"{PROGRESS}\n"
    world.run(PROGRESS_SECONDS)
    assert world.status.progress is not None


def test_nobody_asks_a_silent_node_for_a_log() -> None:
    world = running()
    world.silence()
    world.now += 20
    seen = world.observe()
    first = plan(seen, world.now)
    assert first == Ask(nodes=frozenset({"node-a"}))
    assert isinstance(first, Ask)
    second = plan(world.answer(seen, first), world.now)
    assert isinstance(second, Plan)
    assert second.wake_at == world.now + PROGRESS_SECONDS


# When it is worth a write, and what is counted


def test_counts_and_progress_can_wait_for_company() -> None:
    world = World(roles={"worker": 4})
    world.settle()
    world.start("worker-0")
    assert not planned(world).urgent
    world.start()
    assert planned(world).urgent  # it runs
    world.settle()
    world.end("worker-1", 0)
    assert planned(world).urgent  # a success must not be lost


def test_that_all_pods_exist_can_wait() -> None:
    world = World()
    world.step()
    outcome = planned(world)
    assert outcome.status.gang is not None
    assert (outcome.status.gang.complete, outcome.urgent) == (True, False)


def test_what_happens_is_counted_once() -> None:
    world = World(runPolicy={"backoffLimit": 1})
    counts: list[Count] = []
    ask = world.decide

    def decide() -> tuple[Observation, Plan]:
        seen, wanted = ask()
        counts.extend(wanted.counts)
        return seen, wanted

    world.decide = decide  # type: ignore[method-assign]
    world.settle()
    world.start()
    world.disrupt("worker-1")
    world.settle()
    world.let_go()
    world.run(60)
    for _ in range(2):
        world.start()
        world.settle()
        world.end("worker-0", 1)
        world.end("worker-1", 1)
        world.run(60)
    assert counts == [
        Count(Total.CREATED),
        Count(Total.RESTARTED, "Disrupted", charged=False),
        Count(Total.RESTARTED, "ReplicaFailed", charged=True),
        Count(Total.FAILED, "BackoffLimitExceeded"),
    ]


def test_success_is_counted() -> None:
    world = running()
    world.end("worker-0", 0)
    assert planned(world).counts == (Count(Total.SUCCEEDED),)


# Times


def test_the_clock_of_the_jobs_deadline_starts_again_after_a_suspension() -> None:
    world = running()
    assert world.status.start_time == format_time(T0)
    world.run(100)
    world.edit(suspend=True)
    world.settle()
    assert world.status.start_time is None
    world.let_go()
    world.run(1000)
    world.edit(suspend=False)
    world.settle()
    assert world.status.start_time == format_time(T0 + 1100)


def test_a_suspended_job_is_suspended_once_its_pods_are_gone() -> None:
    world = running()
    world.edit(suspend=True)
    world.settle()
    assert world.status.phase is Phase.SUSPENDED
    assert not world.status.holds(ConditionType.SUSPENDED)
    assert message(world, ConditionType.RUNNING) == "The job is suspended; its pods are being deleted"
    world.let_go()
    world.settle()
    assert world.status.holds(ConditionType.SUSPENDED)


def test_a_new_operator_waits_no_longer_than_the_old_one_would_have() -> None:
    world = running()
    world.end("worker-1", 1, at=world.now)
    world.settle()
    world.run(60)
    world.forget()
    assert world.run(4) == []
    assert world.run(1)[0] == "status: Restarting"


def test_a_clock_that_is_ahead_does_not_prolong_the_wait() -> None:
    world = running()
    world.end("worker-1", 1, at=world.now + 3600)
    world.settle()
    assert world.run(64) == []
    assert world.run(1)[0] == "status: Restarting"


def test_an_empty_status_is_no_news_of_a_deleted_job() -> None:
    world = World()
    assert world.job is not None
    world.job["metadata"]["deletionTimestamp"] = format_time(T0)
    assert planned(world) == Plan(JobStatus())
