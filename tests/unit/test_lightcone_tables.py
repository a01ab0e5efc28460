"""Engine `lightcone`: light cones, fusion, the choice of a way, the network's own model, and bad input, as tables."""

from itertools import pairwise

from qmljob_training import runtime

runtime.prepare_environment()  # before TensorFlow is imported below

import cirq  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import sympy  # noqa: E402
import tensorflow as tf  # noqa: E402

from qmljob_training.engines.lightcone import costs, formulation, statevector  # noqa: E402
from qmljob_training.engines.lightcone.cone import past_cone  # noqa: E402
from qmljob_training.engines.lightcone.engine import LightconeEngine, model_functions  # noqa: E402
from qmljob_training.engines.lightcone.formulation import formulate  # noqa: E402
from qmljob_training.engines.lightcone.fusion import fuse  # noqa: E402
from qmljob_training.engines.lightcone.lowering import lower  # noqa: E402
from qmljob_training.engines.protocol import CircuitModel  # noqa: E402
from qmljob_training.engines.tfq import TfqEngine  # noqa: E402
from qmljob_training.errors import ConfigurationError  # noqa: E402
from qmljob_training.quantum_layer import circuit_model  # noqa: E402
from qmljob_training.testing.engine_contract import reference_values  # noqa: E402
from qmljob_training.workloads import cluster_excitation, qcnn_circuits  # noqa: E402
from support.random_circuits import random_model  # noqa: E402

S, T = sympy.symbols("s t")
Q = cirq.LineQubit.range(6)
RING = [cirq.CZ(Q[index], Q[(index + 1) % 6]) for index in range(6)]


@pytest.mark.parametrize(
    ("operations", "observable", "qubits"),
    [
        pytest.param([], cirq.Z(Q[0]), [0], id="no gates"),
        pytest.param([cirq.X(Q[1]) ** S], cirq.Z(Q[0]), [0], id="a gate elsewhere"),
        pytest.param([cirq.CX(Q[0], Q[1]), cirq.CX(Q[1], Q[2])], cirq.Z(Q[2]), [0, 1, 2], id="a chain forwards"),
        pytest.param([cirq.CX(Q[1], Q[2]), cirq.CX(Q[0], Q[1])], cirq.X(Q[2]), [1, 2], id="a gate that comes too late"),
        pytest.param([cirq.X(Q[0]), cirq.CZ(Q[0], Q[1])], cirq.Z(Q[0]), [0], id="diagonal with the observable"),
        pytest.param([cirq.H(Q[0]), cirq.CZ(Q[0], Q[1])], cirq.X(Q[0]), [0, 1], id="diagonal, the observable is not"),
        pytest.param(RING, cirq.X(Q[2]), [1, 2, 3], id="a ring of CZ: the neighbours only"),
        pytest.param([cirq.CZ(Q[1], Q[2]), cirq.CX(Q[0], Q[1])], cirq.Z(Q[0]), [0], id="the control of a CX"),
    ],
)
def test_the_qubits_of_a_light_cone(operations, observable, qubits: list[int]) -> None:
    circuit = cirq.Circuit()
    circuit.append(operations, cirq.InsertStrategy.NEW)
    cone = past_cone(lower(circuit), [cirq.PauliString(observable)])
    assert [qubit.x for qubit in cone.qubits] == qubits


@pytest.mark.parametrize(
    ("operations", "sizes"),
    [
        pytest.param([cirq.H(Q[0]), cirq.X(Q[0]) ** S, cirq.Z(Q[0])], [1], id="one qubit"),
        pytest.param([cirq.H(Q[0]), cirq.H(Q[1]), cirq.CX(Q[0], Q[1]) ** S, cirq.Y(Q[1]) ** T], [2], id="around two"),
        pytest.param([cirq.CX(Q[0], Q[1]), cirq.CX(Q[1], Q[2]), cirq.X(Q[0])], [2, 2], id="back into an older block"),
        pytest.param([cirq.rx(sympy.Symbol("a"))(Q[0]), cirq.X(Q[0]) ** S], [1, 1], id="features stay apart"),
        pytest.param([cirq.CCX(*Q[:3]) ** S, cirq.X(Q[1])], [3], id="a gate on three qubits"),
    ],
)
def test_what_is_fused(operations, sizes: list[int]) -> None:
    blocks = fuse(lower(cirq.Circuit(operations)), {"a"})
    assert [len(block.qubits) for block in blocks] == sizes


def qcnn_model(qubits: int) -> CircuitModel:
    bits = cluster_excitation.register(qubits)
    return circuit_model(
        cluster_excitation.encoding(bits),
        qcnn_circuits.multi_readout(bits),
        [cirq.Z(bit) for bit in bits[qubits // 2 :]],
        cluster_excitation.feature_symbols(qubits),
    )


def test_readouts_of_the_network_that_look_alike_are_computed_together() -> None:
    found = formulate(qcnn_model(23))
    assert found.heisenberg is not None
    # Sources at even and at odd places, the two at the open ends, and the sink without a source.
    assert sorted(len(group.members) for group in found.heisenberg.groups) == [1, 1, 1, 4, 5]
    assert all(group.plan.example_operations < 2_000 for group in found.heisenberg.groups)


@pytest.mark.parametrize("qubits", [8, 12])
def test_the_networks_values_and_gradient_are_those_of_tfq(qubits: int) -> None:
    model, numbers = qcnn_model(qubits), np.random.default_rng(1)
    features = tf.constant(numbers.uniform(-3, 3, (2, qubits)), tf.float32)
    weights = tf.constant(numbers.uniform(0, 2, len(model.weight_symbols)), tf.float32)
    found = []
    for engine in (LightconeEngine(), TfqEngine()):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            values = engine.expectation(model)(features, weights)
        found.append((values.numpy(), tape.gradient(values, weights).numpy()))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-5)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=3e-4, atol=3e-4)


def test_the_network_at_23_qubits_is_right_on_the_qubits_of_each_cone() -> None:
    model, numbers = qcnn_model(23), np.random.default_rng(2)
    features = numbers.uniform(-3, 3, (1, 23))
    weights = numbers.uniform(0, 2, len(model.weight_symbols))
    functions = model_functions(model, "auto", 8)
    values = functions.values(tf.constant(features), tf.constant(weights))[0].numpy()[0]
    whole = cirq.Circuit((model.encoding + model.ansatz).all_operations())
    for index in (0, 4, 9, 10, 11):
        # By graph alone: every operation from which a path of gates leads to the readout; CZ gates of the ring commute.
        (string,) = model.observables[index]
        kept, reached = [], set(string.qubits)
        for operation in reversed(list(model.ansatz.all_operations())):
            if reached & set(operation.qubits):
                kept.insert(0, operation)
                reached |= set(operation.qubits)
        first = [each for each in model.encoding.all_operations() if reached & set(each.qubits)]
        beside = {qubit for each in first for qubit in each.qubits} - reached
        circuit = cirq.Circuit(cirq.H.on_each(sorted(beside)), *first, *kept)
        small = CircuitModel(circuit, cirq.Circuit(), (model.observables[index],), (), ())
        named = dict(zip(model.feature_symbols, features[0], strict=True))
        named |= dict(zip(model.weight_symbols, weights, strict=True))
        resolved = cirq.resolve_parameters(small.encoding, named)
        assert len(resolved.all_qubits()) <= 12 < len(whole.all_qubits())
        small = CircuitModel(resolved, cirq.Circuit(), small.observables, (), ())
        expected = reference_values(small, np.zeros((1, 0)), np.zeros(0))[0, 0]
        assert values[index] == pytest.approx(expected, abs=1e-9)


def test_large_registers_examples_one_by_one_and_wide_blocks_change_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    model, numbers = random_model(11, 4, 10), np.random.default_rng(3)
    sizes = (3, len(model.feature_symbols)), (len(model.weight_symbols),), (3, 2)
    features, weights, upstream = (tf.constant(numbers.uniform(-1, 1, size)) for size in sizes)

    def computed() -> list[tf.Tensor]:
        functions = model_functions(model, "state", 8)
        values, kept = functions.values(features, weights)
        gradients = [functions.weight_gradient, functions.feature_gradient]
        return [values, *(gradient(features, weights, upstream, kept) for gradient in gradients)]

    batched = computed()
    monkeypatch.setattr(statevector, "ONE_BY_ONE", 1)
    monkeypatch.setattr(formulation, "WIDE_FROM", 1)
    for one, other in zip(batched, computed(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize(
    ("encoding", "ansatz"), [([], []), ([cirq.rx(sympy.Symbol("a"))(Q[0])], []), ([], [cirq.X(Q[0]) ** S])]
)
@pytest.mark.parametrize("batch", [0, 2])
def test_empty_circuits_and_empty_batches(encoding, ansatz, batch: int) -> None:
    model = circuit_model(cirq.Circuit(encoding), cirq.Circuit(ansatz), [cirq.Z(Q[0]), cirq.PauliSum() + 0.5])
    features = tf.zeros((batch, len(model.feature_symbols)), tf.float64)
    weights = tf.zeros(len(model.weight_symbols), tf.float64)
    functions = model_functions(model, "auto", 8)
    values, kept = functions.values(features, weights)
    np.testing.assert_allclose(values, np.tile([1.0, 0.5], (batch, 1)))
    gradient = functions.weight_gradient(features, weights, tf.ones((batch, 2), tf.float64), kept)
    assert gradient.shape == weights.shape


class NotUnitary(cirq.Gate):
    def _num_qubits_(self) -> int:
        return 1

    def __str__(self) -> str:
        return "halve"


START = "engine lightcone can't simulate this circuit: "
REFUSED = [
    pytest.param(
        cirq.measure(Q[0], key="m"),
        "cirq.MeasurementGate(1, cirq.MeasurementKey(name='m'), ())(q(0)): it is not unitary; remove it",
        id="a measurement",
    ),
    pytest.param(cirq.depolarize(0.1)(Q[0]), "depolarize(p=0.1)(q(0)): it is not unitary; remove it", id="a channel"),
    pytest.param(NotUnitary()(Q[0]), "halve(q(0)): it is not unitary; remove it", id="a gate without a matrix"),
    pytest.param(
        cirq.IdentityGate(qid_shape=(3,))(cirq.LineQid(0, 3)),
        "I(q(0) (d=3)): it acts on a qudit; use qubits",
        id="a qudit",
    ),
    pytest.param(
        cirq.X(Q[0]) ** (S * T),
        "X**s*t(q(0)): s*t is not linear in its symbols; use sums of scaled symbols",
        id="a product of symbols",
    ),
    pytest.param(
        cirq.X(Q[0]) ** (S**2),
        "X**s**2(q(0)): s**2 is not linear in its symbols; use sums of scaled symbols",
        id="a square",
    ),
]


@pytest.mark.parametrize(("operation", "message"), REFUSED)
def test_what_cannot_be_simulated_is_refused_in_a_line(operation: cirq.Operation, message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        lower(cirq.Circuit(operation))
    assert str(refusal.value) == START + message


def test_a_register_that_does_not_fit_is_refused_before_anything_is_allocated() -> None:
    bits = cirq.LineQubit.range(40)
    layers = [[cirq.X(bit) ** S for bit in bits], [cirq.CX(*pair) for pair in pairwise(bits)]] * 2
    model = circuit_model(cirq.Circuit(), cirq.Circuit(layers), [cirq.Z(bits[-1])])
    with pytest.raises(ConfigurationError) as refusal:
        LightconeEngine(method="state").expectation(model)
    assert "GiB for the state vectors of one example: a readout depends on 40 qubits" in str(refusal.value)
    with pytest.raises(ConfigurationError, match=r"needs 0\.0625 GiB .* has 0\.0156 GiB; use fewer qubits"):
        costs.check_memory(20, 16, present=2**24)
