"""The contract of `Engine`, as checks that any implementation can be run against.

    @pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
    def test_my_engine_keeps_the_contract(check):
        check(MyEngine())

Values and gradients are held against Cirq's own simulator in double precision, gradients against the parameter shift
rule. An engine need not know every gate; `CASES` is what a network of this project may hold, and no more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import cirq
import numpy as np
import sympy
from numpy.typing import NDArray

from qmljob_training.circuits import circuit_model
from qmljob_training.engines.protocol import CircuitModel, Engine
from qmljob_training.errors import ConfigurationError

EngineCheck: TypeAlias = Callable[[Engine], None]
Array: TypeAlias = NDArray[np.float64]

TOLERANCE = 1e-5
"""Of values, absolute: engines compute in single precision."""
GRADIENT_TOLERANCE = 1e-4
RELATIVE_GRADIENT_TOLERANCE = 2e-4
"""TensorFlow Quantum differentiates each gate by a central difference of 0.005 in its symbol: a relative error of
(0.005 pi s)**2 / 6 for an exponent scaled by s, which is 4e-5 for s = 1 and 1.6e-4 for s = 2."""

_EXAMPLES = 3
_GENERATORS: tuple[tuple[type[cirq.Gate], cirq.Gate], ...] = (
    (cirq.XPowGate, cirq.X),
    (cirq.YPowGate, cirq.Y),
    (cirq.ZPowGate, cirq.Z),
    (cirq.XXPowGate, cirq.XX),
    (cirq.YYPowGate, cirq.YY),
    (cirq.ZZPowGate, cirq.ZZ),
    (cirq.CXPowGate, cirq.CX),
    (cirq.CZPowGate, cirq.CZ),
)


@dataclass(frozen=True)
class EngineCase:
    """A circuit that engines must agree on. The name says what is special about it."""

    name: str
    model: CircuitModel

    def inputs(self, seed: int) -> tuple[Array, Array]:
        """Returns features [examples, features] and weights [symbols], of single-precision value."""
        numbers = np.random.default_rng([seed, len(self.name)])
        features = numbers.uniform(-np.pi, np.pi, (_EXAMPLES, len(self.model.feature_symbols)))
        weights = numbers.uniform(0.0, 2.0, len(self.model.weight_symbols))
        return features.astype(np.float32).astype(np.float64), weights.astype(np.float32).astype(np.float64)


def reference_values(model: CircuitModel, features: Array, weights: Array) -> Array:
    """Returns expectation values [examples, observables] by cirq.Simulator, in double precision."""
    trained = dict(zip(model.weight_symbols, weights, strict=True))
    rows = [dict(zip(model.feature_symbols, row, strict=True)) | trained for row in features]
    return np.array([_values(model.encoding + model.ansatz, model.observables, row) for row in rows])


def reference_gradient(model: CircuitModel, features: Array, weights: Array, upstream: Array) -> Array:
    """Returns the gradient [symbols] of sum(upstream * values) by the parameter shift rule.

    For a gate G**e with G**2 = 1 the value is a + b cos(pi e) + c sin(pi e), so its derivative in e is
    pi / 2 * (value at e + 1/2 - value at e - 1/2): Schuld et al. 2019 (arXiv:1811.11184) in units of half turns. Where
    a symbol is in several gates or in scaled exponents, each gate is shifted by itself and the chain rule adds them up.
    """
    gradient = dict.fromkeys(model.weight_symbols, 0.0)
    operations = list(model.ansatz.all_operations())
    for position, operation in enumerate(operations):
        for name in cirq.parameter_names(operation):
            scale = float(sympy.diff(_exponent(operation), sympy.Symbol(name)))
            plus, minus = (
                np.sum(upstream * reference_values(_shifted(model, operations, position, shift), features, weights))
                for shift in (0.5, -0.5)
            )
            gradient[name] += scale * np.pi / 2 * float(plus - minus)
    return np.array([gradient[name] for name in model.weight_symbols])


def assert_gradient_close(found: NDArray[Any], expected: Array, where: str = "") -> None:
    """Asserts that two gradients are equal within the tolerances above."""
    np.testing.assert_allclose(
        found, expected, rtol=RELATIVE_GRADIENT_TOLERANCE, atol=GRADIENT_TOLERANCE, err_msg=where
    )


def assert_engine_contract(engine: Engine) -> None:
    """Runs all checks; raises AssertionError where a promise is not kept."""
    for check in ENGINE_CHECKS:
        check(engine)


def values_are_those_of_cirq(engine: Engine) -> None:
    """Expectation values, float32 [batch, observables], of every case."""
    for case in CASES:
        features, weights = case.inputs(0)
        values = _engine_values(engine, case.model, features, weights)
        assert values.dtype == np.float32, case.name
        _assert_close(values, reference_values(case.model, features, weights), TOLERANCE, case.name)


def gradients_are_those_of_the_parameter_shift_rule(engine: Engine) -> None:
    """The gradient in the weights of a sum over examples and observables, each with a factor of its own."""
    for case in CASES:
        features, weights = case.inputs(1)
        shape = (_EXAMPLES, len(case.model.observables))
        upstream = np.random.default_rng(2).uniform(-1.0, 1.0, shape).astype(np.float32).astype(np.float64)
        found = _engine_gradient(engine, case.model, features, weights, upstream)
        expected = reference_gradient(case.model, features, weights, upstream)
        assert_gradient_close(found, expected, case.name)


def an_example_does_not_depend_on_its_batch(engine: Engine) -> None:
    """Batches of any size, of none too, give each example its own value."""
    case = CASES[0]
    features, weights = case.inputs(3)
    expectation = engine.expectation(case.model)
    whole = _evaluate(expectation, features, weights)
    for row in range(_EXAMPLES):
        alone = _evaluate(expectation, features[row : row + 1], weights)
        _assert_close(alone, whole[row : row + 1], TOLERANCE, f"example {row}")
    assert _evaluate(expectation, features[:0], weights).shape == (0, whole.shape[1])


def the_same_input_gives_the_same_bits(engine: Engine) -> None:
    """Values and gradients repeat, bit for bit: checkpoints promise the same weights after a restart."""
    for case in CASES:
        features, weights = case.inputs(4)
        upstream = np.ones((_EXAMPLES, len(case.model.observables)))
        first, second = (_engine_values(engine, case.model, features, weights) for _ in range(2))
        np.testing.assert_array_equal(first, second, case.name)
        one, other = (_engine_gradient(engine, case.model, features, weights, upstream) for _ in range(2))
        np.testing.assert_array_equal(one, other, case.name)


def it_works_inside_a_graph(engine: Engine) -> None:
    """The function can be traced by tf.function with a batch of unknown size."""
    import tensorflow as tf

    case = CASES[0]
    features, weights = case.inputs(5)
    specs = (tf.TensorSpec((None, features.shape[1]), tf.float32), tf.TensorSpec(weights.shape, tf.float32))
    traced = tf.function(engine.expectation(case.model), input_signature=specs)
    _assert_close(
        _evaluate(traced, features, weights), reference_values(case.model, features, weights), TOLERANCE, case.name
    )


def what_it_cannot_simulate_is_refused_in_a_line(engine: Engine) -> None:
    """A measurement or a noisy channel in the circuit is a ConfigurationError, when the function is made."""
    qubit = cirq.GridQubit(0, 0)
    for operation in (cirq.measure(qubit, key="m"), cirq.depolarize(0.1)(qubit)):
        model = _model(cirq.rx(_A)(qubit), [cirq.X(qubit) ** _S, operation], [cirq.Z(qubit)])
        refusal = _refusal(engine, model)
        assert refusal is not None, f"{operation} is simulated as if it were unitary"
        assert "\n" not in refusal, f"a message is one line: {refusal}"


ENGINE_CHECKS: tuple[EngineCheck, ...] = (
    values_are_those_of_cirq,
    gradients_are_those_of_the_parameter_shift_rule,
    an_example_does_not_depend_on_its_batch,
    the_same_input_gives_the_same_bits,
    it_works_inside_a_graph,
    what_it_cannot_simulate_is_refused_in_a_line,
)
"""All checks; each takes an engine."""


def _refusal(engine: Engine, model: CircuitModel) -> str | None:
    try:
        engine.expectation(model)
    except ConfigurationError as error:
        return str(error)
    return None


def _engine_values(engine: Engine, model: CircuitModel, features: Array, weights: Array) -> NDArray[Any]:
    return _evaluate(engine.expectation(model), features, weights)


def _evaluate(expectation: Callable[..., object], features: Array, weights: Array) -> NDArray[Any]:
    import tensorflow as tf

    return np.asarray(expectation(tf.constant(features, tf.float32), tf.constant(weights, tf.float32)))


def _engine_gradient(
    engine: Engine, model: CircuitModel, features: Array, weights: Array, upstream: Array
) -> NDArray[Any]:
    import tensorflow as tf

    trained = tf.Variable(weights, dtype=tf.float32)
    with tf.GradientTape() as tape:
        values = engine.expectation(model)(tf.constant(features, tf.float32), trained)
        total = tf.reduce_sum(values * tf.constant(upstream, tf.float32))
    return np.asarray(tape.gradient(total, trained))


def _assert_close(found: NDArray[Any], expected: NDArray[Any], tolerance: float, where: str) -> None:
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=tolerance, err_msg=where)


def _values(circuit: cirq.Circuit, observables: Sequence[cirq.PauliSum], row: dict[str, float]) -> list[float]:
    on_any = {qubit for observable in observables for qubit in observable.qubits}
    qubits = sorted(circuit.all_qubits() | on_any)
    simulator = cirq.Simulator(dtype=np.complex128)
    state = simulator.simulate(circuit, cirq.ParamResolver(row), qubit_order=qubits).final_state_vector
    positions = {qubit: index for index, qubit in enumerate(qubits)}
    return [float(observable.expectation_from_state_vector(state, positions).real) for observable in observables]


def _exponent(operation: cirq.Operation) -> sympy.Expr:
    assert isinstance(operation.gate, cirq.EigenGate)
    return sympy.sympify(operation.gate.exponent)


def _shifted(model: CircuitModel, operations: list[cirq.Operation], position: int, shift: float) -> CircuitModel:
    """Returns the model with one gate's exponent changed: by a second gate of the same axis, which commutes with it."""
    operation = operations[position]
    generator = next(gate for kind, gate in _GENERATORS if isinstance(operation.gate, kind))
    more = (generator**shift).on(*operation.qubits)
    ansatz = cirq.Circuit([*operations[: position + 1], more, *operations[position + 1 :]])
    return CircuitModel(model.encoding, ansatz, model.observables, model.feature_symbols, model.weight_symbols)


def _model(encoding: cirq.OP_TREE, ansatz: cirq.OP_TREE, observables: Sequence[object]) -> CircuitModel:
    return circuit_model(cirq.Circuit(encoding), cirq.Circuit(ansatz), observables)


_A, _B, _S, _T, _U = sympy.symbols("a b s t u")


def _cases() -> tuple[EngineCase, ...]:
    first, second, third, idle = cirq.GridQubit.rect(1, 4)
    rotated = [cirq.rx(_A)(first), cirq.ry(_B)(second), cirq.H(third), cirq.CZ(first, third)]
    two = [cirq.ZZ(first, second) ** _S, cirq.YY(second, third) ** _T, cirq.XX(first, third) ** _U]
    z = cirq.Z(first)
    hybrid = 0.5 * cirq.X(first) * cirq.Y(second) - 1.5 * cirq.Z(third) + 0.25
    return tuple(
        EngineCase(name, _model(encoding, ansatz, observables))
        for name, encoding, ansatz, observables in (
            ("one qubit", cirq.rx(_A)(first), [cirq.X(first) ** _S, cirq.Y(first) ** _T, cirq.Z(first) ** _U], [z]),
            ("two-qubit powers", rotated, [*two, cirq.X.on_each(first, third)], [z, cirq.Z(second), cirq.X(third)]),
            ("an observable of several terms and the identity", rotated, two, [hybrid, z]),
            ("an observable that is a number", rotated, two, [cirq.PauliSum() - 0.75, z]),
            ("an observable on a qubit without gates", rotated, two, [cirq.Z(idle), z * cirq.Z(idle), cirq.X(idle)]),
            (
                "a symbol in several gates",
                rotated,
                [cirq.X(first) ** _S, *two, cirq.Y(second) ** _S],
                [z * cirq.X(second)],
            ),
            (
                "scaled exponents",
                rotated,
                [cirq.X(first) ** (2 * _S), cirq.CX(first, second) ** (-_S / 3)],
                [z, hybrid],
            ),
            (
                "rotations by angles",
                rotated,
                [cirq.rx(_S)(first), cirq.ry(2 * _T)(third), cirq.rz(-_U)(second)],
                [hybrid],
            ),
            ("symbols that sort unlike they occur", rotated, [cirq.X(first) ** _U, cirq.Y(first) ** _S], [z]),
            ("controlled powers", rotated, [cirq.CX(first, second) ** _S, cirq.CZ(second, third) ** _T], [hybrid]),
            (
                "no symbol in the encoding",
                cirq.H(first),
                [cirq.Z(first) ** _S, cirq.CX(first, second)],
                [cirq.X(first)],
            ),
        )
    )


CASES: tuple[EngineCase, ...] = _cases()
"""Circuits of one to four qubits, each with something that an engine may get wrong."""
