"""The quantum layer and engine `tfq`: values and gradients against Cirq, weights in sorted order, refusals."""

from qmljob_training import runtime

runtime.prepare_environment()  # before TensorFlow is imported below

import cirq  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import sympy  # noqa: E402
import tensorflow as tf  # noqa: E402
import tf_keras  # noqa: E402

from qmljob_training.engines.protocol import CircuitModel, Engine  # noqa: E402
from qmljob_training.engines.tfq import TfqEngine  # noqa: E402
from qmljob_training.errors import ConfigurationError  # noqa: E402
from qmljob_training.quantum_layer import QuantumLayer, circuit_model  # noqa: E402
from qmljob_training.testing import engine_contract  # noqa: E402
from qmljob_training.workloads import cluster_excitation, qcnn_circuits  # noqa: E402

A, S, T = sympy.symbols("a s t")
QUBIT, OTHER = cirq.GridQubit.rect(1, 2)
ENCODING = cirq.Circuit(cirq.rx(A)(QUBIT))
ANSATZ = cirq.Circuit(cirq.X(QUBIT) ** S)


@pytest.mark.parametrize("check", engine_contract.ENGINE_CHECKS, ids=lambda check: check.__name__)
def test_engine_tfq_keeps_the_contract(check: engine_contract.EngineCheck) -> None:
    check(TfqEngine())


class Broken:
    """An engine that is wrong in one way."""

    name = "broken"

    def __init__(self, factor: float = 1.0, *, reverse: bool = False) -> None:
        self._factor = factor
        self._reverse = reverse

    def expectation(self, model: CircuitModel):
        right = TfqEngine().expectation(model)

        def wrong(features: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
            given = tf.reverse(weights, [0]) if self._reverse else weights
            values = right(features, given)
            # The value as it is, a gradient that is off.
            return values + (self._factor - 1.0) * (values - tf.stop_gradient(values))

        return wrong


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        pytest.param(Broken(reverse=True), engine_contract.values_are_those_of_cirq, id="weights in another order"),
        pytest.param(
            Broken(1.001), engine_contract.gradients_are_those_of_the_parameter_shift_rule, id="a gradient 0.1 % off"
        ),
    ],
)
def test_the_contract_finds_an_engine_that_is_wrong(broken: Engine, check: engine_contract.EngineCheck) -> None:
    with pytest.raises(AssertionError):
        check(broken)


def qcnn_layer(qubits: int) -> QuantumLayer:
    bits = cluster_excitation.register(qubits)
    readouts = [cirq.Z(bit) for bit in bits[qubits // 2 :]]
    return QuantumLayer(
        cluster_excitation.encoding(bits), qcnn_circuits.multi_readout(bits), readouts, engine=TfqEngine(), seed=3
    )


@pytest.mark.parametrize("qubits", [3, 4, 5, 8])
def test_the_networks_readouts_are_those_of_cirq(qubits: int) -> None:
    layer = qcnn_layer(qubits)
    features = cluster_excitation.draw(qubits, 5, seed=1).features
    values = layer(tf.constant(features)).numpy()
    weights = layer.get_weights()[0]
    expected = engine_contract.reference_values(
        layer.circuit_model, features.astype(np.float64), weights.astype(np.float64)
    )
    assert values.shape == (5, qubits - qubits // 2)
    np.testing.assert_allclose(values, expected, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("qubits", [3, 4, 5])
def test_the_networks_gradient_is_that_of_the_parameter_shift_rule(qubits: int) -> None:
    layer = qcnn_layer(qubits)
    features = cluster_excitation.draw(qubits, qubits + 1, seed=2).features[-1:]
    upstream = np.linspace(-1.0, 1.0, qubits - qubits // 2)[np.newaxis]
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(tf.constant(features)) * tf.constant(upstream, tf.float32))
    found = tape.gradient(total, layer.trainable_weights[0]).numpy()
    expected = engine_contract.reference_gradient(
        layer.circuit_model, features.astype(np.float64), layer.get_weights()[0].astype(np.float64), upstream
    )
    engine_contract.assert_gradient_close(found, expected)


def test_weights_are_in_the_sorted_order_of_their_symbols() -> None:
    # The angles add up with different factors, so a value tells which weight went to which symbol.
    ansatz = cirq.Circuit(cirq.X(QUBIT) ** (4 * T), cirq.X(QUBIT) ** S)
    layer = QuantumLayer(ENCODING, ansatz, [cirq.Z(QUBIT)], engine=TfqEngine())
    layer.build((None, 1))
    layer.set_weights([np.array([0.1, 0.01], np.float32)])
    assert layer.weight_symbols == ("s", "t")
    assert layer(tf.constant([[0.3]])).numpy()[0, 0] == pytest.approx(np.cos(0.3 + np.pi * (0.1 + 4 * 0.01)), abs=1e-5)


def test_features_can_be_given_an_order() -> None:
    encoding = cirq.Circuit(cirq.rx(A)(QUBIT), cirq.rx(sympy.Symbol("b"))(OTHER))
    observables = [cirq.Z(QUBIT), cirq.Z(OTHER)]
    for order, expected in ((None, [0.1, 0.2]), (["b", "a"], [0.2, 0.1])):
        layer = QuantumLayer(
            encoding, ANSATZ, observables, engine=TfqEngine(), feature_symbols=order, initializer="zeros"
        )
        np.testing.assert_allclose(layer(tf.constant([[0.1, 0.2]])).numpy()[0], np.cos(expected), atol=1e-6)


def test_initial_weights_come_from_the_seed() -> None:
    def weights(seed: int) -> bytes:
        layer = QuantumLayer(ENCODING, ANSATZ, [cirq.Z(QUBIT)], engine=TfqEngine(), seed=seed)
        layer.build((None, 1))
        values = layer.get_weights()[0]
        assert (values >= 0).all()
        assert (values < 2 * np.pi).all()
        return values.tobytes()

    assert weights(1) == weights(1) != weights(2)


def test_a_layer_is_trained_like_any_other() -> None:
    inputs = tf_keras.Input((1,))
    output = QuantumLayer(ENCODING, ANSATZ, [cirq.Z(QUBIT)], engine=TfqEngine(), seed=4)(inputs)
    model = tf_keras.Model(inputs, output)
    model.compile(optimizer=tf_keras.optimizers.SGD(0.05), loss="mse")
    features, labels = np.array([[0.0], [np.pi]], np.float32), np.array([[1.0], [-1.0]], np.float32)
    losses = model.fit(features, labels, epochs=30, batch_size=2, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < 0.01 < losses[0]


REFUSED = [
    pytest.param(
        lambda: circuit_model(ENCODING, cirq.Circuit(cirq.X(QUBIT) ** A), [cirq.Z(QUBIT)]),
        "symbols in both encoding and ansatz: a; rename one side",
        id="a symbol in both circuits",
    ),
    pytest.param(
        lambda: circuit_model(ENCODING, ANSATZ, [cirq.Z(QUBIT)], ["a", "b"]),
        "feature_symbols a, b are not the encoding's symbols a",
        id="a feature without a symbol",
    ),
    pytest.param(
        lambda: circuit_model(ENCODING, ANSATZ, [cirq.Z(QUBIT)], ["a", "a"]),
        "feature_symbols a, a are not the encoding's symbols a",
        id="a feature named twice",
    ),
    pytest.param(lambda: circuit_model(ENCODING, ANSATZ, []), "no observables", id="nothing to read"),
    pytest.param(
        lambda: circuit_model(ENCODING, ANSATZ, [cirq.Z(QUBIT) * 1j]),
        "is not Hermitian: give its terms real coefficients",
        id="an observable without real values",
    ),
    pytest.param(
        lambda: QuantumLayer(ENCODING, ANSATZ, [cirq.Z(QUBIT)], engine=TfqEngine(), name="quantum").build((None, 3)),
        "quantum: 3 features for an encoding with 1 symbols",
        id="another number of features",
    ),
    pytest.param(
        lambda: TfqEngine().expectation(
            circuit_model(ENCODING, cirq.Circuit(cirq.X(QUBIT) ** (S + 1)), [cirq.Z(QUBIT)])
        ),
        "engine tfq can't simulate this circuit: Arithmetic expression",
        id="an exponent that tfq can't write",
    ),
    pytest.param(
        lambda: TfqEngine().expectation(
            circuit_model(ENCODING, ANSATZ + cirq.MatrixGate(np.eye(2))(QUBIT), [cirq.Z(QUBIT)])
        ),
        "engine tfq can't simulate this circuit: Cannot serialize op",
        id="a gate that tfq does not know",
    ),
    pytest.param(
        lambda: TfqEngine().expectation(
            circuit_model(ENCODING, ANSATZ + cirq.measure(QUBIT, key="m"), [cirq.Z(QUBIT)])
        ),
        "is not unitary; remove it",
        id="a measurement",
    ),
]


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_what_cannot_work_is_refused_in_a_line(build, message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        build()
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
