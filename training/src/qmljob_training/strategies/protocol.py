"""What a strategy is: how the replicas of a job train one model together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from qmljob_training.batches import Shard
from qmljob_training.evaluation import Evaluation
from qmljob_training.rendezvous import Rendezvous
from qmljob_training.workloads.protocol import DataSet, Split

if TYPE_CHECKING:
    import tf_keras

State = dict[str, NDArray[np.generic]]
"""Every number that training carries from step to step (weights, optimizer slots), by a stable name."""


@dataclass(frozen=True)
class StepsResult:
    """What a run of steps gave, over all workers.

    Attributes:
        squared_errors: float64 [steps], the sum of squared errors of each global batch.
        hits: float64 [steps], the number of examples of each global batch whose sign was right.
        stop: whether any worker had asked to stop; the same answer on every worker.
        step_seconds: mean over the workers of what they reported; the same answer on every worker.
    """

    squared_errors: NDArray[np.float64]
    hits: NDArray[np.float64]
    stop: bool
    step_seconds: float


class Trainer(Protocol):
    """A model under training. Every worker calls the same methods in the same order."""

    model: "tf_keras.Model"

    @property
    def graph(self) -> Any:
        """The tf.Graph of a run of steps, for TensorBoard."""

    def run_steps(self, shard: Shard, *, stop: bool, step_seconds: float) -> StepsResult:
        """Trains on this worker's part of some global batches, in one graph call.

        Args:
            shard: the steps to run; every worker passes as many.
            stop: this worker asks to stop after the call.
            step_seconds: this worker's measured seconds a step, to agree on the length of the next call.

        Raises:
            LostPeerError: another worker went away.
        """

    def evaluate(self, split: Split) -> Evaluation:
        """Returns the model's answers on a whole split, the same on every worker; raises LostPeerError."""

    def state(self) -> State:
        """Returns everything that a checkpoint must hold. Called on every worker: reading may be a collective."""

    def restore(self, state: State) -> None:
        """Takes a state back.

        Raises:
            BadArtifactError: the state is of another model or optimizer.
        """


@runtime_checkable
class Strategy(Protocol):
    """How replicas work together."""

    name: str

    def check(self, rendezvous: Rendezvous) -> None:
        """Raises ConfigurationError where this replica's role is not part of the strategy. Imports nothing heavy."""

    def connect(self, rendezvous: Rendezvous) -> None:
        """Joins the gang: starts this replica's server and blocks until every peer is there."""

    def exchange(self, value: int) -> tuple[int, ...]:
        """Returns every worker's value (0 to 2**62), by rank, once all have called it; raises LostPeerError.

        To be called after `connect`, by every worker at the same place.
        """

    def trainer(self, build_model: "Callable[[], tf_keras.Model]", data: DataSet, learning_rate: float) -> Trainer:
        """Returns a trainer of the model; to be called after `connect`."""
