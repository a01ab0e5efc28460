"""Edits and suspensions, step by step: a planned restart costs nothing, and what can't be followed stops nothing."""

from typing import Any

import pytest

from qmljob_api.conditions import Phase
from qmljob_operator.observation import Answer, Verdict
from support.planning_steps import (
    POLICY,
    QUIET,
    both,
    counted,
    create,
    deletions,
    ends,
    nothing,
    pods,
    restart,
    run,
    service_deletions,
    services,
)
from support.planning_stories import Act, Step, Story, tell
from support.world import World

EDITED = "Planned restart (attempt 1): the job was edited"
RESUMED = "Planned restart (attempt 1): the job goes on"
BAD = "spec.replicaSpecs.worker.template.spec.containers[0].image: Required value"
START = [create(), run()]


def scale(replicas: int) -> Act:
    return lambda world: world.scale(replicas)


def image(name: str) -> Act:
    return lambda world: world.change_image(name)


def edit(**spec: Any) -> Act:
    return lambda world: world.edit(**spec)


def suspend(world: World) -> None:
    world.edit(suspend=True)


def resume(world: World) -> None:
    world.edit(suspend=False)


def picky() -> World:
    """The API server does not take the image `bad`."""
    world = World()

    def admit(_pod: Any) -> Answer | None:
        return Answer(Verdict.INVALID, BAD) if "'bad'" in str((world.job or {}).get("spec")) else None

    world.admission = admit
    return world


def full(world: World) -> None:
    world.admission = lambda _pod: Answer(Verdict.FORBIDDEN, "exceeded quota: pods, requested: pods=1, used: pods=2")


def room(world: World) -> None:
    world.admission = lambda _pod: None


STORIES = {
    "a resize is a planned restart: pods have their own grace, a new Service comes, the store keeps the work": Story(
        World,
        [
            *START,
            Step(
                "three workers are wanted",
                scale(3),
                ["status: Restarting", *deletions(grace=None), *services("worker-2")],
                [EDITED],
                Phase.RESTARTING,
                60,
            ),
            Step(
                "the old pods go",
                World.let_go,
                ["status: Starting", *pods("worker-0", "worker-1", "worker-2"), "status: Starting"],
                (),
                Phase.STARTING,
            ),
            run(1, replicas=3),
            Step(
                "one worker is wanted",
                scale(1),
                [
                    "status: Restarting",
                    *deletions("worker-0", "worker-1", "worker-2", grace=None),
                    *service_deletions("worker-1", "worker-2"),
                ],
                ["Planned restart (attempt 2): the job was edited"],
                Phase.RESTARTING,
                60,
            ),
            Step(
                "the old pods go",
                World.let_go,
                ["status: Starting", *pods("worker-0"), "status: Starting"],
                (),
                Phase.STARTING,
            ),
            run(2, replicas=1),
            QUIET,
        ],
    ),
    "a new port reaches the policy and the Services, too": Story(
        World,
        [
            *START,
            Step(
                "a port is added",
                edit(ports=[{"name": "profiler", "port": 2223}]),
                [
                    "status: Restarting",
                    *deletions(grace=None),
                    "repair networkpolicies/qcnn",
                    "repair services/qcnn-worker-0",
                    "repair services/qcnn-worker-1",
                ],
                [EDITED],
                Phase.RESTARTING,
            ),
        ],
    ),
    "what pods are not made from is simply taken over": Story(
        World,
        [*START, Step("a limit is edited", edit(runPolicy={"backoffLimit": 9}), ["status: Running"]), QUIET],
    ),
    "edits in a row make attempts in a row, and each waits for the pods of the oldest": Story(
        World,
        [
            *START,
            Step("one edit", image("a"), ["status: Restarting", *deletions(grace=None)], [EDITED], Phase.RESTARTING),
            Step("another", image("b"), ["status: Restarting"], ["Planned restart (attempt 2): the job was edited"]),
            Step(
                "the old pods go", World.let_go, ["status: Starting", *pods(), "status: Starting"], (), Phase.STARTING
            ),
            run(2),
        ],
    ),
    "an edit that no pod can be made from stops nothing, and is taken back without a trace": Story(
        picky,
        [
            *START,
            Step(
                "the image is bad",
                image("bad"),
                ["status: Running"],
                [f"The job can't run as it is written: {BAD} (attempt 0 goes on as it was built)"],
            ),
            QUIET,
            counted("worker-1 ends with 0", ends("worker-1", 0)),
            Step("the edit is taken back", image("qmljob/training:test"), ["status: Running"]),
            QUIET,
        ],
    ),
    "a failure under such an edit leaves nothing to build from: the job waits to be edited": Story(
        picky,
        [
            *START,
            Step(
                "the image is bad",
                image("bad"),
                ["status: Running"],
                [f"The job can't run as it is written: {BAD} (attempt 0 goes on as it was built)"],
            ),
            restart(
                "both crash",
                both(ends("worker-0", 69), ends("worker-1", 1)),
                "Restart 1 of 3 (attempt 1 in 8 s): qcnn-worker-1 exited with 1",
            ),
            Step(
                "the delay is over",
                nothing,
                [*(f"{one}: invalid" for one in pods()), "status: Restarting"],
                time=10,
            ),
            QUIET,
            Step(
                "the edit is taken back",
                image("good"),
                ["status: Starting", *pods(), "status: Starting"],
                ["Planned restart (attempt 2): the job was edited"],
                Phase.STARTING,
            ),
        ],
    ),
    "an edit that is forbidden waits for room": Story(
        World,
        [
            *START,
            Step(
                "there is no room for a third",
                both(full, scale(3)),
                ["status: Running"],
                [
                    "exceeded quota: pods, requested: pods=1, used: pods=2 (attempt 0 goes on as it was built)",
                ],
            ),
            QUIET,
            Step("there is room", room),
            Step(
                "it is asked again",
                nothing,
                # The second time, since nobody lets the old pods go, which are slow by then.
                ["status: Restarting", *deletions(grace=None), *services("worker-2"), "status: Restarting"],
                [EDITED],
                Phase.RESTARTING,
                60,
            ),
        ],
    ),
    "success is seen before the edit of the same moment": Story(
        World,
        [
            *START,
            Step(
                "worker 0 ends with 0, and the job is scaled",
                both(ends("worker-0", 0), ends("worker-1", 0), scale(5)),
                ["status: Succeeded", *service_deletions()],
                ["Training succeeded in attempt 0"],
                Phase.SUCCEEDED,
                60,
            ),
            QUIET,
        ],
    ),
    "a suspended job has no pods and keeps its state": Story(
        World,
        [
            *START,
            Step(
                "it is suspended",
                suspend,
                ["status: Suspended", *deletions(grace=None)],
                ["The job is suspended after attempt 0"],
                Phase.SUSPENDED,
                60,
            ),
            Step("the pods go", World.let_go, ["status: Suspended"]),
            QUIET,
            Step(
                "it goes on",
                resume,
                ["status: Starting", *pods(), "status: Starting"],
                [RESUMED],
                Phase.STARTING,
            ),
            run(1),
        ],
    ),
    "a job that is suspended from the beginning has never started": Story(
        lambda: World(suspend=True),
        [
            Step("it is created", nothing, ["status: Suspended"], ["The job is suspended"], Phase.SUSPENDED),
            QUIET,
            Step(
                "it goes on",
                resume,
                ["status: Starting", POLICY, *services(), *pods(), "status: Starting"],
                ["Attempt 0 starts: 2 workers"],
                Phase.STARTING,
            ),
        ],
    ),
    "a suspension in the midst of a restart, taken back before the pods are gone": Story(
        World,
        [
            *START,
            restart(
                "worker-1 is evicted",
                lambda world: world.disrupt("worker-1"),
                "Restart, not charged (attempt 1 in 8 s): qcnn-worker-1 was taken away (Eviction API: evicting)",
                "worker-0",
            ),
            Step(
                "it is suspended",
                suspend,
                ["status: Suspended"],
                ["The job is suspended after attempt 1"],
                Phase.SUSPENDED,
            ),
            Step(
                "it goes on",
                resume,
                ["status: Restarting"],
                ["Planned restart (attempt 2): the job goes on"],
                Phase.RESTARTING,
            ),
            Step("the pods go", World.let_go, ["status: Starting", *pods(), "status: Starting"], (), Phase.STARTING),
            run(2),
        ],
    ),
    "success is seen before the suspension of the same moment": Story(
        World,
        [
            *START,
            Step(
                "worker 0 ends with 0, and the job is suspended",
                both(ends("worker-0", 0), ends("worker-1", 0), suspend),
                ["status: Succeeded", *service_deletions()],
                ["Training succeeded in attempt 0"],
                Phase.SUCCEEDED,
                60,
            ),
        ],
    ),
    "a job that can't go on after a suspension says so": Story(
        World,
        [
            *START,
            Step(
                "it is suspended",
                both(suspend),
                ["status: Suspended", *deletions(grace=None)],
                ["The job is suspended after attempt 0"],
                Phase.SUSPENDED,
                60,
            ),
            Step("the pods go", World.let_go, ["status: Suspended"]),
            Step(
                "it may not go on",
                both(full, resume),
                ["status: Restarting"],
                ["exceeded quota: pods, requested: pods=1, used: pods=2"],
                Phase.RESTARTING,
            ),
            QUIET,
            Step("there is room", room),
            Step(
                "it is asked again",
                nothing,
                ["status: Starting", *pods(), "status: Starting"],
                [RESUMED],
                Phase.STARTING,
                60,
            ),
        ],
    ),
    "what can't be read any more is left running, and its success is kept": Story(
        World,
        [
            *START,
            Step(
                "the port is 0",
                edit(port=0),
                ["status: Running"],
                [
                    "The job can't run as it is written: spec.port: 0 is less than 1; set it to 1 or more "
                    "(attempt 0 goes on as it was built)"
                ],
            ),
            counted("worker 0 ends with 0", ends("worker-0", 0)),
            Step("its pod is collected", lambda world: world.vanish("worker-0")),
            Step(
                "the port is right again",
                both(edit(port=2222), ends("worker-1", 0)),
                ["status: Succeeded", *service_deletions()],
                ["Training succeeded in attempt 0"],
                Phase.SUCCEEDED,
            ),
        ],
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_the_writes_after_an_edit(story: Story) -> None:
    tell(story)
