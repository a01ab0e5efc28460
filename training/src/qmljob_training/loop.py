"""The training loop: epochs, steps in few graph calls, checkpoints, and stopping together.

It knows no workload, strategy or engine by name. What it promises: the weights after an epoch depend on the flags
alone, and not on where the run was interrupted, how it was cut into graph calls, or which attempt this is.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from qmljob_api.progress import Progress
from qmljob_training.batches import Shard, epoch_order, shard
from qmljob_training.checkpoint import Checkpoint, CheckpointFolder, Position
from qmljob_training.errors import ConfigurationError, LostPeerError, PreemptedError
from qmljob_training.evaluation import Evaluation
from qmljob_training.preemption import StopRequest
from qmljob_training.strategies.protocol import Trainer
from qmljob_training.workloads.protocol import DataSet

CALL_SECONDS = 5.0
"""How long one graph call may take, by estimate: the longest wait before a stop request is seen."""


@dataclass(frozen=True)
class LoopConfig:
    """What the loop needs of the flags and the gang.

    Attributes:
        rank, workers: this worker's position, and how many there are.
        role, index: of this replica, for its progress lines.
        checkpoint_steps: steps between checkpoints inside an epoch; 0 means only at its end.
    """

    seed: int
    epochs: int
    global_batch_size: int
    learning_rate: float
    checkpoint_steps: int
    role: str
    index: int
    rank: int
    workers: int
    attempt: int


EpochDone = Callable[[Progress, Evaluation], None]


class Loop:
    """Trains from a position to the last epoch.

    Args:
        trainer: the model; its state belongs to the position that `run` starts from.
        checkpoints: where to save; None without a checkpoint location. The same on every worker, since reading a
            trainer's state may be a collective.
        writes: whether this worker is the one that saves.
        stop: asked after each graph call.
        meet: returns when every worker has called it.
        on_epoch_begin, on_epoch_end: called on every worker.
    """

    def __init__(
        self,
        config: LoopConfig,
        trainer: Trainer,
        data: DataSet,
        *,
        checkpoints: CheckpointFolder | None,
        writes: bool,
        stop: StopRequest,
        meet: Callable[[], object],
        on_epoch_begin: Callable[[int], None],
        on_epoch_end: EpochDone,
    ) -> None:
        self._config = config
        self._trainer = trainer
        self._data = data
        self._checkpoints = checkpoints
        self._writes = writes
        self._stop = stop
        self._meet = meet
        self._on_epoch_begin = on_epoch_begin
        self._on_epoch_end = on_epoch_end
        self._step_seconds = 0.0
        self._agreed_seconds = 0.0
        self._calls = 0

    def run(self, position: Position) -> Position:
        """Trains and returns the final position.

        Raises:
            PreemptedError: all workers have stopped together, and the chief has saved.
            ConfigurationError: the loss is not finite any more.
            LostPeerError, StoreError: see the trainer and the store.
        """
        while position.epoch < self._config.epochs or position.examples:
            self._on_epoch_begin(position.epoch + 1)
            position = self._epoch(position)
        return position

    def _epoch(self, position: Position) -> Position:
        config = self._config
        order = epoch_order(config.seed, position.epoch, len(self._data.train))
        todo = shard(order, config.global_batch_size, config.workers, config.rank, done=position.examples)
        started, first_example = time.perf_counter(), position.examples
        done = 0
        while done < todo.steps:
            part = todo.between(done, min(done + self._call_steps(done), todo.steps))
            position, stop = self._call(part, position)
            done += part.steps
            if stop:
                self._save(position)
                with suppress(LostPeerError):
                    self._meet()  # nobody leaves before the chief has saved
                raise PreemptedError(
                    f"stopped by SIGTERM after epoch {position.epoch}, step {position.steps}; a restart resumes there"
                )
            if self._checkpoint_due(done, todo.steps):
                self._save(position)
        trained = time.perf_counter()
        evaluation = self._trainer.evaluate(self._data.test)
        metrics = self._metrics(position, evaluation)
        self._check_finite("validation loss", metrics["val_loss"], position.steps)
        examples = position.examples - first_example
        validated = time.perf_counter()
        position = Position(epoch=position.epoch + 1, steps=position.steps, metrics=metrics)
        self._save(position)
        self._on_epoch_end(self._progress(position, trained - started, validated - trained, examples), evaluation)
        return position

    def last_progress(self, position: Position) -> Progress | None:
        """Returns the progress line of the last epoch of a run that is resumed, without its times; None inside one."""
        return self._progress(position, 0.0, 0.0, 0) if position.metrics and not position.examples else None

    def _call(self, part: Shard, position: Position) -> tuple[Position, bool]:
        started = time.perf_counter()
        result = self._trainer.run_steps(part, stop=self._stop.requested, step_seconds=self._step_seconds)
        if self._calls:  # the first call also compiles
            self._step_seconds = (time.perf_counter() - started) / part.steps
        self._calls += 1
        self._agreed_seconds = result.step_seconds
        sums = (position.squared_errors, position.hits)
        for squared_error, hit in zip(result.squared_errors, result.hits, strict=True):
            # One by one, in order: the sum must not depend on how steps were cut into calls.
            sums = (sums[0] + float(squared_error), sums[1] + float(hit))
        self._check_finite("loss", sums[0], position.steps + part.steps)
        position = replace(
            position,
            examples=position.examples + int(part.batch_sizes.sum()),
            steps=position.steps + part.steps,
            squared_errors=sums[0],
            hits=sums[1],
        )
        return position, result.stop

    def _check_finite(self, what: str, value: float, steps: int) -> None:
        if not np.isfinite(value):
            raise ConfigurationError(
                f"the {what} is not finite after step {steps}: lower --learning-rate ({self._config.learning_rate}), "
                "or look at the data"
            )

    def _call_steps(self, done: int) -> int:
        """Returns the length of the next graph call: the same on every worker, since it comes from an agreed number."""
        if self._calls < 2:
            return 1
        steps = max(1, int(CALL_SECONDS / self._agreed_seconds)) if self._agreed_seconds > 0.0 else 2
        every = self._config.checkpoint_steps
        return min(steps, every - done % every) if every else steps

    def _checkpoint_due(self, done: int, steps: int) -> bool:
        every = self._config.checkpoint_steps
        return bool(every) and done < steps and done % every == 0

    def _save(self, position: Position) -> None:
        if self._checkpoints is None:
            return
        state = self._trainer.state()
        if self._writes:
            self._checkpoints.save(Checkpoint(position, state))

    def _metrics(self, position: Position, evaluation: Evaluation) -> dict[str, float]:
        trained, test = len(self._data.train), self._data.test
        return {
            "loss": position.squared_errors / trained,
            "sign_accuracy": position.hits / trained,
            "val_loss": evaluation.mean_squared_error(test),
            "val_sign_accuracy": evaluation.sign_accuracy(test),
        }

    def _progress(self, position: Position, seconds: float, validation_seconds: float, examples: int) -> Progress:
        config = self._config
        return Progress(
            role=config.role,
            index=config.index,
            attempt=config.attempt,
            epoch=position.epoch,
            epochs=config.epochs,
            step=position.steps,
            loss=position.metrics["loss"],
            sign_accuracy=position.metrics["sign_accuracy"],
            val_loss=position.metrics["val_loss"],
            val_sign_accuracy=position.metrics["val_sign_accuracy"],
            learning_rate=config.learning_rate,
            seconds=seconds,
            validation_seconds=validation_seconds,
            examples_per_second=examples / seconds if seconds > 0 else 0.0,
        )
