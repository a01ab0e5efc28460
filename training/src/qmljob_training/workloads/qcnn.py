"""Workloads `qcnn` and `qcnn-pure`: the quantum convolutional networks of the TensorFlow Quantum tutorial.

`qcnn` reads several qubits after one layer and ends in two dense layers; `qcnn-pure` halves the register until one
qubit is left and reads that.
"""

from dataclasses import dataclass
from typing import Any

import cirq
import numpy as np

from qmljob_training.circuits import circuit_model
from qmljob_training.engines.protocol import CircuitModel, Engine
from qmljob_training.errors import ConfigurationError
from qmljob_training.workloads import cluster_excitation, qcnn_circuits
from qmljob_training.workloads.protocol import DataSet, Split, WorkloadOptions

HIDDEN_UNITS = 8
_WEIGHTS_STREAM = 2


@dataclass(frozen=True)
class _QcnnBase:
    """What both networks share: the data set, and where a model gets its circuits from."""

    name: str

    def check(self, options: WorkloadOptions) -> None:
        if options.qubits < 3:
            raise ConfigurationError(f"--qubits {options.qubits}: {self.name} needs at least 3 qubits")
        if cluster_excitation.train_size(options.examples) < 1 or options.examples < 2:
            raise ConfigurationError(f"--examples {options.examples}: both splits need an example; use 2 or more")

    def data(self, options: WorkloadOptions) -> DataSet:
        return cluster_excitation.data_set(options)

    def draw(self, options: WorkloadOptions) -> Split:
        return cluster_excitation.draw(options.qubits, options.examples, options.seed)

    def ansatz(self, bits: list[cirq.GridQubit]) -> cirq.Circuit:
        return qcnn_circuits.multi_readout(bits)

    def layers(self, qubits: int) -> int:
        """Returns the number of convolutions, each with its pooling."""
        return 1

    def circuits(self, options: WorkloadOptions) -> dict[str, cirq.Circuit]:
        bits = cluster_excitation.register(options.qubits)
        symbols = qcnn_circuits.ansatz_symbols(1)
        first = "" if self.layers(options.qubits) == 1 else " of the first layer"
        return {
            "Encoding": cluster_excitation.encoding(bits),
            "Ansatz in blocks": qcnn_circuits.blocks(bits, self.layers(options.qubits)),
            f"Two-qubit unitary U{first}": qcnn_circuits.two_qubit_unitary(
                bits[:2], symbols[: qcnn_circuits.CONVOLUTION_SYMBOLS]
            ),
            f"Pooling P{first}, of qubit 0 into qubit 1": qcnn_circuits.two_qubit_pool(
                bits[0], bits[1], symbols[qcnn_circuits.CONVOLUTION_SYMBOLS :]
            ),
            "Ansatz": self.ansatz(bits),
        }

    def symbols(self, options: WorkloadOptions) -> tuple[str, ...]:
        return tuple(sorted(cirq.parameter_names(self.ansatz(cluster_excitation.register(options.qubits)))))

    def readouts(self, bits: list[cirq.GridQubit]) -> list[cirq.GridQubit]:
        """Returns the qubits whose Z is read: the half into which pooling leads."""
        return bits[len(bits) // 2 :]

    def circuit_models(self, options: WorkloadOptions) -> tuple[CircuitModel, ...]:
        bits = cluster_excitation.register(options.qubits)
        return (
            circuit_model(
                cluster_excitation.encoding(bits),
                self.ansatz(bits),
                [cirq.Z(bit) for bit in self.readouts(bits)],
                cluster_excitation.feature_symbols(options.qubits),
            ),
        )

    def _quantum_layer(self, options: WorkloadOptions, engine: Engine) -> Any:
        from qmljob_training.quantum_layer import QuantumLayer

        (model,) = self.circuit_models(options)
        return QuantumLayer(
            model.encoding,
            model.ansatz,
            model.observables,
            engine=engine,
            feature_symbols=model.feature_symbols,
            seed=_weight_seeds(options.seed)[0],
            name="quantum",
        )


class Qcnn(_QcnnBase):
    """Several readouts and a dense head (the tutorial's hybrid model; 69 parameters at 8 qubits)."""

    def __init__(self) -> None:
        super().__init__("qcnn")

    def model(self, options: WorkloadOptions, engine: Engine) -> Any:
        import tf_keras as keras

        _, hidden_seed, output_seed = _weight_seeds(options.seed)
        glorot = keras.initializers.GlorotUniform
        features = keras.Input((options.qubits,), name="features")
        readouts = self._quantum_layer(options, engine)(features)
        hidden = keras.layers.Dense(HIDDEN_UNITS, kernel_initializer=glorot(hidden_seed), name="hidden")(readouts)
        output = keras.layers.Dense(1, kernel_initializer=glorot(output_seed), name="output")(hidden)
        prediction = keras.layers.Reshape((), name="prediction")(output)
        return keras.Model(features, (prediction, readouts), name="qcnn")


class PureQcnn(_QcnnBase):
    """One readout, no classical part (the tutorial's first model; 60 parameters at 8 qubits)."""

    def __init__(self) -> None:
        super().__init__("qcnn-pure")

    def check(self, options: WorkloadOptions) -> None:
        super().check(options)
        if options.qubits & (options.qubits - 1):
            lower = 1 << (options.qubits.bit_length() - 1)
            raise ConfigurationError(
                f"--qubits {options.qubits}: qcnn-pure halves the register and needs a power of two; "
                f"use {' or '.join(str(size) for size in (lower, lower * 2) if size >= 4)}"
            )

    def ansatz(self, bits: list[cirq.GridQubit]) -> cirq.Circuit:
        return qcnn_circuits.purely_quantum(bits)

    def readouts(self, bits: list[cirq.GridQubit]) -> list[cirq.GridQubit]:
        return bits[-1:]

    def layers(self, qubits: int) -> int:
        return qubits.bit_length() - 1

    def model(self, options: WorkloadOptions, engine: Engine) -> Any:
        import tf_keras as keras

        features = keras.Input((options.qubits,), name="features")
        readouts = self._quantum_layer(options, engine)(features)
        prediction = keras.layers.Reshape((), name="prediction")(readouts)
        return keras.Model(features, (prediction, readouts), name="qcnn_pure")


def _weight_seeds(seed: int) -> list[int]:
    """Returns independent seeds for the quantum, hidden and output weights."""
    return [int(value) for value in np.random.SeedSequence([seed, _WEIGHTS_STREAM]).generate_state(3)]
