"""Engine `lightcone`: see the package's docstring."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from qmljob_training.engines.lightcone import costs, heisenberg
from qmljob_training.engines.lightcone.formulation import Formulation, formulate
from qmljob_training.engines.lightcone.statevector import StateSimulator
from qmljob_training.engines.protocol import CircuitModel, Expectation

if TYPE_CHECKING:
    import tensorflow as tf

Method = Literal["auto", "heisenberg", "state"]

REMEMBERED = 16
"""Models whose compiled functions an engine keeps."""


class LightconeEngine:
    """Exact values and gradients, of weights and features, from what can influence each readout.

    Args:
        precision: "single" computes in float32 and complex64, "double" in float64 and complex128; the function takes
            and returns float32 or float64 accordingly.
        method: "heisenberg" moves observables back, "state" moves state vectors forward; "auto" takes what is
            estimated to be cheaper.
    """

    name = "lightcone"

    def __init__(self, *, precision: Literal["single", "double"] = "single", method: Method = "auto") -> None:
        self._precision = precision
        self._method: Method = method
        self._made: dict[int, tuple[CircuitModel, Expectation]] = {}

    def expectation(self, model: CircuitModel) -> Expectation:
        """See Engine. The same model again gives the same function: layers that are rebuilt don't compile anew."""
        import tensorflow as tf

        if id(model) not in self._made:
            dtype = tf.float32 if self._precision == "single" else tf.float64
            functions = model_functions(model, self._method, dtype.size)
            if len(self._made) >= REMEMBERED:
                del self._made[next(iter(self._made))]
            self._made[id(model)] = (model, differentiable(functions, dtype))
        return self._made[id(model)][1]


@dataclass(frozen=True)
class Functions:
    """A model's values [batch, observables] and the gradients of sum(upstream * values), to be compiled."""

    values: Callable[["tf.Tensor", "tf.Tensor"], "tf.Tensor"]
    weight_gradient: Callable[["tf.Tensor", "tf.Tensor", "tf.Tensor"], "tf.Tensor"]
    feature_gradient: Callable[["tf.Tensor", "tf.Tensor", "tf.Tensor"], "tf.Tensor"]


def differentiable(functions: Functions, dtype: "tf.DType") -> Expectation:
    """Compiles the functions, each by itself under XLA, and joins them to one that TensorFlow can differentiate.

    The gradients are functions of their own so that a graph which needs only one of them runs only that.
    """
    import tensorflow as tf

    compiled = [
        tf.function(function, jit_compile=True, reduce_retracing=True)
        for function in (functions.values, functions.weight_gradient, functions.feature_gradient)
    ]

    def expectation(features: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        features, weights = tf.cast(features, dtype), tf.cast(tf.convert_to_tensor(weights), dtype)

        # Two functions, of one argument each, so that a tape which watches only the weights computes only their
        # gradient: the second adds zeros.
        @tf.custom_gradient
        def of_weights(given: tf.Tensor) -> Any:
            return compiled[0](features, given), lambda upstream: compiled[1](features, given, upstream)

        values = of_weights(weights)

        @tf.custom_gradient
        def of_features(given: tf.Tensor) -> Any:
            return tf.zeros_like(values), lambda upstream: compiled[2](given, weights, upstream)

        return values + of_features(features)

    return expectation


def model_functions(model: CircuitModel, method: Method = "auto", real_bytes: int = 4) -> Functions:
    """Returns what is computed for a model, not compiled yet.

    Raises:
        ConfigurationError: the circuit can't be simulated, or not in this machine's memory.
    """
    formulation = formulate(model, method)
    largest = max((program.qubits for program in formulation.states), default=0)
    costs.check_memory(largest, 2 * real_bytes)
    if formulation.heisenberg is not None:
        return _heisenberg_functions(formulation)
    return _state_functions(formulation, model)


def _heisenberg_functions(formulation: Formulation) -> Functions:
    import tensorflow as tf

    assert formulation.heisenberg is not None
    networks = heisenberg.values_function(formulation.heisenberg)
    mixing = np.zeros((len(formulation.owners), len(formulation.constants)))
    for row, (readout, factor) in enumerate(formulation.owners):
        mixing[row, readout] = factor

    def values(features: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        terms = networks(features, weights)
        return terms @ tf.constant(mixing, terms.dtype) + tf.constant(formulation.constants, terms.dtype)

    def gradient(features: tf.Tensor, weights: tf.Tensor, upstream: tf.Tensor, *, source: int) -> tf.Tensor:
        given = (features, weights)
        with tf.GradientTape() as tape:
            tape.watch(given[source])
            result = values(*given)
        return tape.gradient(result, given[source], upstream, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    return Functions(
        values,
        lambda features, weights, upstream: gradient(features, weights, upstream, source=1),
        lambda features, weights, upstream: gradient(features, weights, upstream, source=0),
    )


def _state_functions(formulation: Formulation, model: CircuitModel) -> Functions:
    import tensorflow as tf

    simulators = [
        StateSimulator(program, model.feature_symbols, model.weight_symbols) for program in formulation.states
    ]
    columns = list(formulation.columns)
    ends = np.cumsum([0, *(len(program.observables) for program in formulation.states)])

    def values(features: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        offset = tf.constant(formulation.constants, features.dtype)
        total = tf.broadcast_to(offset, (tf.shape(features)[0], len(formulation.constants)))
        if not columns:
            return total
        found = tf.concat([simulator.values(features, weights) for simulator in simulators], axis=1)
        placed = np.zeros((len(columns), len(formulation.constants)))
        placed[range(len(columns)), columns] = 1.0
        return total + found @ tf.constant(placed, found.dtype)

    def gradient(features: tf.Tensor, weights: tf.Tensor, upstream: tf.Tensor, *, of_features: bool) -> tf.Tensor:
        total = tf.zeros_like(features if of_features else weights)
        ordered = tf.gather(upstream, columns, axis=1) if columns else upstream
        for simulator, start, end in zip(simulators, ends[:-1], ends[1:], strict=True):
            total += simulator.gradients(features, weights, ordered[:, start:end], of_features=of_features)
        return total

    return Functions(
        values,
        lambda features, weights, upstream: gradient(features, weights, upstream, of_features=False),
        lambda features, weights, upstream: gradient(features, weights, upstream, of_features=True),
    )
