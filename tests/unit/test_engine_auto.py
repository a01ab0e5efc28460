"""Engine `auto`: which engine it comes to, by what reason; and a machine without TensorFlow Quantum."""

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import cirq
import pytest
import sympy

from qmljob_api.exitcodes import ExitCode
from qmljob_training.circuits import circuit_model
from qmljob_training.engines import auto, estimate
from qmljob_training.engines.estimate import Estimate
from qmljob_training.engines.protocol import CircuitModel
from qmljob_training.errors import ConfigurationError
from qmljob_training.workloads.protocol import WorkloadOptions
from qmljob_training.workloads.qcnn import PureQcnn, Qcnn
from support.programs import (
    SMALL,
    Ended,
    assert_same_bits,
    finish,
    infer,
    read_weights,
    start_command,
    train,
    variables,
)

GIB = 2**30
FEATURE, WEIGHT = sympy.symbols("x w")

AUTO = (*SMALL, "--engine=auto")


def estimated(engine: str, seconds: float, refusal: str | None = None) -> Estimate:
    return Estimate(engine, refusal, 1000, (GIB, GIB), seconds, 1.0)


@pytest.mark.parametrize(
    ("own", "other", "chosen", "reason"),
    [
        pytest.param(
            (0.001, None), (0.028, None), "lightcone", "1 ms for 32 examples, where tfq takes 28 ms", id="own"
        ),
        pytest.param(
            (0.5, None), (0.028, None), "tfq", "28 ms for 32 examples, where lightcone takes 500 ms", id="tfq"
        ),
        pytest.param((0.5, None), (0.5, None), "lightcone", "where tfq takes 500 ms", id="equal"),
        pytest.param((0.5, None), (0.1, "too large"), "lightcone", "tfq is not possible: too large", id="tfq can't"),
        pytest.param((0.1, "too large"), (0.5, None), "tfq", "too large", id="lightcone can't"),
        pytest.param((0.1, "too large"), (0.5, "missing"), "lightcone", "missing", id="neither can"),
    ],
)
def test_the_cheaper_engine_that_can_is_chosen(
    own: tuple[float, str | None], other: tuple[float, str | None], chosen: str, reason: str
) -> None:
    choice = auto.cheaper(estimated("lightcone", *own), estimated("tfq", *other))
    assert choice.engine == chosen
    assert choice.reason.endswith(reason)


@pytest.mark.parametrize("workload", [Qcnn(), PureQcnn()], ids=lambda workload: workload.name)
@pytest.mark.parametrize("qubits", [4, 8, 16])
def test_our_own_workloads_get_lightcone_before_tensorflow_is_needed(workload: Qcnn | PureQcnn, qubits: int) -> None:
    choice = auto.resolve("auto", workload, WorkloadOptions(qubits, 20, 0))
    assert choice.engine == "lightcone"
    assert "where tfq takes" in choice.reason


@pytest.mark.parametrize("name", ["lightcone", "tfq"])
def test_an_engine_that_is_asked_for_is_taken(name: str) -> None:
    assert auto.resolve(name, Qcnn(), WorkloadOptions(8, 20, 0)) == auto.Choice(name, "--engine asks for it")


def test_a_workload_that_tells_no_circuits_gets_lightcone() -> None:
    class Stranger:
        name = "stranger"

    choice = auto.resolve("auto", Stranger(), WorkloadOptions(8, 20, 0))  # type: ignore[arg-type]
    assert choice == auto.Choice("lightcone", "workload stranger does not tell its circuits, and lightcone takes any")


def full_register(qubits: int, layers: int) -> CircuitModel:
    """Every qubit is read through everything, so that no engine can leave out a gate."""
    bits = cirq.GridQubit.rect(1, qubits)
    encoding = cirq.Circuit(cirq.X(bit) ** FEATURE for bit in bits)
    layer = [cirq.Y(bit) ** WEIGHT for bit in bits] + [cirq.ISWAP(*pair) for pair in pairwise(bits)]
    return circuit_model(encoding, cirq.Circuit(layer * layers), [cirq.Z(bit) for bit in bits])


def test_both_engines_are_ranked_by_the_same_circuits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an imaginary TensorFlow Quantum that costs nothing, auto takes it, and only then."""
    model = full_register(6, 6)
    assert auto.choose((model,)).engine == "lightcone"
    monkeypatch.setattr(estimate, "TFQ_GATE_SECONDS", 0.0)
    monkeypatch.setattr(estimate, "TFQ_AMPLITUDE_SECONDS", 0.0)
    monkeypatch.setattr(estimate, "STATE_SECONDS", 1.0)
    monkeypatch.setattr(estimate, "NATIVE_SECONDS", 1.0)
    monkeypatch.setattr(estimate, "NETWORK_SECONDS", 1.0)
    assert auto.choose((model,)).engine == "tfq"


def one_gate(gate: Callable[[cirq.Qid], cirq.Operation], qubit: cirq.Qid) -> CircuitModel:
    encoding = cirq.Circuit(cirq.X(qubit) ** FEATURE)
    return circuit_model(encoding, cirq.Circuit(gate(qubit)), [cirq.Z(qubit)])


@pytest.mark.parametrize(
    ("gate", "qubit", "known"),
    [
        pytest.param(lambda q: cirq.X(q) ** WEIGHT, cirq.GridQubit(0, 0), True, id="a power of a symbol"),
        pytest.param(lambda q: cirq.X(q) ** (0.5 * WEIGHT), cirq.GridQubit(0, 0), True, id="a scaled symbol"),
        pytest.param(lambda q: cirq.X(q) ** (WEIGHT + 1), cirq.GridQubit(0, 0), False, id="a sum"),
        pytest.param(cirq.MatrixGate(cirq.unitary(cirq.H)), cirq.GridQubit(0, 0), False, id="a matrix"),
        pytest.param(cirq.H, cirq.NamedQubit("a"), False, id="a qubit without a place"),
    ],
)
def test_what_tensorflow_quantum_may_not_know_is_left_to_lightcone(
    gate: Callable[[cirq.Qid], cirq.Operation], qubit: cirq.Qid, *, known: bool
) -> None:
    refusal = estimate.tfq_estimate([one_gate(gate, qubit)], 32).refusal
    assert (refusal is None) == known


def test_state_vectors_that_do_not_fit_are_refused_by_both() -> None:
    model = full_register(40, 40)
    refusal = estimate.lightcone_estimate(estimate.formulated([model]), 32).refusal
    assert refusal is not None
    assert "depends on 40 qubits" in refusal
    assert "GiB" in (estimate.tfq_estimate([model], 32).refusal or "")


def without_tfq(module: str, *flags: str) -> Ended:
    """Runs a program where TensorFlow Quantum can't be imported."""
    program = (
        "import runpy, sys; sys.modules['tensorflow_quantum'] = None; "
        f"sys.argv = ['{module}', *sys.argv[1:]]; runpy.run_module('{module}', run_name='__main__')"
    )
    return finish(start_command([sys.executable, "-c", program, *flags], variables()))


def test_without_tensorflow_quantum_auto_trains_the_same_bits(tmp_path: Path) -> None:
    locations = [tmp_path / name / "w.h5" for name in ("with", "without")]
    ends = [
        train(*AUTO, "--epochs=2", f"--artifact={locations[0].as_uri()}"),
        without_tfq("qmljob_training", *AUTO, "--epochs=2", f"--artifact={locations[1].as_uri()}"),
    ]
    assert [end.code for end in ends] == [0, 0], ends[1].stderr
    assert "engine lightcone: tfq is not possible: TensorFlow Quantum is not installed" in ends[1].stderr
    assert_same_bits(*(read_weights(location) for location in locations))
    assert '"engine":"lightcone"' in locations[0].with_suffix(".json").read_text().replace(" ", "")


def test_an_artifact_of_engine_tfq_outlives_it(tmp_path: Path) -> None:
    location = (tmp_path / "w.h5").as_uri()
    assert train(*SMALL, "--epochs=1", f"--artifact={location}").code == 0
    ends = [infer(f"--artifact={location}"), without_tfq("qmljob_inference", f"--artifact={location}")]
    one, other = (end.result for end in ends)
    assert one is not None
    assert other is not None, ends[1].stderr
    assert other.mse == pytest.approx(one.mse, abs=1e-5)
    assert "engine tfq, which trained, is not installed here: engine auto evaluates" in ends[1].stderr
    described = without_tfq("qmljob_training", "describe", f"--artifact={location}")
    assert described.code == 0, described.stderr


def test_engine_tfq_without_tensorflow_quantum_says_what_to_install() -> None:
    without_tfq("qmljob_training", *SMALL).check_refusal(
        ExitCode.INVALID_CONFIGURATION, "--engine tfq: TensorFlow Quantum is not installed here", "tensorflow-quantum"
    )


def test_nothing_but_engine_tfq_imports_tensorflow_quantum() -> None:
    program = (
        "import pkgutil, sys, importlib; from qmljob_training import runtime; runtime.prepare_environment()\n"
        "import qmljob_training, qmljob_inference\n"
        "for package in (qmljob_training, qmljob_inference):\n"
        "    for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not found.name.endswith('__main__'): importlib.import_module(found.name)\n"
        "assert 'tensorflow' in sys.modules\n"
        "print('tensorflow_quantum' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=variables())
    assert done.stdout == "False\n"


def test_where_tensorflow_quantum_is_missing_plans_refuse_engine_tfq(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "tfq_is_installed", lambda: False)
    with pytest.raises(ConfigurationError, match="install tensorflow-quantum"):
        auto.resolve("tfq", Qcnn(), WorkloadOptions(4, 20, 0))
    assert [auto.for_evaluation(name) for name in ("tfq", "lightcone", "mine")] == ["auto", "lightcone", "mine"]


def test_a_checkpoint_of_auto_is_one_of_the_engine_that_it_came_to(tmp_path: Path) -> None:
    flags = (*AUTO, f"--checkpoint-location={(tmp_path / 'checkpoints').as_uri()}")
    first = train(*flags, "--epochs=1")
    same, other = train(*flags, "--epochs=2", "--engine=lightcone"), train(*flags, "--epochs=3", "--engine=tfq")
    assert [end.code for end in (first, same, other)] == [0, 0, 0], other.stderr
    assert "warning: resuming" not in same.stderr
    assert "warning: resuming with other settings" in other.stderr
    assert "engine lightcone -> tfq" in other.stderr
