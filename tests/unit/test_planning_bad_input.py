"""What nobody should do and somebody does: nothing crashes, loops or is lost, and the job says what is wrong."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from qmljob_api import names
from qmljob_api.conditions import Phase
from qmljob_operator.observation import Answer, Verdict
from support.planning_steps import (
    POLICY,
    QUIET,
    beginning,
    both,
    create,
    deletions,
    nothing,
    pods,
    run,
    service_deletions,
    services,
)
from support.planning_stories import Act, Step, Story, tell
from support.world import World

START = [create(), run()]
BAD_TEMPLATE = "spec.replicaSpecs.worker.template.spec.containers[0].name: Invalid value"
QUOTA = 'pods "qcnn-worker-0" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=10, limited: pods=10'
IMAGE = 'Back-off pulling image "qmljob/training:tset"'
WEB = {"kind": "ReplicaSet", "name": "web", "uid": "1b9d", "controller": True}
STATUS_LOST = "Planned restart (attempt 1): the status did not describe the pods that are there"


def answering(verdict: Verdict, message: str, *, kind: str = "", name: str = "") -> Act:
    """The API server refuses pods (or what is of a kind, or has a name) from now on."""

    def act(world: World) -> None:
        world.admission = lambda document: (
            Answer(verdict, message)
            if document["kind"] == (kind or "Pod") and name in document["metadata"]["name"]
            else None
        )

    return act


def accepting(world: World) -> None:
    world.admission = lambda _document: None


def made(*acts: Act, **spec: Any) -> Callable[[], World]:
    def make() -> World:
        world = World(**spec)
        both(*acts)(world)
        return world

    return make


def stranger(kind: str, name: str, owner: dict[str, Any] | None = None) -> Act:
    """Somebody else has an object with a name that the job needs."""

    def act(world: World) -> None:
        labels = {names.LABEL_JOB: "qcnn", names.LABEL_ROLE: "worker"}
        metadata = {"name": name, "uid": "stranger", "labels": labels, "ownerReferences": [owner] if owner else []}
        table = world.pods if kind == "Pod" else world.services
        spec = {"containers": [], "nodeName": "node-a"}
        table[name] = {"kind": kind, "metadata": metadata, "spec": spec, "status": {}}

    return act


def remove(kind: str, name: str) -> Act:
    return lambda world: (world.pods if kind == "Pod" else world.services).pop(name)


def status(**changes: Any) -> Act:
    """Somebody edits fields of the status by hand; None takes one away."""

    def act(world: World) -> None:
        known = copy.deepcopy((world.job or {})["status"])
        for name, value in changes.items():
            known[name] = {**known[name], **value} if isinstance(value, dict) else value
        world.edit_status({name: value for name, value in known.items() if value is not None})

    return act


def relabel(replica: str, label: str, value: str | None) -> Act:
    def act(world: World) -> None:
        pod = world.pods[f"qcnn-{replica}"]
        labels = {**pod["metadata"]["labels"], label: value}
        labels = {key: word for key, word in labels.items() if word is not None}
        world.pods[f"qcnn-{replica}"] = {**pod, "metadata": {**pod["metadata"], "labels": labels}}

    return act


def lost(what: str, act: Act, note: str = STATUS_LOST) -> Step:
    """An edit after which the status does not tell of the pods."""
    return Step(what, act, ["status: Restarting", *deletions(grace=None)], [note], Phase.RESTARTING)


def reborn(world: World) -> None:
    """The job is deleted and made anew at once; what the old one owned is still there."""
    assert world.job is not None
    metadata = {**world.job["metadata"], "uid": "job-2"}
    world.job = {key: value for key, value in world.job.items() if key != "status"} | {"metadata": metadata}
    world.forget()


def deleting(world: World) -> None:
    """The job is deleted by a cascade that waits for its pods."""
    assert world.job is not None
    metadata = {**world.job["metadata"], "deletionTimestamp": "2027-01-15T08:00:00Z"}
    world.job = {**world.job, "metadata": metadata}


STORIES = {
    # Specs
    "a template that no pod can be made from is invalid until it is edited": Story(
        made(answering(Verdict.INVALID, BAD_TEMPLATE)),
        [
            Step(
                "the job is created",
                nothing,
                ["status: Invalid"],
                [f"The job can't run as it is written: {BAD_TEMPLATE}"],
                Phase.INVALID,
            ),
            QUIET,
            Step(
                "it is edited",
                both(accepting, lambda world: world.change_image("good")),
                beginning(),
                ["Attempt 0 starts: 2 workers"],
                Phase.STARTING,
            ),
            run(),
        ],
    ),
    "all errors of a spec are told at once": Story(
        made(lambda world: world.edit(port=0, runPolicy={"backoffLimit": -1})),
        [
            Step(
                "the job is created",
                nothing,
                ["status: Invalid"],
                [
                    "The job can't run as it is written: spec.port: 0 is less than 1; set it to 1 or more; "
                    "spec.runPolicy.backoffLimit: -1 is less than 0; set it to 0 or more"
                ],
                Phase.INVALID,
            ),
            QUIET,
            Step(
                "one is repaired",
                lambda world: world.edit(port=2222),
                ["status: Invalid"],
                [
                    "The job can't run as it is written: "
                    "spec.runPolicy.backoffLimit: -1 is less than 0; set it to 0 or more"
                ],
            ),
        ],
    ),
    "fields of another version are ignored, and told once": Story(
        made(lambda world: world.edit(queue="fast", runPolicy={"priority": 3})),
        [
            Step(
                "the job is created",
                nothing,
                beginning(),
                [
                    "The job has fields that this operator does not know, and ignores: "
                    "spec.queue, spec.runPolicy.priority",
                    "Attempt 0 starts: 2 workers",
                ],
                Phase.STARTING,
            ),
            run(),
            QUIET,
        ],
    ),
    # What the API server or the cluster refuses
    "what is forbidden is tried again, and goes on when it is allowed": Story(
        made(answering(Verdict.FORBIDDEN, 'no PriorityClass with name "high" was found')),
        [
            Step(
                "the job is created",
                nothing,
                ["status: Pending"],
                ['no PriorityClass with name "high" was found'],
                Phase.PENDING,
            ),
            QUIET,
            Step("it is allowed", accepting),
            Step("it is tried again", nothing, beginning(), ["Attempt 0 starts: 2 workers"], Phase.STARTING, 60),
        ],
    ),
    "a quota that has room for one pod of two: the rest waits": Story(
        made(answering(Verdict.FORBIDDEN, QUOTA, name="worker-1")),
        [
            Step(
                "the job is created",
                nothing,
                [
                    "status: Starting",
                    POLICY,
                    *services(),
                    "create pods/qcnn-worker-0",
                    "create pods/qcnn-worker-1: forbidden",
                    "status: Starting",
                ],
                ["Attempt 0 starts: 2 workers", f"Pod qcnn-worker-1: {QUOTA}"],
                Phase.STARTING,
            ),
            Step("worker-0 starts", World.start, ["status: Starting"]),
            Step("it is tried again", nothing, ["create pods/qcnn-worker-1: forbidden"], time=5),
            Step("there is room", accepting),
            Step("it is tried again", nothing, ["create pods/qcnn-worker-1", "status: Starting"], time=10),
            run(),
        ],
    ),
    "a pod that the API server can never take is not tried again": Story(
        # The dry run, which has a name of its own, was accepted.
        made(answering(Verdict.INVALID, BAD_TEMPLATE, name="qcnn")),
        [
            Step(
                "the job is created",
                nothing,
                ["status: Starting", POLICY, *services(), *(f"{one}: invalid" for one in pods()), "status: Starting"],
                [
                    "Attempt 0 starts: 2 workers",
                    f"The job can't run as it is written: Pod qcnn-worker-0: {BAD_TEMPLATE}",
                ],
                Phase.STARTING,
            ),
            QUIET,
        ],
    ),
    "an image that does not exist is told once, and goes when it is there": Story(
        World,
        [
            create(),
            Step(
                "it can't be pulled",
                lambda world: world.waiting("worker-1", "ErrImagePull", "rpc error: not found"),
                ["status: Starting"],
                ["qcnn-worker-1: ErrImagePull: rpc error: not found"],
                time=10,
            ),
            *(
                Step(f"kubelet says {reason}", lambda world, reason=reason: world.waiting("worker-1", reason, IMAGE))
                for reason in ("ImagePullBackOff", "ErrImagePull", "ImagePullBackOff")
            ),
            QUIET,
            run(),
        ],
    ),
    "a container that can't be made says what is missing": Story(
        World,
        [
            create(),
            Step(
                "its Secret is missing",
                lambda world: world.waiting("worker-0", "CreateContainerConfigError", 'secret "key" not found'),
                ["status: Starting"],
                ['qcnn-worker-0: CreateContainerConfigError: secret "key" not found'],
            ),
        ],
    ),
    # Names
    "a pod of somebody else is never touched": Story(
        made(
            stranger("Pod", "qcnn-worker-1", {"kind": "ReplicaSet", "name": "web", "uid": "1b9d", "controller": True})
        ),
        [
            Step(
                "the job is created",
                nothing,
                ["status: Starting", POLICY, *services()],
                [
                    "Attempt 0 starts: 2 workers",
                    "Pod qcnn-worker-1 exists and belongs to ReplicaSet web (uid 1b9d): delete or rename it, or name "
                    "the job otherwise; it is never touched",
                ],
                Phase.STARTING,
            ),
            QUIET,
            Step("it is gone", remove("Pod", "qcnn-worker-1"), ["status: Starting", *pods(), "status: Starting"]),
            run(),
        ],
    ),
    "a Service of somebody else keeps pods from meeting there": Story(
        made(stranger("Service", "qcnn-worker-0")),
        [
            Step(
                "the job is created",
                nothing,
                ["status: Starting", POLICY, "create services/qcnn-worker-1"],
                [
                    "Attempt 0 starts: 2 workers",
                    "Service qcnn-worker-0 exists and has no owner: delete or rename it, or name the job otherwise; it "
                    "is never touched",
                ],
                Phase.STARTING,
            ),
            QUIET,
            Step(
                "it is gone",
                remove("Service", "qcnn-worker-0"),
                ["status: Starting", *services("worker-0"), *pods(), "status: Starting"],
            ),
        ],
    ),
    "a job that is deleted in the midst of its creation is let go": Story(
        made(lambda world: world.step(cut=5), deleting),
        [Step("it waits for its pods", nothing, phase=Phase.STARTING), QUIET],
    ),
    "a job that is made anew at once waits until the old one's objects are gone": Story(
        World,
        [
            *START,
            Step(
                "it is deleted and made anew",
                reborn,
                ["status: Starting"],
                [
                    "Attempt 0 starts: 2 workers",
                    "NetworkPolicy qcnn is left from an earlier job qcnn (uid job-1) and goes with it",
                ],
                Phase.STARTING,
            ),
            Step(
                "they are collected",
                lambda world: [world.pods.clear(), world.services.clear(), world.policies.clear()],
                ["status: Starting", POLICY, *services(), *pods(), "status: Starting"],
                time=10,
            ),
            run(),
        ],
    ),
    # Objects
    "a Service that is deleted or edited is put right": Story(
        World,
        [
            *START,
            Step("one is deleted", remove("Service", "qcnn-worker-1"), services("worker-1")),
            Step(
                "one selects nothing any more",
                lambda world: world.services["qcnn-worker-0"]["spec"]["selector"].update(version="2"),
                ["repair services/qcnn-worker-0"],
                ["Service qcnn-worker-0 was edited and is put right (2027-01-15T08:00:05Z)"],
            ),
            QUIET,
        ],
    ),
    "labels by which a Service finds its pod are put back": Story(
        World,
        [
            *START,
            Step("one is edited", relabel("worker-1", names.LABEL_INDEX, "7"), ["relabel pods/qcnn-worker-1"]),
            QUIET,
        ],
    ),
    "a pod whose attempt nobody can read is one of an older attempt": Story(
        World,
        [
            *START,
            Step(
                "the label is gone",
                relabel("worker-1", names.LABEL_ATTEMPT, None),
                ["status: Restarting", *deletions()],
                ["Restart, not charged (attempt 1 in 8 s): qcnn-worker-1 was taken away (its pod was deleted)"],
                Phase.RESTARTING,
            ),
        ],
    ),
    "a label that no status could hold is nobody's attempt": Story(
        World,
        [
            *START,
            Step(
                "the label is absurd",
                relabel("worker-1", names.LABEL_ATTEMPT, "9" * 60),
                ["status: Restarting", *deletions()],
                ["Restart, not charged (attempt 1 in 8 s): qcnn-worker-1 was taken away (its pod was deleted)"],
                Phase.RESTARTING,
            ),
        ],
    ),
    # A status that is edited by hand
    "a status that is wiped costs a planned restart": Story(
        World,
        [
            *START,
            lost("the status is wiped", lambda world: world.edit_status({})),
            Step("the pods go", World.let_go, ["status: Starting", *pods(), "status: Starting"], (), Phase.STARTING),
            run(1),
        ],
    ),
    **{
        f"so does {name}": Story(World, [*START, lost(name, act)])
        for name, act in {
            "a gang that is gone": status(gang=None),
            "an attempt that is gone": status(attempt=None),
            "a gang of another attempt": status(gang={"attempt": 7, "roles": {"worker": 2}}, attempt=0, history=None),
            "a gang without replicas": status(gang={"roles": {"worker": 0}}),
            "a gang of two thousand million": status(gang={"roles": {"worker": 2_000_000_000}}),
            "a gang of roles that the job has not": status(gang={"roles": {"worker": 2, "ps": 1}}),
            "a gang that makes no sense": status(gang={"attempt": "zero"}),
        }.items()
        if name != "a gang of another attempt"
    },
    "an attempt that anything tells of is not begun again": Story(
        World,
        [
            *START,
            lost(
                "the gang is of a later attempt",
                status(gang={"attempt": 7}),
                "Planned restart (attempt 8): the status did not describe the pods that are there",
            ),
        ],
    ),
    "a damaged condition is said again": Story(
        World,
        [
            *START,
            Step(
                "the conditions are removed",
                status(conditions=None),
                ["status: Running"],
                ["All 2 replicas of attempt 0 run"],
            ),
        ],
    ),
    "a phase is a summary: a wrong one is put right": Story(
        World, [*START, Step("it says Failed", status(phase="Failed", ready="9/9"), ["status: Running"])]
    ),
    "a job that somebody says has succeeded has": Story(
        World,
        [
            *START,
            Step(
                "the condition is set",
                status(
                    conditions=[
                        {
                            "type": "Succeeded",
                            "status": "True",
                            "lastTransitionTime": "2027-01-15T08:00:00Z",
                        }
                    ]
                ),
                ["status: Succeeded"],
                (),
                Phase.SUCCEEDED,
            ),
            Step("what runs is stopped", nothing, [*deletions(grace=None), "status: Succeeded"], time=31),
            Step("it goes", World.let_go, ["status: Succeeded", *service_deletions()]),
        ],
    ),
    "a time in the far future is waited for, and an edit ends the wait": Story(
        World,
        [
            create(),
            Step(
                "the next attempt is put off",
                both(
                    lambda world: world.pods.clear(),
                    status(nextAttemptTime="2099-01-01T00:00:00Z", gang={"complete": False}),
                ),
                ["status: Starting"],
            ),
            QUIET,
            Step(
                "the job is edited",
                lambda world: world.change_image("new"),
                ["status: Starting", *pods(), "status: Starting"],
                ["Planned restart (attempt 1): the job was edited"],
            ),
        ],
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_bad_input(story: Story) -> None:
    tell(story)
