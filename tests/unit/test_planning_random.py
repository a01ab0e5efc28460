"""Whatever happens to a job, in whatever order: the promises hold, no pass loops, and a job that is let be ends."""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from qmljob_api import names
from qmljob_api.conditions import ConditionType
from qmljob_operator.observation import Answer, Verdict
from support import pod_documents as pods
from support.world import World

SHAPES: list[dict[str, Any]] = [
    {"roles": {"worker": 1}},
    {"roles": {"worker": 3}, "runPolicy": {"backoffLimit": 30, "ttlSecondsAfterFinished": 3000}},
    {"roles": {"worker": 2}, "successPolicy": "AllReplicas", "runPolicy": {"cleanPodPolicy": "All"}},
    {
        "roles": {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1},
        "runPolicy": {"startupDeadlineSeconds": 600, "unreachableSeconds": 60, "forceDeleteUnreachable": True},
        "failurePolicy": {"rules": [{"onExitCodes": {"values": [3]}, "action": "Ignore"}]},
    },
    {
        "roles": {"worker": 2, "evaluator": 1},
        "runPolicy": {"activeDeadlineSeconds": 9000, "cleanPodPolicy": "None", "ttlSecondsAfterFinished": 0},
        "inference": {"template": {"spec": {"containers": [{"name": "inference", "image": "i"}]}}},
    },
]
CODES = [0, 1, 1, 3, 3, 69, 69, 74, 75, 137, 143, 255, 1, 3, 69, 64]
RESULT = '{"qmljob":"result/v1","artifact":"gs://b/a","mse":0.25,"sign_accuracy":1.0,"examples":10}'


PROGRESS = (
    '{"qmljob":"progress/v1","role":"worker","index":0,"attempt":0,"epoch":%d,"epochs":9,"step":%d,"loss":0.5,'
    '"sign_accuracy":1.0,"val_loss":0.5,"val_sign_accuracy":1.0,"learning_rate":0.01,"seconds":1.0,'
    '"validation_seconds":0.1,"examples_per_second":10.0}'
)


def replica_pods(world: World, *phases: str) -> list[str]:
    """Returns the names of the job's pods that are in a phase and not being deleted."""
    return [
        name.removeprefix("qcnn-")
        for name, pod in sorted(world.pods.items())
        if pod["status"]["phase"] in phases
        and not pods.is_deleting(pod)
        and names.LABEL_ROLE in pod["metadata"]["labels"]
    ]


def one_of(world: World, number: int, *phases: str) -> str | None:
    found = replica_pods(world, *phases)
    return found[number % len(found)] if found else None


def start(world: World, number: int) -> None:
    for position, replica in enumerate(replica_pods(world, "Pending")):
        if number % 3 or position == number % 5:
            world.start(replica, node=("node-a", "node-b")[(position + number) % 2])


def end(world: World, number: int) -> None:
    if replica := one_of(world, number, "Running"):
        world.end(replica, CODES[number % len(CODES)], at=world.now - number % 3)


def end_all(world: World, number: int) -> None:
    for replica in replica_pods(world, "Running"):
        world.end(replica, CODES[number % len(CODES)])


def disrupt(world: World, number: int) -> None:
    if replica := one_of(world, number, "Running", "Pending"):
        world.disrupt(replica, sorted(pods.DISRUPTIONS)[number % len(pods.DISRUPTIONS)])


def delete(world: World, number: int) -> None:
    if replica := one_of(world, number, "Running", "Pending", "Failed", "Succeeded"):
        world.delete(replica) if number % 2 else world.vanish(replica)


def stall(world: World, number: int) -> None:
    if replica := one_of(world, number, "Pending"):
        acts: list[Callable[[], None]] = [
            lambda: world.waiting(replica, "ImagePullBackOff", "Back-off pulling image"),
            lambda: world.waiting(replica, "ContainerCreating"),
            lambda: world.refuse(replica),
        ]
        acts[number % 3]()


def nodes(world: World, number: int) -> None:
    node = ("node-a", "node-b")[number % 2]
    [world.silence, world.revive, world.silence, world.remove_node][number % 4](node)


def edit(world: World, number: int) -> None:
    spec = copy.deepcopy(world.job["spec"]) if world.job else {}
    policy = spec.get("runPolicy") or {}
    acts: list[Callable[[], None]] = [
        lambda: world.scale(1 + number % 4) if "worker" in spec["replicaSpecs"] else None,
        lambda: world.change_image(f"image-{number % 3}"),
        lambda: world.change_image("bad"),
        lambda: world.edit(suspend=True),
        lambda: world.edit(suspend=False),
        lambda: world.edit(port=0),
        lambda: world.edit(port=2222),
        lambda: world.edit(runPolicy={**policy, "backoffLimit": number % 3}),
        lambda: world.edit(ports=[{"name": "profiler", "port": 3000 + number % 2}]),
        lambda: world.edit(fieldOfTheFuture=number),
    ]
    acts[number % len(acts)]()


def edit_status(world: World, number: int) -> None:
    status = copy.deepcopy((world.job or {}).get("status") or {})
    gang = status.get("gang") or {}
    changes: list[dict[str, Any]] = [
        {"gang": None},
        {"attempt": None},
        {"conditions": []},
        {"attempt": (status.get("attempt") or 0) + number},
        {"gang": {**gang, "roles": {"worker": number % 600}}},
        {"gang": {**gang, "complete": not gang.get("complete")}},
        {"gang": {**gang, "fingerprint": "x", "generation": 0}},
        {"phase": "Running", "restarts": number % 4, "nextAttemptTime": "2031-01-01T00:00:00Z"},
        {"history": [], "lastFailure": None, "startTime": "yesterday"},
        dict.fromkeys(status),
    ]
    changed = {**status, **changes[number % len(changes)]}
    world.edit_status({key: value for key, value in changed.items() if value is not None})


def tamper(world: World, number: int) -> None:
    for name, service in list(world.services.items())[: 1 + number % 2]:
        if number % 3:
            del world.services[name]
        else:
            world.services[name] = {**service, "spec": {**service["spec"], "ports": []}}
    for name, policy in list(world.policies.items()) if number % 2 else ():
        if number % 3:
            del world.policies[name]
        else:
            world.policies[name] = {**policy, "spec": {**policy["spec"], "ingress": [{}]}}
    if replica := one_of(world, number, "Running", "Pending"):
        pod = world.pods[f"qcnn-{replica}"]
        labels = {
            **pod["metadata"]["labels"],
            [names.LABEL_ATTEMPT, names.LABEL_INDEX][number % 2]: str(number * 7 % 5),
        }
        world.pods[f"qcnn-{replica}"] = {**pod, "metadata": {**pod["metadata"], "labels": labels}}


def quota(world: World, number: int) -> None:
    full = number % 2 == 0
    answer = Answer(Verdict.FORBIDDEN, f"exceeded quota: used {number}")

    def admit(_pod: Any) -> Answer | None:
        images = str((world.job or {}).get("spec"))
        return Answer(Verdict.INVALID, "bad image") if "'bad'" in images else answer if full else None

    world.admission = admit


def inference(world: World, number: int) -> None:
    if not (world.jobs.get("qcnn-inference") or {"status": {"conditions": ["ended"]}})["status"].get("conditions"):
        world.end_inference(complete=bool(number % 3), message=RESULT if number % 2 else "boom")


def say(world: World, number: int) -> None:
    line = PROGRESS % (number % 4, number)
    if replica := one_of(world, number, "Running"):
        world.logs[f"qcnn-{replica}"] = f"{line}\nnot a line of ours\n" if number % 5 else "nothing\n"


def clock(world: World, number: int) -> None:
    world.now += [-500.0, -1.0, 0.25, 7.0, 4000.0][number % 5]


OPERATIONS: dict[str, Callable[[World, int], Any]] = {
    "start": start,
    "end": end,
    "end all": end_all,
    "disrupt": disrupt,
    "delete": delete,
    "stall": stall,
    "let go": lambda world, _: world.let_go(),
    "nodes": nodes,
    "edit": edit,
    "edit the status": edit_status,
    "tamper": tamper,
    "quota": quota,
    "inference": inference,
    "clock": clock,
    "say": say,
    "time": lambda world, number: world.run([1, 5, 12, 46, 60, 400][number % 6]),
    "crash": lambda world, number: world.step(cut=number % 6),
    "new operator": lambda world, _: world.forget(),
}
OFTEN = ["start", "start", "start", "end", "let go", "let go", "time", "time"]
SEEDS = 30
LENGTH = 40


def has_ended(world: World) -> bool:
    return world.job is None or any(
        world.status.holds(kind) for kind in (ConditionType.SUCCEEDED, ConditionType.FAILED)
    )


def let_be(world: World) -> None:
    """Nothing bad happens any more, and what did is put right."""
    quota(world, 1)
    world.edit(port=2222, suspend=False)
    world.change_image("good", "worker")
    for node in ("node-a", "node-b"):
        world.revive(node)
    for _ in range(12):
        world.let_go()
        world.settle()
        world.start()
        world.settle()
        world.run(400)
        if has_ended(world):
            return
        for replica in replica_pods(world, "Running"):
            if not replica.startswith(("ps", "evaluator")):
                world.end(replica, 0)
        world.settle()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    world = World(**SHAPES[seed % len(SHAPES)], patient=chance.random() < 0.3)
    quota(world, 1)
    story = [(chance.choice([*OPERATIONS, *OFTEN]), chance.randrange(1000)) for _ in range(LENGTH)]
    for operation, number in story:
        if world.job is not None:  # its time to live may be over
            OPERATIONS[operation](world, number)
            world.settle()
    if world.job is not None:
        let_be(world)
    assert has_ended(world), world.status
    world.run(60)
    inference(world, seed)
    world.run(10_000)
