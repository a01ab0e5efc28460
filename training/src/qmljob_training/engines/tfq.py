"""Engine `tfq`: TensorFlow Quantum (Broughton et al. 2020, arXiv:2003.02989), the reference for values and gradients.

The whole register is simulated once for each example and step. Gradients are by the adjoint method, at the cost of
about three forward runs, where the parameter shift rule would need two runs a symbol. It differentiates each gate by a
central difference of 0.005 in its symbol: gradients come out 4e-5 too small, nearly all by the same factor.
"""

import os

import cirq
import sympy
import tensorflow as tf

from qmljob_training.engines.auto import INSTALL_TFQ
from qmljob_training.engines.estimate import tfq_is_installed
from qmljob_training.engines.protocol import CircuitModel, Expectation
from qmljob_training.errors import ConfigurationError


class TfqEngine:
    """TensorFlow Quantum's analytic expectation with its adjoint differentiator."""

    name = "tfq"

    def __init__(self) -> None:
        if not tfq_is_installed():
            raise ConfigurationError(f"--engine tfq: TensorFlow Quantum is not installed here; {INSTALL_TFQ}")

    def expectation(self, model: CircuitModel) -> Expectation:
        # TensorFlow Quantum must be imported after MultiWorkerMirroredStrategy is created: its import starts
        # TensorFlow's context, after which collective ops can't be configured any more.
        import tensorflow_quantum as tfq

        _check_memory(len((model.encoding + model.ansatz).all_qubits()))
        op = tfq.differentiators.Adjoint().generate_differentiable_op(analytic_op=tfq.get_expectation_op())
        try:
            circuit = tfq.convert_to_tensor([_whole_circuit(model)])
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


def _check_memory(qubits: int) -> None:
    """Raises ConfigurationError where not even one state vector and its gradient's two more fit this machine."""
    needed = 3 * 8 * 2**qubits
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > present:
        raise ConfigurationError(
            f"--qubits {qubits}: engine tfq needs {needed / 2**30:.3g} GiB for the state vectors of one example, this "
            f"machine has {present / 2**30:.3g} GiB; use fewer qubits"
        )


def _whole_circuit(model: CircuitModel) -> cirq.Circuit:
    """Returns encoding and ansatz as one circuit; raises ConfigurationError where it is not unitary."""
    circuit = model.encoding + model.ansatz
    # TensorFlow Quantum drops measurements in silence, and finds channels only when it simulates.
    for operation in circuit.all_operations():
        if cirq.is_measurement(operation) or not cirq.has_unitary(_with_numbers(operation)):
            raise ConfigurationError(f"engine tfq can't simulate this circuit: {operation} is not unitary; remove it")
    # It also knows only those qubits that a gate acts on; an observable may be on another one.
    idle = {qubit for observable in model.observables for qubit in observable.qubits} - circuit.all_qubits()
    return circuit + cirq.Circuit(cirq.I.on_each(sorted(idle)))


def _with_numbers(operation: cirq.Operation) -> cirq.Operation:
    return cirq.resolve_parameters(operation, dict.fromkeys(cirq.parameter_names(operation), 0.25))
