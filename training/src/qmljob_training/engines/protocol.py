"""What an engine is: it turns a circuit with symbols and observables into a differentiable function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import cirq

if TYPE_CHECKING:
    import tensorflow as tf

Expectation = Callable[["tf.Tensor", "tf.Tensor"], "tf.Tensor"]
"""(features [batch, features], weights [symbols]) -> expectation values [batch, observables], all float32."""


@dataclass(frozen=True)
class CircuitModel:
    """A parametrised circuit as an engine sees it: encoding, then ansatz, then observables.

    Attributes:
        encoding: prepares the input; its symbols are exactly `feature_symbols`.
        ansatz: the trainable part; its symbols are exactly `weight_symbols`.
        observables: one Pauli sum for each readout.
        feature_symbols: in the order of an example's features.
        weight_symbols: in the order of the weights.
    """

    encoding: cirq.Circuit
    ansatz: cirq.Circuit
    observables: tuple[cirq.PauliSum, ...]
    feature_symbols: tuple[str, ...]
    weight_symbols: tuple[str, ...]


@runtime_checkable
class Engine(Protocol):
    """Simulates circuits."""

    name: str

    def expectation(self, model: CircuitModel) -> Expectation:
        """Returns the expectation values of `model` as a function, differentiable by TensorFlow in the weights.

        Raises:
            ConfigurationError: the circuit holds something that this engine can't simulate.
        """
