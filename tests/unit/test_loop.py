"""The loop: what training gives depends on the flags alone, not on calls, interruptions or attempts."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob_api.progress import Progress
from qmljob_training import loop
from qmljob_training.batches import Shard
from qmljob_training.checkpoint import CheckpointFolder, Position
from qmljob_training.errors import ConfigurationError, PreemptedError
from qmljob_training.evaluation import Evaluation
from qmljob_training.loop import Loop, LoopConfig
from qmljob_training.stores import Store, StoreUnavailable, open_store
from qmljob_training.strategies.protocol import State, StepsResult
from qmljob_training.workloads.protocol import DataSet, Split
from support.failing_store import FailingStore

EPOCHS, STEPS = 3, 4  # 14 training examples in global batches of 4: the last one of an epoch has 2
FEATURES = 3


def data_set() -> DataSet:
    numbers = np.random.default_rng(11)
    features = numbers.normal(size=(20, FEATURES)).astype(np.float32)
    labels = np.where(features @ [1.0, -2.0, 0.5] > 0, 1.0, -1.0).astype(np.float32)
    return DataSet(Split(features[:14], labels[:14]), Split(features[14:], labels[14:]))


DATA = data_set()


class LinearTrainer:
    """Linear regression by gradient descent with momentum, in NumPy; one worker.

    Args:
        step_seconds: what the workers are said to have agreed on.
        rate: of learning.
    """

    model = None
    graph = None

    def __init__(self, step_seconds: float = 0.0, rate: float = 0.1) -> None:
        self.weights = np.zeros(FEATURES)
        self.momentum = np.zeros(FEATURES)
        self.calls: list[int] = []
        self._step_seconds = step_seconds
        self._rate = rate

    @property
    def ran(self) -> int:
        """Steps that this process has run."""
        return sum(self.calls)

    def run_steps(self, shard: Shard, *, stop: bool, step_seconds: float) -> StepsResult:
        self.calls.append(shard.steps)
        with np.errstate(all="ignore"):
            sums = [self._step(*step) for step in zip(shard.indices, shard.weights, shard.batch_sizes, strict=True)]
        squared_errors, hits = np.array(sums).T
        return StepsResult(squared_errors, hits, stop, self._step_seconds)

    def evaluate(self, split: Split) -> Evaluation:
        with np.errstate(all="ignore"):
            predictions = split.features @ self.weights
        return Evaluation(predictions, predictions[:, np.newaxis])

    def state(self) -> State:
        return {"weights": self.weights.copy(), "momentum": self.momentum.copy()}

    def restore(self, state: State) -> None:
        self.weights, self.momentum = state["weights"].copy(), state["momentum"].copy()

    def _step(self, indices: np.ndarray, weights: np.ndarray, batch_size: np.float32) -> tuple[float, float]:
        features, labels = DATA.train.features[indices].astype(np.float64), DATA.train.labels[indices]
        predictions = features @ self.weights
        errors = weights * (predictions - labels)
        self.momentum = 0.9 * self.momentum + 2 * features.T @ errors / batch_size
        self.weights = self.weights - self._rate * self.momentum
        return float(np.sum(errors**2)), float(np.sum(weights * ((predictions >= 0) == (labels >= 0))))


@dataclass(frozen=True)
class StopAt:
    """A stop request that comes when a trainer has run so many steps."""

    trainer: LinearTrainer
    step: int | None

    @property
    def requested(self) -> bool:
        return self.step is not None and self.trainer.ran >= self.step


def config_of(*, epochs: int, checkpoint_steps: int) -> LoopConfig:
    return LoopConfig(
        seed=5,
        epochs=epochs,
        global_batch_size=4,
        learning_rate=0.1,
        checkpoint_steps=checkpoint_steps,
        role="worker",
        index=0,
        rank=0,
        workers=1,
        attempt=0,
    )


@dataclass
class Run:
    """One process's run, and what it showed."""

    trainer: LinearTrainer = field(default_factory=LinearTrainer)
    lines: list[Progress] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    end: Position | None = None

    def go(
        self, store: Store | None, *, stop_at: int | None = None, checkpoint_steps: int = 0, epochs: int = EPOCHS
    ) -> "Run":
        """Resumes from the store's checkpoint, if there is one, and trains."""
        config = config_of(epochs=epochs, checkpoint_steps=checkpoint_steps)
        checkpoints = None if store is None else CheckpointFolder(store, attempt=0, uid="u", fingerprint={}, threads=1)
        found = None if checkpoints is None else checkpoints.latest()
        if found is not None:
            self.trainer.restore(found[1].state)
        whole = Loop(
            config,
            self.trainer,
            DATA,
            checkpoints=checkpoints,
            writes=True,
            stop=StopAt(self.trainer, stop_at),
            meet=lambda: None,
            on_epoch_begin=self.begun.append,
            on_epoch_end=lambda progress, evaluation: self.lines.append(progress),
        )
        self.end = whole.run(found[1].position if found is not None else Position())
        return self

    @property
    def result(self) -> tuple[bytes, bytes, Position | None]:
        """Everything that must not depend on how the run came about."""
        return self.trainer.weights.tobytes(), self.trainer.momentum.tobytes(), self.end


def losses(lines: list[Progress]) -> list[tuple[int, int, float, float, float, float]]:
    return [(p.epoch, p.step, p.loss, p.sign_accuracy, p.val_loss, p.val_sign_accuracy) for p in lines]


@contextmanager
def new_store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as name:
        yield open_store(f"{name}/checkpoints")


UNDISTURBED = Run().go(None)


def test_an_epoch_shows_means_over_all_examples() -> None:
    trainer, position = LinearTrainer(), UNDISTURBED.end
    run = Run(trainer).go(None, epochs=1)
    test = DATA.test.features @ trainer.weights
    assert [line.epoch for line in UNDISTURBED.lines] == UNDISTURBED.begun == [1, 2, 3]
    assert run.lines[0].val_loss == pytest.approx(np.mean((test - DATA.test.labels) ** 2))
    assert run.lines[0].val_sign_accuracy == np.mean((test >= 0) == (DATA.test.labels >= 0))
    assert position is not None
    assert (position.epoch, position.steps, position.examples) == (EPOCHS, EPOCHS * STEPS, 0)
    last = UNDISTURBED.lines[-1]
    assert position.metrics == {
        "loss": last.loss,
        "sign_accuracy": last.sign_accuracy,
        "val_loss": last.val_loss,
        "val_sign_accuracy": last.val_sign_accuracy,
    }


def test_an_epoch_that_has_begun_is_finished_even_where_fewer_epochs_are_asked_for() -> None:
    """Else the metrics of the epoch before would stand beside weights from inside the next one."""
    with new_store() as store:
        with pytest.raises(PreemptedError):
            Run().go(store, stop_at=STEPS + 1)
        resumed = Run().go(store, epochs=1)
    assert resumed.begun == [2]
    assert losses(resumed.lines) == losses(UNDISTURBED.lines[1:2])
    assert resumed.end is not None
    assert resumed.end.examples == 0


def test_all_workers_meet_after_a_stop_and_only_one_writes() -> None:
    with new_store() as store:
        folder = CheckpointFolder(store, attempt=0, uid="u", fingerprint={}, threads=1)
        trainer, met = LinearTrainer(), []
        config = config_of(epochs=EPOCHS, checkpoint_steps=0)
        loop = Loop(
            config,
            trainer,
            DATA,
            checkpoints=folder,
            writes=False,
            stop=StopAt(trainer, 2),
            meet=lambda: met.append(trainer.ran),
            on_epoch_begin=lambda epoch: None,
            on_epoch_end=lambda progress, evaluation: None,
        )
        with pytest.raises(PreemptedError):
            loop.run(Position())
        assert len(met) == 1
        assert store.list() == ()


def test_the_line_of_the_last_epoch_can_be_repeated_at_its_end_only() -> None:
    whole = UNDISTURBED.end
    assert whole is not None
    with new_store() as store:
        Run().go(store)
        loop = Loop(
            config_of(epochs=EPOCHS, checkpoint_steps=0),
            LinearTrainer(),
            DATA,
            checkpoints=None,
            writes=True,
            stop=StopAt(LinearTrainer(), None),
            meet=lambda: None,
            on_epoch_begin=lambda epoch: None,
            on_epoch_end=lambda progress, evaluation: None,
        )
    repeated = loop.last_progress(whole)
    assert repeated is not None
    assert losses([repeated]) == losses(UNDISTURBED.lines[-1:])
    assert repeated.seconds == 0.0
    assert loop.last_progress(replace(whole, examples=4)) is None
    assert loop.last_progress(Position()) is None


def test_the_training_loss_is_the_mean_of_the_examples_losses() -> None:
    frozen = LinearTrainer(rate=0.0)  # the weights stay 0: every example's squared error is 1
    line = Run(frozen).go(None, epochs=1).lines[0]
    assert line.loss == 1.0
    assert line.sign_accuracy == np.mean(DATA.train.labels > 0)


# Seconds that a call may take, seconds that a step takes -> the lengths of the calls.
CALLS = [
    pytest.param(0.0, 1.0, [1] * 12, id="a step is longer than a call may be"),
    pytest.param(5.0, 2.0, [1, 1, 2] + [2, 2] * 2, id="two steps fit"),
    pytest.param(5.0, 1.5, [1, 1, 2] + [3, 1] * 2, id="three steps fit"),
    pytest.param(5.0, 0.001, [1, 1, 2] + [4] * 2, id="an epoch fits"),
    pytest.param(5.0, 0.0, [1, 1, 2] + [2, 2] * 2, id="nothing has been measured"),
]


@pytest.mark.parametrize(("call_seconds", "step_seconds", "calls"), CALLS)
def test_nothing_depends_on_how_steps_are_cut_into_calls(
    monkeypatch: pytest.MonkeyPatch, call_seconds: float, step_seconds: float, calls: list[int]
) -> None:
    monkeypatch.setattr(loop, "CALL_SECONDS", call_seconds)
    run = Run(LinearTrainer(step_seconds)).go(None)
    assert run.trainer.calls == calls
    assert run.result == UNDISTURBED.result
    assert losses(run.lines) == losses(UNDISTURBED.lines)


def test_a_run_that_is_done_does_nothing() -> None:
    with new_store() as store:
        first = Run().go(store)
        names = store.list()
        again = Run().go(store)
        assert (again.trainer.calls, again.lines, again.begun) == ([], [], [])
        assert again.result == first.result
        assert store.list() == names


@pytest.mark.parametrize("stop_at", range(EPOCHS * STEPS))
@pytest.mark.parametrize("step_seconds", [0.0, 10.0, 0.001], ids=["calls of 2", "calls of 1", "calls of an epoch"])
def test_a_stopped_run_resumes_to_the_same_end(stop_at: int, step_seconds: float) -> None:
    ends = np.cumsum(Run(LinearTrainer(step_seconds)).go(None).trainer.calls)
    # A request that comes within a call is seen by the next one, which all workers then take as their last.
    seen = int(np.argmax(ends >= stop_at)) if stop_at else -1
    if seen == len(ends) - 1:
        assert_too_late_to_stop(stop_at, step_seconds)
        return
    with new_store() as store:
        stopped = Run(LinearTrainer(step_seconds))
        with pytest.raises(PreemptedError) as request:
            stopped.go(store, stop_at=stop_at)
        ran = stopped.trainer.ran
        assert ran == ends[seen + 1]
        assert f"step {ran};" in str(request.value)

        position = CheckpointFolder(store, attempt=0, uid="u", fingerprint={}, threads=1).latest()[1].position
        assert position.steps == ran
        # An epoch whose last step is done still has to be evaluated.
        assert position.epoch == (ran - 1) // STEPS

        resumed = Run(LinearTrainer(step_seconds)).go(store)
        assert resumed.trainer.ran == EPOCHS * STEPS - ran
        assert resumed.result == UNDISTURBED.result
        assert losses(stopped.lines + resumed.lines) == losses(UNDISTURBED.lines)


def assert_too_late_to_stop(stop_at: int, step_seconds: float) -> None:
    """A request that comes within the very last call changes nothing: the run is done."""
    assert Run(LinearTrainer(step_seconds)).go(None, stop_at=stop_at).result == UNDISTURBED.result


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 4), max_size=6), st.integers(0, 5), st.sampled_from([0.0, 0.001, 2.0, 10.0]))
def test_a_run_stopped_many_times_comes_to_the_same_end(stops: list[int], every: int, step_seconds: float) -> None:
    with new_store() as store:
        lines: list[Progress] = []
        for stop_at in stops:
            run = Run(LinearTrainer(step_seconds))
            try:
                run.go(store, stop_at=stop_at, checkpoint_steps=every)
            except PreemptedError:
                lines += run.lines
                continue
            lines += run.lines
            break
        last = Run(LinearTrainer(step_seconds)).go(store, checkpoint_steps=every)
        assert last.result == UNDISTURBED.result
        assert losses(lines + last.lines) == losses(UNDISTURBED.lines)


@pytest.mark.parametrize("every", [0, 3])
@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
def test_a_run_killed_at_any_write_comes_to_the_same_end(every: int, after: bool) -> None:
    with new_store() as probe:
        counted = FailingStore(probe)
        Run().go(counted, checkpoint_steps=every)
    for fail_at in range(len(counted.writes)):
        with new_store() as store:
            with pytest.raises(StoreUnavailable):
                Run().go(FailingStore(store, fail_at, after=after), checkpoint_steps=every)
            assert Run().go(store, checkpoint_steps=every).result == UNDISTURBED.result


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        pytest.param(0, [4, 8, 12], id="at the end of each epoch"),
        pytest.param(1, list(range(1, 13)), id="each step"),
        pytest.param(2, [2, 4, 6, 8, 10, 12], id="every second step"),
        pytest.param(3, [3, 4, 7, 8, 11, 12], id="counted anew in each epoch"),
        pytest.param(4, [4, 8, 12], id="as many as an epoch has"),
        pytest.param(9, [4, 8, 12], id="more than an epoch has"),
    ],
)
@pytest.mark.parametrize("step_seconds", [0.0, 0.001, 10.0], ids=["calls of 2", "calls of an epoch", "calls of 1"])
def test_checkpoints_are_saved_every_so_many_steps(
    tmp_path: Path, step_seconds: float, every: int, expected: list[int]
) -> None:
    store = FailingStore(open_store(str(tmp_path)))
    Run(LinearTrainer(step_seconds)).go(store, checkpoint_steps=every)
    written = [int(name.split("-")[2]) for name in dict.fromkeys(store.writes) if name.startswith("checkpoint-")]
    assert written == expected


def test_without_a_place_for_checkpoints_a_run_is_the_same() -> None:
    with new_store() as store:
        assert Run().go(store).result == UNDISTURBED.result


def test_a_loss_that_is_not_finite_ends_the_run_in_a_line() -> None:
    with new_store() as store:
        run = Run(LinearTrainer(rate=1e200))
        with pytest.raises(ConfigurationError) as refusal:
            run.go(store)
        assert str(refusal.value).startswith("the loss is not finite after step ")
        assert "lower --learning-rate (0.1), or look at the data" in str(refusal.value)
        assert store.list() == ()  # a checkpoint of such numbers would be resumed from for ever


def test_a_validation_loss_that_is_not_finite_ends_the_run_too() -> None:
    class Overflowing(LinearTrainer):
        def evaluate(self, split: Split) -> Evaluation:
            answers = super().evaluate(split)
            return Evaluation(answers.predictions * np.inf, answers.readouts)

    with (
        new_store() as store,
        pytest.raises(ConfigurationError, match="the validation loss is not finite after step 4"),
    ):
        Run(Overflowing()).go(store)
