"""Real training on a cluster on which, again and again, something goes wrong: nobody must see it in the weights.

A schedule is drawn from a seed: all disturbances in some order, then all again, until the time is filled. Each one
strikes a random worker while training makes progress, and the next one waits until training makes progress again. What
each leads to is known beforehand (`disturbances.Effect`), so attempts, restarts and disruptions are counted exactly.

    make e2e ARGS='-k chaos'                      # five minutes
    make e2e ARGS='-m slow -k an_hour'            # an hour
"""

import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

import pytest

from e2e import sample, training
from e2e.disturbances import ALL, Disturbance, Effect
from e2e.kube import Document, Kube
from qmljob_api.reasons import Reason

STRIDE = 4
"""Epochs that training makes before each disturbance, at least."""
LAST = 10
"""Epochs that it makes after all of them."""
REASONS = {
    Effect.CHARGED: Reason.REPLICA_FAILED,
    Effect.DISRUPTED: Reason.DISRUPTED,
    Effect.LOST_PEERS: Reason.LOST_PEERS_ONLY,
}
WORKERS = ("qcnn-worker-0", "qcnn-worker-1")


@dataclass(frozen=True)
class Stroke:
    """One disturbance of a schedule, and the worker that it strikes."""

    disturbance: Disturbance
    worker: str


def schedule(seed: int, seconds: float) -> list[Stroke]:
    """Returns disturbances for so many seconds: all of them in a random order, then all again."""
    rng = random.Random(seed)
    strokes: list[Stroke] = []
    for disturbance in _decks(rng):
        seconds -= disturbance.seconds
        if seconds < 0:
            return strokes
        strokes.append(Stroke(disturbance, rng.choice(WORKERS)))
    raise AssertionError("there is always another deck")


def _decks(rng: random.Random) -> Iterator[Disturbance]:
    while True:
        yield from rng.sample(ALL, len(ALL))


def test_five_minutes_of_chaos_leave_no_trace_in_the_weights(kube: Kube) -> None:
    weather(kube, schedule(seed=2, seconds=300))


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("seed", [0])
def test_an_hour_of_chaos_leaves_no_trace_in_the_weights(kube: Kube, seed: int) -> None:
    weather(kube, schedule(seed, seconds=3600))


def weather(kube: Kube, strokes: Sequence[Stroke]) -> None:
    """Trains twice, undisturbed and disturbed, and compares."""
    epochs = LAST + sum(STRIDE + stroke.disturbance.epochs for stroke in strokes)
    before = kube.everything()
    kube.apply(sample.disturbed(kube.namespace, name="undisturbed", epochs=epochs))
    kube.until_condition("undisturbed", "InferenceSucceeded", seconds=60 + epochs * 3)

    kube.apply(sample.disturbed(kube.namespace, epochs=epochs))
    attempt, epoch = 0, training.until_epoch(kube, STRIDE)[-1]
    for number, stroke in enumerate(strokes):
        began, effect = time.monotonic(), stroke.disturbance.effect
        assert kube.get("pod", stroke.worker)["status"]["phase"] == "Running", "training was over too soon"
        print(f"{number}: at epoch {epoch} {stroke.disturbance.name} ({stroke.worker}): {effect.value}", end="")
        with stroke.disturbance.strike(kube, stroke.worker):
            pass
        attempt += effect is not Effect.NOTHING
        seen = training.until_epoch(kube, epoch + STRIDE, attempt=attempt, seconds=300)
        print(f"; attempt {attempt} from epoch {seen[0]}, {time.monotonic() - began:.0f} s")
        epoch = seen[-1]
        if effect is not Effect.NOTHING:
            check_told(kube, stroke, attempt - 1)

    status = kube.until_condition("qcnn", "InferenceSucceeded", seconds=60 + epochs * 3)
    check_counts(status, [stroke.disturbance.effect for stroke in strokes])
    assert training.weights(kube) == training.weights(kube, job="undisturbed")
    assert status["results"]["mse"] == kube.get("qmljob", "undisturbed")["status"]["results"]["mse"]
    check_artifact(kube)
    check_nothing_is_left(kube, before)


def check_told(kube: Kube, stroke: Stroke, attempt: int) -> None:
    """The status and an event say what ended an attempt."""
    effect, says = stroke.disturbance.effect, stroke.disturbance.says.format(worker=stroke.worker)
    status = kube.get("qmljob", "qcnn")["status"]
    ended = status["history"][-1]
    assert (ended["attempt"], ended["charged"], ended["reason"]) == (attempt, effect is Effect.CHARGED, REASONS[effect])
    assert re.search(says, ended["message"]), ended
    told = [event["message"] for event in kube.list("events") if event.get("reason") == ended["reason"]]
    assert any(re.search(says, message) and f"(attempt {attempt + 1}" in message for message in told), told
    if effect is Effect.CHARGED:
        failure = status["lastFailure"]
        assert (failure["replica"], failure["exitCode"], failure["attempt"]) == (stroke.worker, 137, attempt)


def check_counts(status: Document, effects: Sequence[Effect]) -> None:
    """Each restart was counted as what it was."""
    count = Counter(effects)
    assert status["phase"] == "Succeeded"
    assert (status["attempt"], status.get("restarts", 0), status.get("disruptions", 0)) == (
        sum(count.values()) - count[Effect.NOTHING],
        count[Effect.CHARGED],
        count[Effect.DISRUPTED],
    )


def check_artifact(kube: Kube) -> None:
    """The files of the artifact are those that its manifest names."""
    folder = f"{kube.namespace}/qcnn"
    manifest = kube.bucket_object(f"{folder}/qcnn_weights.json")
    for file in (manifest["weights"], manifest["test_split"]):
        assert sha256(kube.bucket_bytes(f"{folder}/{file['name']}")).hexdigest() == file["sha256"], file
    assert sha256(kube.bucket_bytes(f"{folder}/qcnn_weights.h5")).hexdigest() == manifest["weights"]["sha256"]


def check_nothing_is_left(kube: Kube, before: set[str]) -> None:
    """In the namespace there is what a job leaves to which nothing happened, and nothing else."""
    left = {re.sub(r"(-inference)-\w{5}$", r"\1-…", name) for name in kube.everything() - before}
    undisturbed = {name for name in left if "/undisturbed" in name}
    assert left - undisturbed == {name.replace("/undisturbed", "/qcnn") for name in undisturbed}
