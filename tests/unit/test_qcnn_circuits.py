"""The network's circuits against their formulas, and what they keep of the tutorial: symbol use, `zip` semantics."""

from collections import Counter
from collections.abc import Callable

import cirq
import numpy as np
import pytest
import scipy.linalg
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob_training.workloads import cluster_excitation, qcnn_circuits

properties = settings(derandomize=True, deadline=None, max_examples=25)

IDENTITY = np.eye(2)
PAULI = {
    "X": np.array([[0, 1], [1, 0]], complex),
    "Y": np.array([[0, -1j], [1j, 0]]),
    "Z": np.array([[1, 0], [0, -1]], complex),
}
CNOT = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])


def exponents(count: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(-2.0, 2.0, allow_subnormal=False), min_size=count, max_size=count)


def power(pauli: np.ndarray, exponent: float) -> np.ndarray:
    """P^t = exp(i pi t (1 - P) / 2) for a P with eigenvalues 1 and -1."""
    return scipy.linalg.expm(0.5j * np.pi * exponent * (np.eye(len(pauli)) - pauli))


def one_qubit(a: float, b: float, c: float) -> np.ndarray:
    return power(PAULI["Z"], c) @ power(PAULI["Y"], b) @ power(PAULI["X"], a)


def unitary(
    circuit: cirq.Circuit, qubits: list[cirq.Qid], symbols: list[sympy.Symbol], values: list[float]
) -> np.ndarray:
    resolved = cirq.resolve_parameters(circuit, dict(zip(symbols, values, strict=True)))
    return resolved.unitary(qubit_order=qubits)


def assert_unitary(matrix: np.ndarray) -> None:
    np.testing.assert_allclose(matrix @ matrix.conj().T, np.eye(len(matrix)), atol=1e-12)


def symbol_uses(circuit: cirq.Circuit) -> Counter[str]:
    return Counter(name for operation in circuit.all_operations() for name in cirq.parameter_names(operation))


@properties
@given(exponents(3))
def test_a_one_qubit_unitary_is_x_then_y_then_z(values: list[float]) -> None:
    bit, symbols = cirq.LineQubit(0), list(sympy.symbols("a b c"))
    found = unitary(qcnn_circuits.one_qubit_unitary(bit, symbols), [bit], symbols, values)
    np.testing.assert_allclose(found, one_qubit(*values), atol=1e-12)
    assert_unitary(found)


@properties
@given(exponents(15))
def test_a_two_qubit_unitary_is_its_product_of_exponentials(values: list[float]) -> None:
    bits, symbols = cirq.LineQubit.range(2), list(sympy.symbols("s:15"))
    found = unitary(qcnn_circuits.two_qubit_unitary(bits, symbols), bits, symbols, values)
    entangling = [
        power(np.kron(PAULI[name], PAULI[name]), values[index]) for name, index in (("Z", 7), ("Y", 8), ("X", 9))
    ]
    expected = (
        np.kron(one_qubit(*values[9:12]), one_qubit(*values[12:15]))
        @ entangling[2]
        @ entangling[1]
        @ entangling[0]
        @ np.kron(one_qubit(*values[0:3]), one_qubit(*values[3:6]))
    )
    np.testing.assert_allclose(found, expected, atol=1e-11)
    assert_unitary(found)


@properties
@given(exponents(6))
def test_a_pooling_is_a_cnot_between_two_trained_bases(values: list[float]) -> None:
    (source, sink), symbols = cirq.LineQubit.range(2), list(sympy.symbols("s:6"))
    found = unitary(qcnn_circuits.two_qubit_pool(source, sink, symbols), [source, sink], symbols, values)
    sink_basis, source_basis = one_qubit(*values[:3]), one_qubit(*values[3:])
    # The source keeps its new basis, the sink goes back to its own.
    expected = np.kron(IDENTITY, sink_basis.conj().T) @ CNOT @ np.kron(source_basis, sink_basis)
    np.testing.assert_allclose(found, expected, atol=1e-11)
    assert_unitary(found)


def test_a_convolution_leaves_its_seventh_symbol_unused_and_shares_its_tenth() -> None:
    symbols = list(sympy.symbols("s:15"))
    uses = symbol_uses(qcnn_circuits.two_qubit_unitary(cirq.LineQubit.range(2), symbols))
    assert uses == {f"s{index}": 2 if index == 9 else 1 for index in range(15) if index != 6}


def test_a_pooling_undoes_the_sinks_basis_with_the_same_symbols() -> None:
    uses = symbol_uses(qcnn_circuits.two_qubit_pool(*cirq.LineQubit.range(2), list(sympy.symbols("s:6"))))
    assert uses == {"s0": 2, "s1": 2, "s2": 2, "s3": 1, "s4": 1, "s5": 1}


# Qubits -> pairs of the convolution, pairs of the pooling (source, sink). The tutorial writes
#   zip(bits[0::2], bits[1::2]), zip(bits[1::2], bits[2::2] + [bits[0]]), zip(bits[:n // 2], bits[n // 2:])
# and zip ends with its shorter argument.
PAIRS = [
    pytest.param(3, [(0, 1), (1, 2)], [(0, 1)], id="3: no pair closes the ring, qubit 2 has no source"),
    pytest.param(4, [(0, 1), (2, 3), (1, 2), (3, 0)], [(0, 2), (1, 3)], id="4: the whole ring"),
    pytest.param(5, [(0, 1), (2, 3), (1, 2), (3, 4)], [(0, 2), (1, 3)], id="5: open, qubit 4 has no source"),
]


@pytest.mark.parametrize(("qubits", "convolved", "pooled"), PAIRS)
def test_small_registers_are_paired_as_zip_pairs_them(
    qubits: int, convolved: list[tuple[int, int]], pooled: list[tuple[int, int]]
) -> None:
    bits = cirq.LineQubit.range(qubits)
    pairs = [(one.x, other.x) for one, other in qcnn_circuits.neighbours(bits)]
    assert pairs == convolved
    assert two_qubit_pairs(qcnn_circuits.convolution(bits, qcnn_circuits.ansatz_symbols(1)[:15])) == set(convolved)
    half = qubits // 2
    pooling = qcnn_circuits.pooling(bits[:half], bits[half:], qcnn_circuits.ansatz_symbols(1)[15:])
    assert two_qubit_pairs(pooling) == set(pooled)


def two_qubit_pairs(circuit: cirq.Circuit) -> set[tuple[int, int]]:
    return {
        (operation.qubits[0].x, operation.qubits[1].x)
        for operation in circuit.all_operations()
        if len(operation.qubits) == 2
    }


@pytest.mark.parametrize(
    ("qubits", "convolved", "pooled", "readouts"),
    [
        (3, 2, 1, 2),
        (4, 4, 2, 2),
        (5, 4, 2, 3),
        (7, 6, 3, 4),
        (8, 8, 4, 4),
        (9, 8, 4, 5),
        (22, 22, 11, 11),
        (23, 22, 11, 12),
    ],
)
def test_pairs_and_readouts_of_a_register(qubits: int, convolved: int, pooled: int, readouts: int) -> None:
    bits = cirq.LineQubit.range(qubits)
    circuit = qcnn_circuits.multi_readout(bits)
    gates = Counter(type(operation.gate).__name__ for operation in circuit.all_operations())
    assert gates["ZZPowGate"] == gates["YYPowGate"] == gates["XXPowGate"] == convolved
    assert gates["_PauliX"] + gates["CXPowGate"] == pooled
    assert len(bits[qubits // 2 :]) == readouts


def past_light_cone(circuit: cirq.Circuit, readout: cirq.Qid) -> set[cirq.Qid]:
    """The qubits whose state before `circuit` can influence `readout` after it, by the graph of gates alone."""
    cone = {readout}
    for operation in reversed(list(circuit.all_operations())):
        if cone & set(operation.qubits):
            cone |= set(operation.qubits)
    return cone


def with_encoding(cone: set[cirq.GridQubit], bits: list[cirq.GridQubit]) -> set[cirq.GridQubit]:
    """The cone before the encoding. Its CZs commute, so that those outside of the cone cancel, whatever their order."""
    gates = [
        operation for operation in cluster_excitation.encoding(bits).all_operations() if len(operation.qubits) == 2
    ]
    return cone.union(*(gate.qubits for gate in gates if cone & set(gate.qubits)))


# The cone does not grow with the register: this is what makes 23 qubits as cheap as 12 for an engine that follows it.
@pytest.mark.parametrize(
    ("qubits", "of_ansatz", "with_it"),
    [
        pytest.param(8, [8] * 4, [8] * 4, id="8: the cone is the whole ring"),
        pytest.param(23, [8] * 9 + [7, 6, 3], [12] * 9 + [11, 10, 5], id="23: smaller near the open end"),
    ],
)
def test_light_cones_of_the_readouts(qubits: int, of_ansatz: list[int], with_it: list[int]) -> None:
    bits = cluster_excitation.register(qubits)
    cones = [past_light_cone(qcnn_circuits.multi_readout(bits), bit) for bit in bits[qubits // 2 :]]
    assert sorted(map(len, cones), reverse=True) == of_ansatz
    assert sorted((len(with_encoding(cone, bits)) for cone in cones), reverse=True) == with_it


def test_what_is_outside_of_a_light_cone_changes_nothing() -> None:
    bits = cluster_excitation.register(11)
    ansatz, readout = resolved(qcnn_circuits.multi_readout(bits)), bits[-1]
    cone = past_light_cone(ansatz, readout)
    for circuit, inside in (
        (ansatz, cone),
        (resolved(cluster_excitation.encoding(bits)) + ansatz, with_encoding(cone, bits)),
    ):
        outside, within = sorted(set(bits) - inside), sorted(inside)
        plain, changed, control = (
            expectation(
                cirq.Circuit(cirq.ry(0.7).on_each(turned), cirq.rz(0.4).on_each(turned)) + circuit, bits, readout
            )
            for turned in ([], outside, within)
        )
        assert outside
        assert changed == pytest.approx(plain, abs=1e-12)
        assert abs(control - plain) > 1e-3


def resolved(circuit: cirq.Circuit) -> cirq.Circuit:
    names = sorted(cirq.parameter_names(circuit))
    return cirq.resolve_parameters(
        circuit, dict(zip(names, np.random.default_rng(1).uniform(0, 2, len(names)), strict=True))
    )


def expectation(circuit: cirq.Circuit, bits: list[cirq.GridQubit], readout: cirq.GridQubit) -> float:
    state = cirq.Simulator(dtype=np.complex128).simulate(circuit, qubit_order=bits).final_state_vector
    positions = {bit: index for index, bit in enumerate(bits)}
    return float(cirq.Z(readout).expectation_from_state_vector(state, positions).real)


@pytest.mark.parametrize(
    ("build", "qubits", "parameters"),
    [
        # A layer is given 21 symbols (15 to the convolution, 6 to the pooling), of which the convolution uses 14.
        pytest.param(qcnn_circuits.multi_readout, 8, 20, id="one layer"),
        pytest.param(qcnn_circuits.multi_readout, 23, 20, id="one layer of any register"),
        pytest.param(qcnn_circuits.purely_quantum, 4, 40, id="two layers down to one qubit"),
        pytest.param(qcnn_circuits.purely_quantum, 8, 60, id="three layers: the tutorial's 63 symbols but three"),
        pytest.param(qcnn_circuits.purely_quantum, 16, 80, id="four layers"),
    ],
)
def test_symbols_that_the_circuits_use(
    build: Callable[[list[cirq.GridQubit]], cirq.Circuit], qubits: int, parameters: int
) -> None:
    names = cirq.parameter_names(build(cluster_excitation.register(qubits)))
    assert len(names) == parameters
    layers = parameters // 20
    given_symbols = [symbol.name for symbol in qcnn_circuits.ansatz_symbols(layers)]
    assert set(given_symbols) - names == {given_symbols[21 * layer + 6] for layer in range(layers)}


@pytest.mark.parametrize("layers", [1, 3, 10])
def test_symbols_sort_as_they_count(layers: int) -> None:
    # Keras layers made from circuits order weights by name: qconv10 would come before qconv2.
    names = [symbol.name for symbol in qcnn_circuits.ansatz_symbols(layers)]
    assert len(set(names)) == 21 * layers
    assert names == sorted(names)


@pytest.mark.parametrize("qubits", [4, 8])
def test_the_purely_quantum_network_pools_into_the_last_qubit(qubits: int) -> None:
    bits = cirq.LineQubit.range(qubits)
    circuit = qcnn_circuits.purely_quantum(bits)
    assert past_light_cone(circuit, bits[-1]) == set(bits)
    # The last gates are the inverse basis of the last sink, and nothing acts after them.
    assert {bit.x for operation in circuit[-3:].all_operations() for bit in operation.qubits} == {qubits - 1}


@pytest.mark.parametrize(
    ("build", "qubits", "layers"),
    [(qcnn_circuits.multi_readout, 5, 1), (qcnn_circuits.multi_readout, 4, 1), (qcnn_circuits.purely_quantum, 4, 2)],
)
def test_the_ansatz_drawn_in_blocks_is_the_ansatz(
    build: Callable[[list[cirq.GridQubit]], cirq.Circuit], qubits: int, layers: int
) -> None:
    bits = cluster_excitation.register(qubits)
    blocks = qcnn_circuits.blocks(bits, layers)
    decomposed = cirq.Circuit(cirq.decompose_once(block) for block in blocks.all_operations())
    assert cirq.parameter_names(decomposed) == cirq.parameter_names(build(bits))
    expected, found = (resolved(circuit).unitary(qubit_order=bits) for circuit in (build(bits), decomposed))
    np.testing.assert_allclose(found, expected, atol=1e-10)
