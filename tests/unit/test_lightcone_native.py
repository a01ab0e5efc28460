"""The native loops: what their plan is made of, what they refuse, and that threads and processors change no value."""

from qmljob_training import runtime

runtime.prepare_environment()  # before TensorFlow is imported below

import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from itertools import pairwise  # noqa: E402
from pathlib import Path  # noqa: E402

import cirq  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import sympy  # noqa: E402
import tensorflow as tf  # noqa: E402

from qmljob_training.engines.lightcone import costs, schedule  # noqa: E402
from qmljob_training.engines.lightcone.engine import LightconeEngine, model_functions  # noqa: E402
from qmljob_training.engines.lightcone.formulation import formulate  # noqa: E402
from qmljob_training.engines.lightcone.native import Matrices, native_plan  # noqa: E402
from qmljob_training.errors import ConfigurationError  # noqa: E402
from qmljob_training.native import build, ops, paths  # noqa: E402
from qmljob_training.quantum_layer import circuit_model  # noqa: E402
from qmljob_training.testing.engine_contract import reference_values  # noqa: E402
from support.native import arguments, large_model, require_native  # noqa: E402

AVX2 = "flags : fpu sse2 avx avx2 fma"
AVX512 = AVX2 + " avx512f avx512dq avx512vl avx512bw"
# One block of one qubit, in a sweep of its own; a readout of Z. Lanes are examples.
SMALLEST = [1, 0, 1, 4, 0, 1, 1, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1, 0]


@pytest.mark.parametrize("seed", range(4))
def test_large_registers_are_right_whatever_fits_the_cache(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few local bits make many sweeps and exchanges of lanes out of a small circuit."""
    require_native()
    monkeypatch.setattr(schedule, "LOCAL_BITS", 4 + seed)
    model = large_model(seed)
    features, weights, upstream = arguments(model, seed)
    functions = model_functions(model, "state", 8, ops.load())
    values, kept = functions.values(features, weights)
    np.testing.assert_allclose(values, reference_values(model, features.numpy(), weights.numpy()), atol=1e-9)
    towards = [np.random.default_rng(9).normal(size=given.shape) for given in (features, weights)]
    plus, minus = (
        np.sum(upstream * functions.values(features + step * towards[0], weights + step * towards[1])[0])
        for step in (1e-4, -1e-4)
    )
    for states in (kept, ()):
        found = np.sum(functions.feature_gradient(features, weights, upstream, states) * towards[0])
        found += np.sum(functions.weight_gradient(features, weights, upstream, states) * towards[1])
        assert found == pytest.approx((plus - minus) / 2e-4, abs=2e-5)


def test_a_schedule_applies_every_block_once_and_keeps_the_order_on_each_qubit() -> None:
    numbers = np.random.default_rng(3)
    for _ in range(50):
        count = int(numbers.integers(10, 16))
        blocks = [
            (index, tuple(int(q) for q in numbers.permutation(count)[: numbers.integers(1, 4)])) for index in range(30)
        ]
        made = schedule.schedule(blocks, range(count), 4, 4 + int(numbers.integers(2, 6)))
        order = [step.block for sweep in made.sweeps for step in sweep.steps if step.block is not None]
        assert sorted(order) == list(range(30))
        for qubit in range(count):
            assert [n for n in order if qubit in blocks[n][1]] == [n for n, qubits in blocks if qubit in qubits]


def test_state_vectors_pass_through_memory_a_few_times_and_not_once_a_block() -> None:
    bits = cirq.LineQubit.range(20)
    layer = [cirq.X(bit) ** sympy.Symbol("w") for bit in bits] + [cirq.CX(*pair) for pair in pairwise(bits)]
    encoding = cirq.Circuit(cirq.rx(sympy.Symbol("a"))(bit) for bit in bits)
    model = circuit_model(encoding, cirq.Circuit(layer * 4), [cirq.Z(bit) for bit in bits])
    (program,) = formulate(model, "state", native=True).states
    plan = native_plan(program, Matrices([block for block, _ in program.blocks], ["a"], ["w"]), 4)
    assert len(program.blocks) > 70
    assert plan.sweeps <= 5


@pytest.mark.parametrize(
    ("position", "number", "told"),
    [
        pytest.param(0, 2, "the version is 2", id="another version"),
        pytest.param(1, 4, "too few qubits", id="fewer amplitudes than lanes"),
        pytest.param(1, 2, "wrong number of lanes", id="other lanes"),
        pytest.param(2, 60, "the number of qubits is 60", id="too many qubits"),
        pytest.param(3, 3, "a block's offset", id="a matrix beyond the end"),
        pytest.param(6, 99, "the number of blocks is 99", id="more blocks than numbers"),
        pytest.param(7, 11, "a block's width is 11", id="a block too wide"),
        pytest.param(9, -1, "a block's offset is -1", id="a matrix before the start"),
        pytest.param(12, 1, "a sweep's bit is 1", id="a bit beyond the register"),
        pytest.param(14, 5, "a step's block is 5", id="a block that is not there"),
        pytest.param(14, -1, "nothing to exchange", id="an exchange without lanes"),
        pytest.param(15, 1, "a step's place is 1", id="a place beyond the sweep"),
        pytest.param(19, 7, "a string's readout is 7", id="a readout that is not there"),
        pytest.param(20, 2, "a string's flips is 2", id="a string beyond the register"),
        pytest.param(22, 2, "a string's parity is 2", id="a parity that is none"),
    ],
)
def test_a_plan_that_is_wrong_is_refused(position: int, number: int, told: str) -> None:
    require_native()
    numbers = [*SMALLEST]
    numbers[position] = number
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"the plan is wrong: .*{told}"):
        values_by(numbers)


def values_by(plan: list[int], **other: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    given = {
        "shared": tf.constant([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]),
        "own": tf.zeros((3, 0, 2)),
        "initial": tf.zeros((0, 2)),
        "coefficients": tf.ones(1, tf.float64),
    }
    return ops.load().ops.qmljob_values(**(given | other), plan=plan, keep=2**20)


def test_a_plan_that_ends_early_or_late_is_refused() -> None:
    require_native()
    for plan in [SMALLEST[:end] for end in range(len(SMALLEST))] + [[*SMALLEST, 0]]:
        with pytest.raises(tf.errors.InvalidArgumentError, match="the plan is wrong"):
            values_by(plan)
    np.testing.assert_array_equal(values_by(SMALLEST)[0], [[1.0]] * 3)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("shared", (3, 2)), ("own", (3, 1, 2)), ("initial", (3, 2)), ("coefficients", (2,))],
    ids=str,
)
def test_arrays_of_another_size_than_the_plan_says_are_refused(name: str, shape: tuple[int, ...]) -> None:
    require_native()
    wrong = tf.zeros(shape, tf.float64 if name == "coefficients" else tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match=name):
        values_by(SMALLEST, **{name: wrong})


def test_upstream_and_states_of_another_size_are_refused() -> None:
    require_native()
    gradient = ops.load().ops.qmljob_gradient
    shared, own = tf.zeros((4, 2)), tf.zeros((3, 0, 2))
    given = (shared, own, tf.zeros((0, 2)), tf.ones(1, tf.float64))
    with pytest.raises(tf.errors.InvalidArgumentError, match="upstream"):
        gradient(*given, tf.ones((2, 1)), tf.zeros(0), plan=SMALLEST, of_features=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="states"):
        gradient(*given, tf.ones((3, 1)), tf.zeros(5), plan=SMALLEST, of_features=False)


PROGRAM = """
import sys
from qmljob_training import runtime
runtime.prepare_environment()
runtime.configure(int(sys.argv[1]))
import tensorflow as tf
from qmljob_training.engines.lightcone.engine import model_functions
from qmljob_training.native import ops
from support.native import arguments, large_model
tf.config.run_functions_eagerly(True)
model = large_model(1)
given = arguments(model, 1, tf.float32)
functions = model_functions(model, "state", 4, ops.load())
values, kept = functions.values(*given[:2])
for array in (values, functions.weight_gradient(*given, kept), functions.feature_gradient(*given, kept)):
    print(array.numpy().tobytes().hex())
print(ops.load().instruction_set, ops.description())
"""


def run_with(threads: int, isa: str) -> tuple[list[np.ndarray], str]:
    given = {"QMLJOB_NATIVE_ISA": isa, "PYTHONPATH": str(Path(__file__).parents[1])}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(threads)],
        env=os.environ | given, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    *arrays, told = ended.stdout.splitlines()[-4:]
    return [np.frombuffer(bytes.fromhex(each), np.float32) for each in arrays], told


def test_bits_depend_on_the_instruction_set_alone_and_the_record_names_it() -> None:
    require_native()
    present = paths.instruction_set(ops.CPUINFO.read_text("utf-8"))
    one, told = run_with(1, present)
    assert told == f"{present} native {present}"
    three, _ = run_with(3, present)
    for first, second in zip(one, three, strict=True):
        np.testing.assert_array_equal(first, second)
    plain, told = run_with(1, "baseline")
    assert told == "baseline native baseline"
    for first, second in zip(one, plain, strict=True):
        np.testing.assert_allclose(first, second, atol=2e-5)


@pytest.mark.parametrize(
    ("cpuinfo", "limit", "found"),
    [
        pytest.param(AVX512, "", "avx512", id="all there is"),
        pytest.param(AVX512, "avx2", "avx2", id="less is asked for"),
        pytest.param(AVX512, "baseline", "baseline", id="the least"),
        pytest.param(AVX2, "avx512", "avx2", id="more is asked for than there is"),
        pytest.param("flags : fpu sse2 avx2", "", "baseline", id="avx2 without fma"),
        pytest.param("", "", "baseline", id="another machine"),
    ],
)
def test_the_instruction_set_that_is_recorded(cpuinfo: str, limit: str, found: str) -> None:
    assert paths.instruction_set(cpuinfo, limit) == found


def test_without_the_loops_the_engine_computes_by_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ops.SWITCH, "0")
    assert not ops.available()
    assert ops.description() == "xla"
    with pytest.raises(ConfigurationError, match="the native loops are not built here; run: python -m qmljob_training"):
        LightconeEngine(native=True).expectation(large_model(1))


def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.so").write_text("no library")
    monkeypatch.setenv(ops.SWITCH, str(tmp_path / "broken.so"))
    with pytest.raises(ConfigurationError, match=r"broken\.so can't be loaded: .*; run: python -m"):
        ops.load()


@pytest.mark.parametrize("compiler", ["/nowhere/g++", sys.executable], ids=["none", "not a compiler"])
def test_without_a_compiler_building_says_so(
    compiler: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", compiler)
    build.run(["build", "--if-possible"])
    assert "engine lightcone will compute by TensorFlow alone" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match=r"the native loops need g\+\+"):
        build.run(["build"])


def test_memory_is_counted_as_three_state_vectors() -> None:
    costs.check_memory(20, 8, present=24 * 2**20, vectors=costs.NATIVE_STATE_VECTORS)
    with pytest.raises(ConfigurationError, match="engine lightcone needs"):
        costs.check_memory(20, 8, present=24 * 2**20 - 1, vectors=costs.NATIVE_STATE_VECTORS)
