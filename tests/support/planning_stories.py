"""Stories of a job as tables: what happens, exactly which writes follow, and what people are told.

    Story(
        World,
        Step("worker-1 runs out of memory", lambda world: world.end("worker-1", 137, reason="OOMKilled"), [...]),
    )

After each step the operator makes passes until it has nothing to write; that it then writes nothing more is part of the
step. Times are said in seconds since the story's beginning.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

from qmljob_api.conditions import Phase
from support.world import T0, World

Act = Callable[[World], Any]


@dataclass(frozen=True)
class Step:
    """Something that happens, and what follows from it.

    Attributes:
        what: in words.
        act: what happens; what it returns does not matter.
        writes: the operator's writes, in their order, as `World.settle` tells them.
        events: the notes of all new events.
        phase: the phase after it; None: whatever the step before left.
        time: how many seconds pass before it happens, with whatever the operator does meanwhile.
    """

    what: str
    act: Act
    writes: Sequence[str] = ()
    events: Sequence[str] = ()
    phase: Phase | None = None
    time: float = 0.0


@dataclass(frozen=True)
class Story:
    """A job and what becomes of it."""

    make: Callable[[], World]
    steps: Sequence[Step]


def tell(story: Story) -> World:
    """Plays a story and checks each step; returns the world at its end."""
    world = story.make()
    phase: Phase | None = None
    for number, step in enumerate(story.steps, start=1):
        place = f"step {number}, {step.what} (at {world.now + step.time - T0:g} s)"
        before = len(world.events)
        writes = world.run(step.time)
        step.act(world)
        writes += world.settle()
        notes = [event.note for event in world.events[before:]]
        phase = step.phase or phase
        assert writes == list(step.writes), f"{place}: {_lines(writes)}"
        assert notes == list(step.events), f"{place}: {_lines(notes)}"
        if world.job is not None:
            assert world.status.phase is phase, f"{place}: {world.status.phase}"
    return world


def play(story: Story, deaths: Container[int] = ()) -> World:
    """Plays a story without checking its steps, with an operator that dies after some of its writes."""
    world = story.make()
    world.deaths = deaths
    for step in story.steps:
        world.run(step.time)
        step.act(world)
        world.settle()
    return world


def _lines(texts: Sequence[str]) -> str:
    return "".join(f"\n  {text!r}," for text in texts)
