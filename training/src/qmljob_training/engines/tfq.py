"""Engine `tfq`: TensorFlow Quantum (Broughton et al. 2020, arXiv:2003.02989), the reference for values and gradients.

The whole register is simulated once for each example and step. Gradients are by the adjoint method, exact at the cost
of about three forward runs, where the parameter shift rule would need two runs a symbol.
"""

import sympy
import tensorflow as tf

from qmljob_training.engines.protocol import CircuitModel, Expectation
from qmljob_training.errors import ConfigurationError


class TfqEngine:
    """TensorFlow Quantum's analytic expectation with its adjoint differentiator."""

    name = "tfq"

    def expectation(self, model: CircuitModel) -> Expectation:
        # TensorFlow Quantum must be imported after MultiWorkerMirroredStrategy is created: its import starts
        # TensorFlow's context, after which collective ops can't be configured any more.
        import tensorflow_quantum as tfq

        op = tfq.differentiators.Adjoint().generate_differentiable_op(analytic_op=tfq.get_expectation_op())
        try:
            circuit = tfq.convert_to_tensor([model.encoding + model.ansatz])
            observables = tfq.convert_to_tensor([list(model.observables)])
        except (ValueError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigurationError(f"engine tfq can't simulate this circuit: {reason}") from error
        # TensorFlow Quantum binds symbols by position in this list; it sorts nothing here.
        names = tf.constant([str(sympy.Symbol(name)) for name in (*model.feature_symbols, *model.weight_symbols)])

        def expectation(features: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
            batch = tf.shape(features)[0]
            values = tf.concat([features, tf.tile(weights[tf.newaxis, :], [batch, 1])], axis=1)
            return op(tf.tile(circuit, [batch]), names, values, tf.tile(observables, [batch, 1]))

        return expectation
