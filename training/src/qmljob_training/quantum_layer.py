"""A Keras layer made from Cirq circuits."""

from collections.abc import Sequence
from typing import Any

import cirq
import numpy as np
import tensorflow as tf
import tf_keras

from qmljob_training.circuits import circuit_model
from qmljob_training.engines.protocol import Engine
from qmljob_training.errors import ConfigurationError


class QuantumLayer(tf_keras.layers.Layer):
    """Maps features [batch, features] to expectation values [batch, observables].

    The trainable symbols become one weight vector, in the sorted order of their names (`weight_symbols`): give them
    zero-padded numbers, so that this is also the order in which a person counts.

    Args:
        encoding: a circuit whose symbols stand for an example's features.
        ansatz: a circuit whose symbols are trained.
        observables: a Pauli string or Pauli sum for each readout.
        engine: what simulates.
        feature_symbols: the order of the features; sorted by name where not given.
        initializer: of the weights; uniform in [0, 2 pi) from `seed` where not given.

    Raises:
        ConfigurationError: a symbol is in both circuits, the features don't match the encoding's symbols, or an
            observable can't be read.
    """

    def __init__(
        self,
        encoding: cirq.Circuit,
        ansatz: cirq.Circuit,
        observables: Sequence[cirq.PauliSum | cirq.PauliString],
        *,
        engine: Engine,
        feature_symbols: Sequence[str] | None = None,
        initializer: Any = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.circuit_model = circuit_model(encoding, ansatz, observables, feature_symbols)
        self._initializer = initializer or tf_keras.initializers.RandomUniform(0.0, 2 * np.pi, seed=seed)
        self._engine = engine

    @property
    def weight_symbols(self) -> tuple[str, ...]:
        """The trainable symbols, in the order of the weight vector."""
        return self.circuit_model.weight_symbols

    def build(self, input_shape: Any) -> None:
        """Adds the weight vector, float32 [symbols]."""
        width = int(input_shape[-1])
        expected = len(self.circuit_model.feature_symbols)
        if width != expected:
            raise ConfigurationError(f"{self.name}: {width} features for an encoding with {expected} symbols")
        self._weights = self.add_weight(
            name="symbols", shape=(len(self.weight_symbols),), initializer=self._initializer, dtype=tf.float32
        )
        self._expectation = self._engine.expectation(self.circuit_model)
        super().build(input_shape)

    def call(self, features: tf.Tensor) -> tf.Tensor:
        """Returns the expectation values, float32 [batch, observables]."""
        return self._expectation(features, self._weights)
