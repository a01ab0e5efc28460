"""What a workload is: a data set and a model, and the options that shape them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from qmljob_training.engines.protocol import CircuitModel, Engine

if TYPE_CHECKING:
    import cirq
    import tf_keras


@dataclass(frozen=True)
class Split:
    """Examples. features: float32 [examples, features]; labels: float32 [examples], -1 or 1."""

    features: NDArray[np.float32]
    labels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class DataSet:
    """A training and a test split without common examples."""

    train: Split
    test: Split


@dataclass(frozen=True)
class WorkloadOptions:
    """The options that shape data and model; all are kept in the artifact.

    Attributes:
        qubits: size of the register.
        examples: number of examples drawn, both splits together.
        seed: of the data and of the initial weights.
    """

    qubits: int
    examples: int
    seed: int


@runtime_checkable
class Workload(Protocol):
    """A model with its data set.

    The model is a Keras model that maps features [batch, features] to a pair (predictions [batch], readouts
    [batch, readouts]). Training minimises the mean squared error of the predictions; readouts are what TensorBoard and
    the report show. Everything random comes from `options.seed`, so that every worker builds the same.
    """

    name: str

    def check(self, options: WorkloadOptions) -> None:
        """Raises ConfigurationError where the options can't work."""

    def data(self, options: WorkloadOptions) -> DataSet:
        """Returns the data set; the same options give the same bits."""

    def draw(self, options: WorkloadOptions) -> Split:
        """Returns `options.examples` examples drawn from `options.seed`, unsplit."""

    def model(self, options: WorkloadOptions, engine: Engine) -> "tf_keras.Model":
        """Returns a new model with its initial weights."""

    def circuits(self, options: WorkloadOptions) -> "dict[str, cirq.Circuit]":
        """Returns the circuits to draw, by title; empty for a workload without any."""

    def symbols(self, options: WorkloadOptions) -> tuple[str, ...]:
        """Returns the trainable symbols in the order of the model's quantum weights."""


@runtime_checkable
class TellsCircuits(Protocol):
    """A workload that also tells which circuits its model simulates: then engine `auto` can weigh what they cost."""

    def circuit_models(self, options: WorkloadOptions) -> tuple[CircuitModel, ...]:
        """Returns the circuits of each quantum layer, without importing TensorFlow."""
