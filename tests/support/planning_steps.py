"""Steps of stories, and the writes in them, by the replicas that they are about."""

from typing import Any

from qmljob_api.conditions import Phase
from support.planning_stories import Act, Step
from support.world import World

POLICY = "create networkpolicies/qcnn"


def named(*replicas: str) -> list[str]:
    """Returns names of replicas; without any, those of the two workers of the usual job."""
    return [f"qcnn-{replica}" for replica in replicas or ("worker-0", "worker-1")]


def pods(*replicas: str) -> list[str]:
    """Creates pods."""
    return [f"create pods/{name}" for name in named(*replicas)]


def services(*replicas: str) -> list[str]:
    """Creates Services."""
    return [f"create services/{name}" for name in named(*replicas)]


def beginning(*replicas: str) -> list[str]:
    """Begins attempt 0: the status, policy, Services, pods, and the status again, which says that all pods exist."""
    return ["status: Starting", POLICY, *services(*replicas), *pods(*replicas), "status: Starting"]


def deletions(*replicas: str, grace: int | None = 10) -> list[str]:
    """Deletes pods, with the grace of survivors or (None) their own."""
    return [f"delete pods/{name}{'' if grace is None else f' ({grace} s)'}" for name in named(*replicas)]


def service_deletions(*replicas: str) -> list[str]:
    """Deletes Services."""
    return [f"delete services/{name}" for name in named(*replicas)]


def nothing(_world: World) -> None:
    """Time passes."""


def create(*replicas: str, roles: str = "2 workers") -> Step:
    """The job is created; `roles` in words."""
    return Step("the job is created", nothing, beginning(*replicas), [f"Attempt 0 starts: {roles}"], Phase.STARTING)


def run(attempt: int = 0, replicas: int = 2) -> Step:
    """All replicas of an attempt start."""
    note = f"All {replicas} replicas of attempt {attempt} run" if replicas > 1 else f"Attempt {attempt} runs"
    return Step("all replicas start", World.start, ["status: Running"], [note], Phase.RUNNING, 5)


def restart(what: str, act: Act, note: str, *going: str, time: float = 60, **more: Any) -> Step:
    """What makes the gang restart; the pods that are `going` (all, where none is named) are deleted."""
    writes = ["status: Restarting", *deletions(*going)]
    return Step(what, act, writes, [note], Phase.RESTARTING, time, **more)


def fail(what: str, act: Act, note: str, *writes: str, time: float = 60) -> Step:
    """What makes the job fail."""
    return Step(what, act, ["status: Failed", *writes], [f"The job failed: {note}"], Phase.FAILED, time)


def recreate(*replicas: str, seconds: float = 10) -> Step:
    """The pods of the next attempt are created."""
    return Step("the delay is over", nothing, [*pods(*replicas), "status: Starting"], (), Phase.STARTING, seconds)


def ends(replica: str, code: int, **how: Any) -> Act:
    """A replica ends."""
    return lambda world: world.end(replica, code, **how)


def both(*acts: Act) -> Act:
    """One thing happens, and another."""

    def do(world: World) -> None:
        for act in acts:
            act(world)

    return do


def counted(what: str, act: Act, time: float = 60) -> Step:
    """Something that changes how many replicas run, and nothing else yet."""
    return Step(what, act, ["status: Running"], time=time)


GO = Step("kubelet lets the old pods go", World.let_go)
QUIET = Step("nothing happens for an hour", nothing, time=3600)
