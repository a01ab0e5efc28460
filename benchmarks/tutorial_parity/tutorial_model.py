"""The model and the data of the public TensorFlow Quantum multi-worker tutorial, in its published construction.

Written anew from the published description, so that a plain `tf.keras` program stands beside this project's own: it
shares no code with it. Terms: `n` examples, 8 qubits, angles in radians.

Import this module only after a `MultiWorkerMirroredStrategy` has been created (where there is one): TensorFlow
Quantum loads its operations on import, and the strategy must configure the runtime first.
"""

from dataclasses import dataclass
from typing import Any

import cirq
import numpy as np
import sympy
import tensorflow as tf
import tensorflow_quantum as tfq
from numpy.typing import NDArray

QUBITS = cirq.GridQubit.rect(1, 8)
TRAIN_FRACTION = 0.7
PARAMETERS = 69
"""20 circuit symbols (of 21 named, one is never used), 4*8 + 8 for the first dense layer, 8 + 1 for the second."""


@dataclass(frozen=True)
class Split:
    """Serialised circuits (string tensor of shape [n]) and their labels (±1, float32 of shape [n])."""

    circuits: tf.Tensor
    labels: NDArray[np.float32]


@dataclass(frozen=True)
class Data:
    """A data set in the order of its making: the first 70 % train, the rest test, nothing shuffled."""

    train: Split
    test: Split


def make_data(features: NDArray[np.float32], labels: NDArray[np.float32]) -> Data:
    """Serialises an x rotation for each non-zero angle and splits the examples 70/30 in their order."""
    circuits = tfq.convert_to_tensor([excitation(row) for row in features])
    split = int(len(labels) * TRAIN_FRACTION)
    return Data(Split(circuits[:split], labels[:split]), Split(circuits[split:], labels[split:]))


def excitation(angles: NDArray[np.float32]) -> cirq.Circuit:
    """Returns the circuit of one example; angles of zero are left out (all zero: one rotation by zero)."""
    rotated = np.flatnonzero(angles)
    chosen = rotated if len(rotated) else np.array([0])
    return cirq.Circuit(cirq.rx(float(angles[index]))(QUBITS[index]) for index in chosen)


def cluster_state() -> cirq.Circuit:
    """Returns the circuit that prepares a cluster state on the ring of qubits."""
    ring = zip(QUBITS, [*QUBITS[1:], QUBITS[0]], strict=True)
    return cirq.Circuit(cirq.H.on_each(QUBITS), (cirq.CZ(left, right) for left, right in ring))


def one_qubit(qubit: cirq.Qid, symbols: tuple[sympy.Symbol, ...]) -> cirq.Circuit:
    """Returns powers of X, Y and Z by three symbols."""
    gates = zip((cirq.X, cirq.Y, cirq.Z), symbols, strict=True)
    return cirq.Circuit(gate(qubit) ** symbol for gate, symbol in gates)


def two_qubit(first: cirq.Qid, second: cirq.Qid, symbols: tuple[sympy.Symbol, ...]) -> cirq.Circuit:
    """Returns the two-qubit unitary of 15 symbols.

    The published slices are kept although they leave symbol 6 unused and use symbol 9 twice: both are part of the
    model whose numbers are compared.
    """
    interaction = cirq.Circuit(
        cirq.ZZ(first, second) ** symbols[7],
        cirq.YY(first, second) ** symbols[8],
        cirq.XX(first, second) ** symbols[9],
    )
    circuit: cirq.Circuit = one_qubit(first, symbols[0:3]) + one_qubit(second, symbols[3:6])
    circuit += interaction
    circuit += one_qubit(first, symbols[9:12]) + one_qubit(second, symbols[12:15])
    return circuit


def pool(source: cirq.Qid, sink: cirq.Qid, symbols: tuple[sympy.Symbol, ...]) -> cirq.Circuit:
    """Returns the pooling of one qubit into another: bases, CNOT, and the sink's basis undone."""
    sink_basis = one_qubit(sink, symbols[0:3])
    circuit: cirq.Circuit = sink_basis + one_qubit(source, symbols[3:6])
    # Positional: cirq 1.5 no longer takes CNOT's qubits by the names that the tutorial used.
    circuit += cirq.CNOT(source, sink)
    circuit += sink_basis**-1
    return circuit


def ansatz() -> cirq.Circuit:
    """Returns one convolution over the ring and one pooling of the first four qubits into the last four."""
    symbols = sympy.symbols("qconv0:21")
    pairs = [
        *zip(QUBITS[0::2], QUBITS[1::2], strict=True),
        *zip(QUBITS[1::2], [*QUBITS[2::2], QUBITS[0]], strict=True),
    ]
    circuit = cirq.Circuit()
    for first, second in pairs:
        circuit += two_qubit(first, second, symbols[0:15])
    for source, sink in zip(QUBITS[:4], QUBITS[4:], strict=True):
        circuit += pool(source, sink, symbols[15:21])
    return circuit


def build_model(learning_rate: float) -> Any:
    """Returns the compiled Keras model: AddCircuit, PQC with four Z readouts, Dense(8), Dense(1).

    The tutorial also asks Keras for `accuracy`, which says nothing about labels of ±1 and does not touch training; it
    is left out.
    """
    circuits = tf.keras.Input(shape=(), dtype=tf.string)
    prepared = tfq.layers.AddCircuit()(circuits, prepend=cluster_state())
    readouts = tfq.layers.PQC(
        ansatz(),
        [cirq.Z(qubit) for qubit in QUBITS[4:]],
        initializer=tf.keras.initializers.RandomUniform(0, 2 * np.pi),
    )(prepared)
    outputs = tf.keras.layers.Dense(1)(tf.keras.layers.Dense(8)(readouts))
    model = tf.keras.Model(inputs=[circuits], outputs=[outputs])
    if model.count_params() != PARAMETERS:
        raise AssertionError(f"the model has {model.count_params()} parameters, the published one {PARAMETERS}")
    model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate), loss=tf.losses.mse)
    return model


def mean_squared_error(model: Any, split: Split) -> float:
    """Returns the mean of the squared errors over all examples of a split, as the tutorial's inference does."""
    return float(np.mean(np.square(predict(model, split) - split.labels)))


def sign_accuracy(model: Any, split: Split) -> float:
    """Returns the fraction of examples whose prediction has the label's sign."""
    return float(np.mean(np.sign(predict(model, split)) == split.labels))


def predict(model: Any, split: Split) -> NDArray[np.float32]:
    """Returns the model's outputs for a split, shape [n]."""
    outputs: NDArray[np.float32] = model(split.circuits).numpy().reshape(-1)
    return outputs
