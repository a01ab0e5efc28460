"""Turns Cirq's operations into primitives: matrices that depend on one angle, which is affine in the symbols.

A primitive is U(e) = sum_k exp(i pi h_k e) P_k, with constant matrices P_k and an exponent e that is a sum of scaled
symbols and a constant. Cirq's `EigenGate`s are of this form (P_k projects on an eigenspace), and so are their
controlled versions; other gates decompose into them. This makes every derivative, and the change to Pauli transfer
matrices, one rule for all gates.
"""

from dataclasses import dataclass
from typing import Any

import cirq
import numpy as np
import sympy
from numpy.typing import NDArray

from qmljob_training.errors import ConfigurationError

MAX_GATE_QUBITS = 5
"""A gate that Cirq can't decompose is one matrix; larger ones than this are refused."""
ALWAYS_UNITARY = (cirq.EigenGate, cirq.PhasedXPowGate, cirq.FSimGate)


@dataclass(frozen=True)
class Affine:
    """constant + sum of scale * symbol; symbols sorted by name, none with scale 0."""

    terms: tuple[tuple[str, float], ...] = ()
    constant: float = 0.0


@dataclass(frozen=True, eq=False)
class Primitive:
    """sum_k exp(i pi frequencies[k] * exponent) matrices[k], on `qubits` (the first is the most significant).

    Attributes:
        frequencies: float64 [components], in half turns for each unit of the exponent.
        matrices: complex128 [components, 2**qubits, 2**qubits].
    """

    qubits: tuple[cirq.Qid, ...]
    exponent: Affine
    frequencies: NDArray[np.float64]
    matrices: NDArray[np.complex128]

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.exponent.terms)

    def unitary(self, exponent: float) -> NDArray[np.complex128]:
        """Returns the matrix at a number in the place of the exponent."""
        phases = np.exp(1j * np.pi * self.frequencies * exponent)
        return np.asarray(np.einsum("k,kij->ij", phases, self.matrices), np.complex128)

    def key(self) -> tuple[Any, ...]:
        """Equal for primitives that are the same matrix for all values of the symbols, whatever their qubits."""
        return (self.exponent, self.frequencies.tobytes(), self.matrices.tobytes())


def lower(circuit: cirq.Circuit) -> tuple[Primitive, ...]:
    """Returns the primitives of a circuit, in order.

    Raises:
        ConfigurationError: an operation is not unitary, acts on qudits, or has an exponent that is not affine.
    """
    return tuple(primitive for operation in circuit.all_operations() for primitive in _lower(operation, operation))


def _lower(operation: cirq.Operation, whole: cirq.Operation) -> list[Primitive]:
    """Returns the primitives of `operation`, a part of `whole`, which messages name."""
    operation = operation.untagged
    _check_unitary(operation, whole)
    if isinstance(operation, cirq.ControlledOperation):
        inner = _lower(operation.sub_operation, whole)
        return [_controlled(primitive, operation.controls, operation.control_values) for primitive in inner]
    gate = operation.gate
    if isinstance(gate, cirq.ControlledGate):
        count = gate.num_controls()
        inner = _lower(gate.sub_gate.on(*operation.qubits[count:]), whole)
        return [_controlled(primitive, operation.qubits[:count], gate.control_values) for primitive in inner]
    # A phased gate has a second angle, which its eigenspaces depend on.
    if isinstance(gate, cirq.EigenGate) and not isinstance(gate, cirq.PhasedISwapPowGate):
        return [_from_eigenspaces(gate, operation.qubits, whole)]
    known = isinstance(gate, ALWAYS_UNITARY)
    if not known and not cirq.is_parameterized(operation) and len(operation.qubits) <= MAX_GATE_QUBITS:
        matrix = np.asarray(cirq.unitary(operation), np.complex128)
        return [Primitive(operation.qubits, Affine(), np.zeros(1), matrix[np.newaxis])]
    parts = cirq.decompose_once(operation, None)
    if parts is None or operation in parts:
        raise _refusal(
            whole, f"a gate on {len(operation.qubits)} qubits that can't be decomposed", "give smaller gates"
        )
    return [primitive for part in parts for primitive in _lower(part, whole)]


def _check_unitary(operation: cirq.Operation, whole: cirq.Operation) -> None:
    if any(dimension != 2 for dimension in cirq.qid_shape(operation)):
        raise _refusal(whole, "it acts on a qudit", "use qubits")
    if isinstance(operation, cirq.ClassicallyControlledOperation) or cirq.is_measurement(operation):
        raise _refusal(whole, "it is not unitary", "remove it")
    # Unitary by construction; Cirq is wrong about some of them where a sympy number is the exponent.
    if isinstance(operation.gate, ALWAYS_UNITARY):
        return
    names = cirq.parameter_names(operation)
    if not cirq.has_unitary(cirq.resolve_parameters(operation, dict.fromkeys(names, 0.25))):
        raise _refusal(whole, "it is not unitary", "remove it")


def _from_eigenspaces(gate: cirq.EigenGate, qubits: tuple[cirq.Qid, ...], whole: cirq.Operation) -> Primitive:
    components = [(float(turns) + gate.global_shift, projector) for turns, projector in gate._eigen_components()]
    return Primitive(
        qubits,
        affine(gate.exponent, whole),
        np.array([turns for turns, _ in components]),
        np.array([projector for _, projector in components], np.complex128),
    )


def _controlled(inner: Primitive, controls: tuple[cirq.Qid, ...], values: cirq.ops.AbstractControlValues) -> Primitive:
    """Returns |c><c| x inner + (1 - |c><c|) x 1, summed over the control values c that switch it on."""
    if len(controls) + len(inner.qubits) > 2 * MAX_GATE_QUBITS:
        raise ConfigurationError(
            f"engine lightcone can't simulate this circuit: a gate with {len(controls)} controls is one matrix on "
            f"{len(controls) + len(inner.qubits)} qubits; give gates on {2 * MAX_GATE_QUBITS} qubits or fewer"
        )
    size = 2 ** len(controls)
    on = np.zeros(size)
    for row in values.expand():
        on[int("".join(str(bit) for bit in row), 2)] = 1.0
    projected = [np.kron(np.diag(on), matrix) for matrix in inner.matrices]
    rest = np.kron(np.diag(1.0 - on), np.eye(inner.matrices.shape[-1]))
    return Primitive(
        (*controls, *inner.qubits),
        inner.exponent,
        np.append(inner.frequencies, 0.0),
        np.array([*projected, rest], np.complex128),
    )


def affine(expression: Any, operation: cirq.Operation) -> Affine:
    """Reads an exponent: a number, or a sympy expression that is a sum of scaled symbols and a number.

    Raises:
        ConfigurationError: it is not such a sum, or a coefficient is not a finite real number.
    """
    if not isinstance(expression, sympy.Basic):
        return Affine(constant=_number(expression, operation))
    symbols = sorted(expression.free_symbols, key=str)
    scales = [sympy.diff(expression, symbol) for symbol in symbols]
    if any(scale.free_symbols for scale in scales):
        raise _refusal(operation, f"{expression} is not linear in its symbols", "use sums of scaled symbols")
    terms = ((str(symbol), _number(scale, operation)) for symbol, scale in zip(symbols, scales, strict=True))
    constant = _number(expression.subs(dict.fromkeys(symbols, 0)), operation)
    return Affine(tuple(term for term in terms if term[1] != 0.0), constant)


def _number(value: Any, operation: cirq.Operation) -> float:
    number = complex(value)
    if number.imag != 0.0 or not np.isfinite(number.real):
        raise _refusal(operation, f"{value} is not a finite real number", "use real exponents")
    return number.real


def _refusal(operation: cirq.Operation, reason: str, advice: str) -> ConfigurationError:
    text = " ".join(str(operation).split())
    return ConfigurationError(f"engine lightcone can't simulate this circuit: {text}: {reason}; {advice}")
