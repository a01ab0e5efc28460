"""Tests of the native loops run wherever there is a compiler, and say why where there is none."""

from itertools import pairwise

import cirq
import numpy as np
import pytest
import tensorflow as tf

from qmljob_training.engines.protocol import CircuitModel
from qmljob_training.native import build, ops
from qmljob_training.quantum_layer import circuit_model
from support.random_circuits import FEATURES, WEIGHTS, operation, pauli_sum

TESTED = ops.available() or build.find_compiler() is not None
"""Without a compiler there is nothing to test, and the head of pytest's output says so (tests/unit/conftest.py)."""
NATIVE = ("native",) if TESTED else ()


def require_native() -> None:
    """Fails the test where there is a C++ compiler and nothing was built."""
    if not ops.available():
        pytest.fail("there is a C++ compiler, and the native loops are not built: run make setup")


def large_model(seed: int, gates: int = 40) -> CircuitModel:
    """Random gates on 11 to 14 qubits, in whose state vectors a lane is an amplitude."""
    numbers = np.random.default_rng(seed)
    register = cirq.LineQubit.range(int(numbers.integers(11, 15)))
    encoding = cirq.Circuit(operation(numbers, register, FEATURES) for _ in range(gates // 3))
    # A ladder before them, so that the light cones are wide.
    ladder = cirq.Circuit([cirq.ry(WEIGHTS[0] + 0.1 * bit.x)(bit) for bit in register])
    ladder.append(cirq.CX(*pair) for pair in pairwise(register))
    ansatz = ladder + cirq.Circuit(operation(numbers, register, WEIGHTS) for _ in range(gates)) + ladder
    return circuit_model(encoding, ansatz, [pauli_sum(numbers, register) for _ in range(3)])


def arguments(model: CircuitModel, seed: int, dtype: tf.DType = tf.float64) -> list[tf.Tensor]:
    numbers = np.random.default_rng(seed)
    shapes = ((2, len(model.feature_symbols)), (len(model.weight_symbols),), (2, len(model.observables)))
    return [tf.constant(numbers.uniform(-2, 2, shape), dtype) for shape in shapes]
