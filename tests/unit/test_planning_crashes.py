"""An operator that dies between any two of its writes: the next one goes on from what is there, to the same end."""

from typing import Any

import pytest

from support.planning_steps import both, ends, nothing
from support.planning_stories import Step, Story, play
from support.world import World

PS_JOB = {"worker": 2, "ps": 1, "evaluator": 1}
INFERENCE = {"template": {"spec": {"containers": [{"name": "inference", "image": "qmljob/inference:test"}]}}}
RESULT = '{"qmljob":"result/v1","artifact":"gs://b/a","mse":0.25,"sign_accuracy":1.0,"examples":140}'


def steps(*acts: Any) -> list[Step]:
    """What happens, one after the other, with a minute between."""
    return [Step(getattr(act, "__name__", "something"), act, time=60) for act in acts]


LET_GO = [World.let_go, nothing, World.start]
STORIES = {
    "a failure, a restart and the success": Story(
        World,
        steps(
            nothing,
            World.start,
            both(ends("worker-0", 69), ends("worker-1", 137)),
            *LET_GO,
            both(ends("worker-0", 0), ends("worker-1", 0)),
        ),
    ),
    "an eviction": Story(
        World, steps(nothing, World.start, lambda world: world.disrupt("worker-1"), *LET_GO, ends("worker-0", 0))
    ),
    "a resize": Story(World, steps(nothing, World.start, lambda world: world.scale(3), *LET_GO)),
    "a suspension": Story(
        World,
        steps(
            nothing,
            World.start,
            lambda world: world.edit(suspend=True),
            World.let_go,
            lambda world: world.edit(suspend=False),
            World.start,
        ),
    ),
    "a replica that is replaced alone": Story(
        lambda: World(roles=PS_JOB), steps(nothing, World.start, ends("evaluator-0", 1), *LET_GO)
    ),
    "a worker that is replaced alone, and charged": Story(
        lambda: World(roles=PS_JOB), steps(nothing, World.start, ends("worker-1", 1), *LET_GO)
    ),
    "a failure that ends the job": Story(
        lambda: World(runPolicy={"backoffLimit": 0, "cleanPodPolicy": "All"}),
        steps(nothing, World.start, ends("worker-1", 1), nothing, World.let_go),
    ),
    "a node that is lost": Story(
        lambda: World(runPolicy={"unreachableSeconds": 50, "forceDeleteUnreachable": True}),
        steps(nothing, World.start, World.silence, nothing, nothing, World.start),
    ),
    "a status that is wiped": Story(World, steps(nothing, World.start, lambda world: world.edit_status({}), *LET_GO)),
    "success, inference and the time to live": Story(
        lambda: World(inference=INFERENCE, runPolicy={"ttlSecondsAfterFinished": 600}),
        steps(
            nothing,
            World.start,
            ends("worker-0", 0),
            World.let_go,
            lambda world: world.end_inference(complete=True, message=RESULT),
            nothing,
        ),
    ),
}


def what_counts(world: World) -> tuple[Any, ...]:
    """Returns the end of a story; the uids of objects may be others."""
    status = world.status
    if status.gang is not None:
        replacing = tuple(entry.model_copy(update={"uid": ""}) for entry in status.gang.replacing)
        status = status.model_copy(update={"gang": status.gang.model_copy(update={"replacing": replacing})})
    objects = {
        f"{kind}/{name}": (document["metadata"]["labels"], (document.get("status") or {}).get("phase"))
        for kind, table in (
            ("pods", world.pods),
            ("services", world.services),
            ("networkpolicies", world.policies),
            ("jobs", world.jobs),
        )
        for name, document in table.items()
    }
    return status, objects, world.job is None


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_a_death_between_two_writes_changes_nothing(story: Story) -> None:
    undisturbed = play(story)
    for death in range(1, undisturbed.writes + 1):
        assert what_counts(play(story, {death})) == what_counts(undisturbed), f"after write {death}"


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_not_even_a_death_after_every_write(story: Story) -> None:
    assert what_counts(play(story, range(1, 1000))) == what_counts(play(story))
