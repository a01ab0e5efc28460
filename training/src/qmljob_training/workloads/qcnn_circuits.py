"""The circuits of the quantum convolutional network: unitaries, convolution over the ring, pooling.

They are those of the TensorFlow Quantum QCNN tutorial, after Cong, Choi and Lukin 2019 (arXiv:1810.03787), down to its
use of symbols: a convolution is given 15, leaves the seventh unused and uses the tenth twice.

`symbols` are sympy symbols; a power `gate**t` is a rotation by t half turns, up to a global phase.
"""

from collections.abc import Sequence

import cirq
import sympy

CONVOLUTION_SYMBOLS = 15
POOLING_SYMBOLS = 6
LAYER_SYMBOLS = CONVOLUTION_SYMBOLS + POOLING_SYMBOLS

Bits = Sequence[cirq.Qid]
Symbols = Sequence[sympy.Symbol]


def ansatz_symbols(layers: int) -> list[sympy.Symbol]:
    """Returns the symbols of `layers` pairs of convolution and pooling, zero-padded so that they sort as they count."""
    return [sympy.Symbol(f"qconv{index:03d}") for index in range(layers * LAYER_SYMBOLS)]


def one_qubit_unitary(bit: cirq.Qid, symbols: Symbols) -> cirq.Circuit:
    """Z**c Y**b X**a for three symbols a, b, c: any one-qubit unitary, up to a phase."""
    a, b, c = symbols
    return cirq.Circuit(cirq.X(bit) ** a, cirq.Y(bit) ** b, cirq.Z(bit) ** c)


def two_qubit_unitary(bits: Bits, symbols: Symbols) -> cirq.Circuit:
    """An entangling ZZ, YY and XX between one-qubit unitaries, from 15 symbols.

    As in the tutorial the entangling gates take symbols 7, 8 and 9: 6 is unused, and 9 also begins the last unitary of
    the first qubit.
    """
    first, second = bits
    return cirq.Circuit(
        one_qubit_unitary(first, symbols[0:3]),
        one_qubit_unitary(second, symbols[3:6]),
        cirq.ZZ(first, second) ** symbols[7],
        cirq.YY(first, second) ** symbols[8],
        cirq.XX(first, second) ** symbols[9],
        one_qubit_unitary(first, symbols[9:12]),
        one_qubit_unitary(second, symbols[12:15]),
    )


def two_qubit_pool(source: cirq.Qid, sink: cirq.Qid, symbols: Symbols) -> cirq.Circuit:
    """Moves what matters of `source` into `sink`: a CNOT between two trained bases, from 6 symbols."""
    sink_basis = one_qubit_unitary(sink, symbols[0:3])
    source_basis = one_qubit_unitary(source, symbols[3:6])
    return cirq.Circuit(sink_basis, source_basis, cirq.CNOT(source, sink), sink_basis**-1)


def convolution(bits: Bits, symbols: Symbols) -> cirq.Circuit:
    """The same two-qubit unitary on all neighbours of the ring (see `neighbours`)."""
    return cirq.Circuit(two_qubit_unitary(pair, symbols) for pair in neighbours(bits))


def neighbours(bits: Bits) -> list[tuple[cirq.Qid, cirq.Qid]]:
    """Returns the pairs of a ring: even pairs first, then odd pairs.

    With an odd number of bits the pair that closes the ring is left out, as `zip` does in the tutorial.
    """
    even = zip(bits[0::2], bits[1::2], strict=False)
    odd = zip(bits[1::2], [*bits[2::2], bits[0]], strict=False)
    return [*even, *odd]


def pooling(sources: Bits, sinks: Bits, symbols: Symbols) -> cirq.Circuit:
    """Pools sources[i] into sinks[i]; where there is one sink more than sources, it stays as it is."""
    return cirq.Circuit(two_qubit_pool(*pair, symbols) for pair in zip(sources, sinks, strict=False))


def layer(bits: Bits, symbols: Symbols) -> cirq.Circuit:
    """A convolution of `bits`, then the pooling of their first half into their second, from 21 symbols."""
    half = len(bits) // 2
    return cirq.Circuit(
        convolution(bits, symbols[:CONVOLUTION_SYMBOLS]),
        pooling(bits[:half], bits[half:], symbols[CONVOLUTION_SYMBOLS:LAYER_SYMBOLS]),
    )


def multi_readout(bits: Bits) -> cirq.Circuit:
    """One layer; the second half of `bits` is read."""
    return layer(bits, ansatz_symbols(1))


def purely_quantum(bits: Bits) -> cirq.Circuit:
    """Layers until one bit, the last, is left; their number must be a power of two."""
    rounds = len(bits).bit_length() - 1
    symbols = ansatz_symbols(rounds)
    circuit = cirq.Circuit()
    remaining = list(bits)
    for index in range(rounds):
        circuit += layer(remaining, symbols[index * LAYER_SYMBOLS : (index + 1) * LAYER_SYMBOLS])
        remaining = remaining[len(remaining) // 2 :]
    return circuit


class Block(cirq.Gate):
    """A two-qubit circuit that is drawn as one box.

    Args:
        wires: what is drawn on the first and the second qubit.
        circuit: on LineQubit 0 and 1.
    """

    def __init__(self, wires: tuple[str, str], circuit: cirq.Circuit) -> None:
        self.wires = wires
        self.circuit = circuit

    def _num_qubits_(self) -> int:
        return 2

    def _decompose_(self, qubits: Bits) -> list[cirq.Operation]:
        placed = self.circuit.transform_qubits(dict(zip(cirq.LineQubit.range(2), qubits, strict=True)))
        return list(placed.all_operations())

    def _circuit_diagram_info_(self, args: cirq.CircuitDiagramInfoArgs) -> cirq.CircuitDiagramInfo:
        return cirq.CircuitDiagramInfo(wire_symbols=self.wires)


def blocks(bits: Bits, layers: int) -> cirq.Circuit:
    """The ansatz of `layers` layers, with boxes for two-qubit unitaries (U) and poolings (P; the dot is the source)."""
    circuit, symbols = cirq.Circuit(), ansatz_symbols(layers)
    first, second = cirq.LineQubit.range(2)
    for index in range(layers):
        own = symbols[index * LAYER_SYMBOLS : (index + 1) * LAYER_SYMBOLS]
        number = str(index + 1) if layers > 1 else ""
        unitary = Block((f"U{number}", f"U{number}"), two_qubit_unitary((first, second), own[:CONVOLUTION_SYMBOLS]))
        pool = Block(("@", f"P{number}"), two_qubit_pool(first, second, own[CONVOLUTION_SYMBOLS:]))
        half = len(bits) // 2
        circuit.append(unitary(*both) for both in neighbours(bits))
        circuit.append(pool(*both) for both in zip(bits[:half], bits[half:], strict=False))
        bits = bits[half:]
    return circuit
