"""Random circuits: values against cirq.Simulator, gradients against finite differences, in double precision.

The functions are run op by op: what XLA compiles of them is checked by the contract and by the slow tier.
"""

from qmljob_training import runtime

runtime.prepare_environment()  # before TensorFlow is imported below

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from qmljob_training.engines.lightcone.engine import LightconeEngine, model_functions  # noqa: E402
from qmljob_training.engines.protocol import CircuitModel  # noqa: E402
from qmljob_training.native import ops  # noqa: E402
from qmljob_training.native.ops import Native  # noqa: E402
from qmljob_training.testing.engine_contract import reference_values  # noqa: E402
from support.native import NATIVE, require_native  # noqa: E402
from support.random_circuits import random_model  # noqa: E402

STEP = 1e-4
FUZZED = 5_000
FUZZING_SEED = 20_261_121


def loops(method: str) -> tuple[str, Native | None]:
    """Returns the engine's method, and the native loops where they are what is meant."""
    if method != "native":
        return method, None
    require_native()
    return "state", ops.load()


def assert_model_is_right(model: CircuitModel, seed: int, method: str) -> None:
    numbers = np.random.default_rng(seed)
    features = numbers.uniform(-2, 2, (2, len(model.feature_symbols)))
    weights = numbers.uniform(-2, 2, len(model.weight_symbols))
    upstream = numbers.uniform(-1, 1, (2, len(model.observables)))
    way, native = loops(method)
    functions = model_functions(model, way, 8, native)
    given = [tf.constant(array, tf.float64) for array in (features, weights, upstream)]
    values, kept = functions.values(*given[:2])
    np.testing.assert_allclose(values, reference_values(model, features, weights), atol=1e-6)
    towards = [numbers.normal(size=features.shape), numbers.normal(size=weights.shape)]
    plus, minus = (
        np.sum(upstream * reference_values(model, features + step * towards[0], weights + step * towards[1]))
        for step in (STEP, -STEP)
    )
    found = np.sum(functions.feature_gradient(*given, kept) * towards[0])
    found += np.sum(functions.weight_gradient(*given, kept) * towards[1])
    scale = 1.0 + abs(found)
    assert found / scale == pytest.approx((plus - minus) / (2 * STEP) / scale, abs=2e-5)


@pytest.mark.parametrize("method", ["state", "heisenberg", *NATIVE])
@settings(derandomize=True, deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32), qubits=st.integers(1, 8), depth=st.integers(0, 14))
def test_values_and_gradients_are_right_for_any_circuit(seed: int, qubits: int, depth: int, method: str) -> None:
    # Networks of deep circuits on many qubits grow without bound: what the estimate would leave to state vectors.
    if method == "heisenberg":
        qubits, depth = min(qubits, 4), min(depth, 8)
    assert_model_is_right(random_model(seed, qubits, depth), seed, method)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_fuzzing() -> None:
    print(f"fuzzing {FUZZED} circuits from seed {FUZZING_SEED}")
    numbers = np.random.default_rng(FUZZING_SEED)
    for number in range(FUZZED):
        seed = FUZZING_SEED + number
        try:
            model = random_model(seed, int(numbers.integers(1, 9)), int(numbers.integers(0, 16)))
            assert_model_is_right(model, seed, "native" if NATIVE and number % 2 else "auto")
        except Exception as error:
            error.add_note(f"circuit {number}: seed {seed}")
            raise


@pytest.mark.parametrize("method", ["state", "heisenberg", *NATIVE])
def test_compiled_anew_the_bits_are_the_same(method: str) -> None:
    model = random_model(5, 3, 6)
    features, weights = tf.constant([[0.3, 0.1]]), tf.linspace(0.1, 0.9, len(model.weight_symbols))
    found = []
    way, native = loops(method)
    for engine in (LightconeEngine(method=way, native=native is not None) for _ in range(2)):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            values = engine.expectation(model)(features[:, : len(model.feature_symbols)], weights)
        found.append((values.numpy(), tape.gradient(values, weights).numpy()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])
