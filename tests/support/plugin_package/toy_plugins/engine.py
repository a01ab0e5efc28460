"""An engine that knows one circuit: a rotation about X by the feature, one by the weight, and Z as the readout."""

import cirq

from qmljob_training.engines.protocol import CircuitModel, Expectation
from qmljob_training.errors import ConfigurationError


class OneRotation:
    """<Z> = cos(feature + weight), both in radians."""

    name = "toy-engine"

    def expectation(self, model: CircuitModel) -> Expectation:
        import tensorflow as tf

        gates = [operation.gate for operation in (model.encoding + model.ansatz).all_operations()]
        if not (len(gates) == 2 and all(isinstance(gate, cirq.Rx) for gate in gates)):
            raise ConfigurationError(f"engine {self.name} knows two rotations about X and nothing else; use tfq")
        return lambda features, weights: tf.cos(features + weights)
