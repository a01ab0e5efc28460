"""Engine `lightcone`: see the package's docstring."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from qmljob_training.engines.lightcone import costs, heisenberg
from qmljob_training.engines.lightcone.formulation import Formulation, formulate
from qmljob_training.engines.lightcone.native import NativeSimulator
from qmljob_training.engines.lightcone.statevector import StateSimulator
from qmljob_training.engines.protocol import CircuitModel, Expectation
from qmljob_training.native import ops
from qmljob_training.native.ops import Native

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
        native: state vectors by the native loops, which must be built (True), or by TensorFlow alone (False); where
            they are built, if not given.
    """

    name = "lightcone"

    def __init__(
        self,
        *,
        precision: Literal["single", "double"] = "single",
        method: Method = "auto",
        native: bool | None = None,
    ) -> None:
        self._precision = precision
        self._method: Method = method
        self._native = native
        self._made: dict[int, tuple[CircuitModel, Expectation]] = {}

    def expectation(self, model: CircuitModel) -> Expectation:
        """See Engine. The same model again gives the same function: layers that are rebuilt don't compile anew."""
        import tensorflow as tf

        if id(model) not in self._made:
            dtype = tf.float32 if self._precision == "single" else tf.float64
            functions = model_functions(model, self._method, dtype.size, self._loops())
            if len(self._made) >= REMEMBERED:
                del self._made[next(iter(self._made))]
            self._made[id(model)] = (model, differentiable(functions, dtype))
        return self._made[id(model)][1]

    def _loops(self) -> Native | None:
        wanted = ops.available() if self._native is None else self._native
        return ops.load() if wanted else None


Kept = tuple["tf.Tensor", ...]
"""What the values leave for the gradients: state vectors, or nothing."""


@dataclass(frozen=True)
class Functions:
    """A model's values [batch, observables] and the gradients of sum(upstream * values).

    Attributes:
        values: of features and weights; also returns what the gradients take as their last argument, `()` at will.
        compiled: whether XLA compiles each; else they compile their parts themselves.
    """

    values: Callable[["tf.Tensor", "tf.Tensor"], "tuple[tf.Tensor, Kept]"]
    weight_gradient: Callable[["tf.Tensor", "tf.Tensor", "tf.Tensor", Kept], "tf.Tensor"]
    feature_gradient: Callable[["tf.Tensor", "tf.Tensor", "tf.Tensor", Kept], "tf.Tensor"]
    compiled: bool = True


def differentiable(functions: Functions, dtype: "tf.DType") -> Expectation:
    """Makes a graph of each function, under XLA where that is its way, and joins them to a differentiable one.

    The gradients are functions of their own so that a graph which needs only one of them runs only that.
    """
    import tensorflow as tf

    graphs = [
        tf.function(function, jit_compile=functions.compiled or None, reduce_retracing=True, autograph=False)
        for function in (functions.values, functions.weight_gradient, functions.feature_gradient)
    ]

    def expectation(features: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        features, weights = tf.cast(features, dtype), tf.cast(tf.convert_to_tensor(weights), dtype)
        # What is computed inside the custom gradients is none of an outer tape's business: native ops have no other.
        fixed, trained = tf.stop_gradient(features), tf.stop_gradient(weights)
        kept: list[Kept] = []

        # Two functions, of one argument each, so that a tape which watches only the weights computes only their
        # gradient: the second adds zeros.
        @tf.custom_gradient
        def of_weights(given: tf.Tensor) -> Any:
            values, left = graphs[0](fixed, tf.stop_gradient(given))
            kept.append(left)
            return values, lambda upstream: graphs[1](fixed, trained, upstream, left)

        values = of_weights(weights)

        @tf.custom_gradient
        def of_features(given: tf.Tensor) -> Any:
            return tf.zeros_like(values), lambda upstream: graphs[2](fixed, trained, upstream, kept[-1])

        return values + of_features(features)

    return expectation


def model_functions(
    model: CircuitModel, method: Method = "auto", real_bytes: int = 4, native: Native | None = None
) -> Functions:
    """Returns what is computed for a model, not compiled yet.

    Args:
        native: the loops for state vectors; without them TensorFlow's ops do it.

    Raises:
        ConfigurationError: the circuit can't be simulated, or not in this machine's memory.
    """
    formulation = formulate(model, method, native=native is not None)
    largest = max((program.qubits for program in formulation.states), default=0)
    vectors = costs.STATE_VECTORS if native is None else costs.NATIVE_STATE_VECTORS
    costs.check_memory(largest, 2 * real_bytes, vectors=vectors)
    if formulation.heisenberg is not None:
        return _heisenberg_functions(formulation)
    if native is not None and formulation.states:
        return native_functions(formulation, model, real_bytes, native)
    if formulation.states:
        ops.tell_where_missing()
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
        lambda features, weights: (values(features, weights), ()),
        lambda features, weights, upstream, _: gradient(features, weights, upstream, source=1),
        lambda features, weights, upstream, _: gradient(features, weights, upstream, source=0),
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
        lambda features, weights: (values(features, weights), ()),
        lambda features, weights, upstream, _: gradient(features, weights, upstream, of_features=False),
        lambda features, weights, upstream, _: gradient(features, weights, upstream, of_features=True),
    )


def native_functions(formulation: Formulation, model: CircuitModel, real_bytes: int, native: Native) -> Functions:
    """Returns the functions of state vectors by the native loops; XLA compiles what leads to the matrices and back."""
    import tensorflow as tf

    symbols = (model.feature_symbols, model.weight_symbols)
    simulators = [NativeSimulator(program, *symbols, real_bytes, native.ops) for program in formulation.states]
    columns = list(formulation.columns)
    ends = np.cumsum([0, *(len(program.observables) for program in formulation.states)])

    @tf.function(jit_compile=True, reduce_retracing=True, autograph=False)
    def matrices(features: tf.Tensor, weights: tf.Tensor) -> Any:
        return [simulator.matrices(features, weights) for simulator in simulators]

    @tf.function(jit_compile=True, reduce_retracing=True, autograph=False)
    def to_symbols(features: tf.Tensor, weights: tf.Tensor, found: list[tf.Tensor], of_features: bool) -> tf.Tensor:
        source = features if of_features else weights
        with tf.GradientTape() as tape:
            tape.watch(source)
            made = [simulator.matrices(features, weights)[int(of_features)] for simulator in simulators]
        return tape.gradient(made, source, found, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    def values(features: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, Kept]:
        made = matrices(features, weights)
        found = [simulator.values(*each) for simulator, each in zip(simulators, made, strict=True)]
        placed = np.zeros((len(columns), len(formulation.constants)))
        placed[range(len(columns)), columns] = 1.0
        total = tf.concat([value for value, _ in found], axis=1) @ tf.constant(placed, features.dtype)
        return total + tf.constant(formulation.constants, features.dtype), tuple(states for _, states in found)

    def gradient(
        features: tf.Tensor, weights: tf.Tensor, upstream: tf.Tensor, kept: Kept, *, of_features: bool
    ) -> tf.Tensor:
        left = kept or (tf.zeros(0, features.dtype),) * len(simulators)
        ordered = tf.gather(upstream, columns, axis=1)
        parts = zip(simulators, matrices(features, weights), left, ends[:-1], ends[1:], strict=True)
        found = [
            simulator.gradient(shared, own, ordered[:, start:end], states, of_features=of_features)
            for simulator, (shared, own), states, start, end in parts
        ]
        return to_symbols(features, weights, found, of_features)

    return Functions(
        values,
        lambda features, weights, upstream, kept: gradient(features, weights, upstream, kept, of_features=False),
        lambda features, weights, upstream, kept: gradient(features, weights, upstream, kept, of_features=True),
        compiled=False,
    )
