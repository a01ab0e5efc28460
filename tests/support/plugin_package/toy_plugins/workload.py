"""A workload without any circuit: labels are the sign of a hidden linear function."""

from typing import Any

import numpy as np

from qmljob_training.engines.protocol import Engine
from qmljob_training.errors import ConfigurationError
from qmljob_training.workloads.protocol import DataSet, Split, WorkloadOptions


class LinearModel:
    """`options.qubits` is the number of features."""

    name = "toy"

    def check(self, options: WorkloadOptions) -> None:
        if options.examples < 4:
            raise ConfigurationError(f"--examples {options.examples}: {self.name} needs 4 or more")

    def data(self, options: WorkloadOptions) -> DataSet:
        drawn, cut = self.draw(options), options.examples * 3 // 4
        return DataSet(
            train=Split(drawn.features[:cut], drawn.labels[:cut]), test=Split(drawn.features[cut:], drawn.labels[cut:])
        )

    def draw(self, options: WorkloadOptions) -> Split:
        numbers = np.random.default_rng(options.seed)
        hidden = np.random.default_rng(0).normal(size=options.qubits)
        features = numbers.normal(size=(options.examples, options.qubits)).astype(np.float32)
        return Split(features, np.where(features @ hidden >= 0, 1.0, -1.0).astype(np.float32))

    def model(self, options: WorkloadOptions, engine: Engine) -> Any:
        import tf_keras as keras

        features = keras.Input((options.qubits,), name="features")
        initializer = keras.initializers.GlorotUniform(options.seed)
        readouts = keras.layers.Dense(1, kernel_initializer=initializer, name="linear")(features)
        return keras.Model(features, (keras.layers.Reshape(())(readouts), readouts), name="toy")

    def circuits(self, options: WorkloadOptions) -> dict[str, Any]:
        return {}

    def symbols(self, options: WorkloadOptions) -> tuple[str, ...]:
        return ()
