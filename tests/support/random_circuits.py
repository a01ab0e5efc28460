"""Random circuits of all gates that TensorFlow Quantum accepts, with shared, scaled and shifted symbols."""

import cirq
import numpy as np
import sympy

from qmljob_training.engines.protocol import CircuitModel
from qmljob_training.quantum_layer import circuit_model

FEATURES = sympy.symbols("a b")
WEIGHTS = sympy.symbols("s t u v")
ONE = (cirq.XPowGate, cirq.YPowGate, cirq.ZPowGate, cirq.HPowGate)
TWO = (
    cirq.XXPowGate,
    cirq.YYPowGate,
    cirq.ZZPowGate,
    cirq.CZPowGate,
    cirq.CNotPowGate,
    cirq.SwapPowGate,
    cirq.ISwapPowGate,
)


def exponent(numbers: np.random.Generator, symbols: tuple[sympy.Symbol, ...]) -> object:
    """A number, a symbol, a scaled or negated one, one with a number added, or a sum of two."""
    number = round(float(numbers.uniform(-2, 2)), 3)
    one, other = numbers.choice(len(symbols), 2)
    forms = (
        number,
        symbols[one],
        symbols[one] * number,
        -symbols[one],
        symbols[one] + number,
        symbols[one] + 2 * symbols[other],
    )
    return forms[numbers.integers(len(forms))]


def operation(
    numbers: np.random.Generator, qubits: list[cirq.Qid], symbols: tuple[sympy.Symbol, ...]
) -> cirq.Operation:
    """One gate on some of the qubits, of which there are at least one."""
    order = [qubits[index] for index in numbers.permutation(len(qubits))]
    angle, phase = exponent(numbers, symbols), exponent(numbers, symbols)
    shift = float(numbers.choice([0.0, -0.5, 0.25]))
    one = [kind(exponent=angle, global_shift=shift) for kind in ONE]
    one += [cirq.rx(angle), cirq.ry(angle), cirq.rz(angle), cirq.I, cirq.H, cirq.T]
    one += [cirq.PhasedXPowGate(phase_exponent=phase, exponent=angle, global_shift=shift)]
    two = [kind(exponent=angle, global_shift=shift) for kind in TWO]
    two += [
        cirq.FSimGate(angle, phase),
        cirq.PhasedISwapPowGate(phase_exponent=phase, exponent=angle),
        cirq.IdentityGate(2),
    ]
    which = numbers.integers(8)
    if len(order) == 1 or which < 3:
        return one[numbers.integers(len(one))].on(order[0])
    if which < 6:
        return two[numbers.integers(len(two))].on(*order[:2])
    if which == 6 or len(order) == 2:
        values = [int(numbers.integers(2))]
        return one[numbers.integers(len(one))].on(order[0]).controlled_by(order[1], control_values=values)
    values = [int(value) for value in numbers.integers(2, size=1)]
    return two[numbers.integers(len(two))].on(*order[:2]).controlled_by(order[2], control_values=values)


def pauli_sum(numbers: np.random.Generator, qubits: list[cirq.Qid]) -> cirq.PauliSum:
    """Some Pauli strings with real factors, at times an identity."""
    total = cirq.PauliSum()
    for _ in range(numbers.integers(1, 4)):
        on = [
            qubits[index] for index in numbers.permutation(len(qubits))[: numbers.integers(0, min(3, len(qubits)) + 1)]
        ]
        letters = [cirq.X, cirq.Y, cirq.Z]
        string = cirq.PauliString({qubit: letters[numbers.integers(3)] for qubit in on})
        total += round(float(numbers.uniform(-1, 1)), 3) * string
    return total


def random_model(seed: int, qubits: int, depth: int) -> CircuitModel:
    """A model on up to `qubits` qubits; one more is there for observables alone."""
    numbers = np.random.default_rng(seed)
    register = cirq.LineQubit.range(qubits)
    encoding = cirq.Circuit(operation(numbers, register, FEATURES) for _ in range(depth // 2))
    ansatz = cirq.Circuit(operation(numbers, register, WEIGHTS) for _ in range(depth))
    observables = [pauli_sum(numbers, [*register, cirq.LineQubit(qubits)]) for _ in range(2)]
    return circuit_model(encoding, ansatz, observables)
