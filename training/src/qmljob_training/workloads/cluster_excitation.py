"""The data set of the TensorFlow Quantum QCNN tutorial: cluster states, one qubit of each rotated about X.

Example i rotates qubit i mod n by an angle drawn uniformly from [-pi, pi); its label is 1 where |angle| <= pi/2
("not excited") and -1 elsewhere. The first 70 % are the training split. A cluster state (Briegel and Raussendorf 2001)
has every qubit in |+> and a CZ between neighbours on a ring.
"""

import cirq
import numpy as np
import sympy

from qmljob_training.workloads.protocol import DataSet, Split, WorkloadOptions

TRAIN_SHARE = 0.7
_DATA_STREAM = 0


def register(qubits: int) -> list[cirq.GridQubit]:
    """Returns the qubits, in a row."""
    return cirq.GridQubit.rect(1, qubits)


def feature_symbols(qubits: int) -> tuple[str, ...]:
    """Returns the names of the encoding's symbols: one rotation angle a qubit, in radians."""
    return tuple(f"angle{index:03d}" for index in range(qubits))


def cluster_state(bits: list[cirq.GridQubit]) -> cirq.Circuit:
    """Prepares the cluster state on a ring from |0...0>."""
    neighbours = zip(bits, [*bits[1:], bits[0]], strict=True)
    return cirq.Circuit(cirq.H.on_each(bits), (cirq.CZ(one, other) for one, other in neighbours))


def encoding(bits: list[cirq.GridQubit]) -> cirq.Circuit:
    """Prepares an example: the cluster state, then each qubit's rotation (by 0 on all but one)."""
    angles = feature_symbols(len(bits))
    rotations = [cirq.rx(sympy.Symbol(angle))(bit) for angle, bit in zip(angles, bits, strict=True)]
    return cluster_state(bits) + cirq.Circuit(rotations)


def draw(qubits: int, examples: int, seed: int) -> Split:
    """Draws examples.

    Returns:
        features float32 [examples, qubits]: a row holds one angle in radians and zeros; labels float32 [examples].
    """
    angles = np.random.default_rng([seed, _DATA_STREAM]).uniform(-np.pi, np.pi, examples)
    features = np.zeros((examples, qubits), np.float32)
    features[np.arange(examples), np.arange(examples) % qubits] = angles
    return Split(features, np.where(np.abs(angles) <= np.pi / 2, 1.0, -1.0).astype(np.float32))


def data_set(options: WorkloadOptions) -> DataSet:
    """Returns the first 70 % of the drawn examples as the training split, the rest as the test split."""
    drawn = draw(options.qubits, options.examples, options.seed)
    cut = train_size(options.examples)
    return DataSet(
        train=Split(drawn.features[:cut], drawn.labels[:cut]), test=Split(drawn.features[cut:], drawn.labels[cut:])
    )


def train_size(examples: int) -> int:
    """Returns the size of the training split."""
    return int(examples * TRAIN_SHARE)
