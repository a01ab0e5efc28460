"""The explanation: its document is read as untrusted input, its text is for a person; what it says of scaling out."""

from qmljob_training import runtime

runtime.prepare_environment()  # before TensorFlow is imported below

import json  # noqa: E402

import pytest  # noqa: E402

from qmljob.explain import NoExplanationError, training_arguments  # noqa: E402
from qmljob_api.explanation import (  # noqa: E402
    CircuitExplanation,
    EngineEstimate,
    Explanation,
    ReadoutCone,
    ReadoutGroup,
    ScaleOut,
    parse_explanation,
)
from qmljob_api.explanation_text import as_text, duration, size  # noqa: E402
from qmljob_api.parse import Mode, parse_job  # noqa: E402
from qmljob_api.types import QMLJob  # noqa: E402
from qmljob_training.explain import all_reduce_seconds, explain  # noqa: E402
from qmljob_training.flags import parse_flags  # noqa: E402

TOLD = Explanation(
    workload="qcnn",
    qubits=12,
    train_examples=700,
    test_examples=300,
    workers=2,
    batch_size=32,
    global_batch_size=64,
    steps=11,
    epochs=5,
    threads=1,
    cores=2,
    circuits=(
        CircuitExplanation(
            qubits=12,
            gates=276,
            primitives=276,
            features=12,
            symbols=20,
            cones=(
                ReadoutCone(qubits=12, gates=111),
                ReadoutCone(qubits=5, gates=35),
                ReadoutCone(qubits=12, gates=111),
            ),
            groups=(
                ReadoutGroup(readouts=(0, 2), qubits=12, method="heisenberg", steps=18),
                ReadoutGroup(readouts=(1,), qubits=5, method="state", steps=7),
            ),
        ),
    ),
    requested="auto",
    engine="lightcone",
    reason="estimated 1 ms",
    engines=(
        EngineEstimate(
            engine="lightcone",
            refusal=None,
            multiplications=2_400_000,
            example_bytes=1024,
            batch_bytes=3 * 2**20,
            seconds=0.001,
            compile_seconds=3.0,
        ),
        EngineEstimate(
            engine="tfq",
            refusal="TensorFlow Quantum is not installed",
            multiplications=0,
            example_bytes=0,
            batch_bytes=0,
            seconds=0.0,
            compile_seconds=0.0,
        ),
    ),
    step_seconds=0.0017,
    epoch_seconds=0.0187,
    compile_seconds=3.0,
    calibration="measured on one core",
    scale_out=ScaleOut(
        parameters=85,
        all_reduce_seconds=0.0007,
        one_seconds=0.0015,
        two_seconds=0.0017,
        speedup=0.882,
        helps=False,
    ),
)

TEXT = """\
qcnn, 12 qubits: 700 training and 300 test examples, 5 epoch(s) of 11 step(s)
2 worker(s), 32 examples a step each (global batch 64), 1 thread(s) each; 2 core(s) here
circuit: 12 qubits, 276 gates, 20 symbols, 12 features, 3 readout(s)
  readout 0, 2: light cone of 12 of 12 qubits, 111 of 276 gates
  readout 1: light cone of 5 of 12 qubits, 35 of 276 gates
  computed together: readout 0, 2, 12 qubits, observables moved back: 18 contraction(s)
  computed together: readout 1, 5 qubits, state vectors: 7 fused block(s)
engine lightcone: estimated 1 ms
  lightcone: 2.4e+06 multiplications a step, 1 ms; memory 1 KiB an example, 3 MiB the batch
  tfq: not possible: TensorFlow Quantum is not installed
time: 1.7 ms a step, 19 ms an epoch, and 3 s for compiling, once; on one thread (measured on one core)
a second worker does not help: a step of the same global batch takes 1.5 ms on one, 1.7 ms on two, of which 700 µs go \
to summing 85 numbers: 0.88 times as fast"""


def test_the_text_has_everything_a_line_each() -> None:
    assert as_text(TOLD) == TEXT


def test_without_a_cost_model_the_text_says_so() -> None:
    unknown = {"step_seconds": None, "epoch_seconds": None, "compile_seconds": None, "scale_out": None}
    lines = as_text(TOLD.model_copy(update={**unknown, "engine": "mine"})).splitlines()
    assert lines[-1] == "time: unknown: there is no cost model for mine with this workload"


def test_a_document_is_read_as_it_was_written() -> None:
    assert parse_explanation(TOLD.model_dump_json()) == TOLD


@pytest.mark.parametrize(
    "changes",
    [
        {"qmljob": "explanation/v2"},
        {"step_seconds": "NaN"},
        {"step_seconds": -1.0},
        {"workers": 0},
        {"circuits": [{}]},
    ],
    ids=["another version", "no number", "negative", "no worker", "an empty circuit"],
)
def test_what_is_no_explanation_is_none(changes: dict[str, object]) -> None:
    assert parse_explanation(json.dumps(json.loads(TOLD.model_dump_json()) | changes)) is None


def test_text_is_no_explanation() -> None:
    assert parse_explanation(b"Traceback") is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 µs"), (2.5e-5, "25 µs"), (0.0007, "700 µs"), (0.00123, "1.2 ms"), (0.0996, "100 ms"), (410.0, "410 s")],
)
def test_times_have_two_digits_and_a_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1,000 B"), (1024, "1 KiB"), (3 * 2**30, "3 GiB"), (2**60, "1,000 PiB")]
)
def test_sizes_have_two_digits_and_a_unit(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("parameters", "workers", "milliseconds"),
    [(69, 1, 0.0), (69, 2, 2.7003), (69, 32, 23.7005), (69, 1024, 718.1006), (10**9, 2, 4002.7)],
)
def test_a_ring_sends_its_messages_one_after_the_other(parameters: int, workers: int, milliseconds: float) -> None:
    assert 1e3 * all_reduce_seconds(parameters, workers) == pytest.approx(milliseconds, rel=1e-4)


def job(command: list[str] | None, arguments: list[str]) -> QMLJob:
    container = {"name": "trainer", "image": "x", "args": arguments, "env": [{"name": "N", "value": "4"}]}
    container |= {} if command is None else {"command": command}
    document = {
        "apiVersion": "qml.dev/v1alpha1",
        "kind": "QMLJob",
        "metadata": {"name": "qcnn"},
        "spec": {"replicaSpecs": {"worker": {"replicas": 3, "template": {"spec": {"containers": [container]}}}}},
    }
    found = parse_job(document, Mode.STRICT)
    assert found.job is not None, found.errors
    return found.job


@pytest.mark.parametrize(
    ("command", "arguments", "flags"),
    [
        (["python", "-m", "qmljob_training"], ["--qubits=$(N)"], ("--qubits=4",)),
        (["/usr/bin/python3", "-m", "qmljob_training", "train", "--seed=1"], [], ("train", "--seed=1")),
        (["python"], ["-m", "qmljob_training", "--seed", "1"], ("--seed", "1")),
    ],
    ids=["a variable", "all in the command", "all in the arguments"],
)
def test_flags_are_those_of_the_training_container(
    command: list[str], arguments: list[str], flags: tuple[str, ...]
) -> None:
    found, environment = training_arguments(job(command, arguments))
    assert found == flags
    assert len(json.loads(environment["TF_CONFIG"])["cluster"]["worker"]) == 3


def test_another_program_is_not_explained() -> None:
    with pytest.raises(NoExplanationError, match="explain knows only this project's worker program"):
        training_arguments(job(["python", "-m", "own"], []))


@pytest.mark.parametrize(("workers", "width"), [(1, 32), (2, 32), (3, 32)])
def test_workers_share_the_global_batch(workers: int, width: int) -> None:
    found = explain(parse_flags(["--qubits=4", "--examples=400"], {}), workers)
    assert (found.batch_size, found.global_batch_size) == (width, 32 * workers)
    assert found.scale_out is not None
    assert found.scale_out.helps == (found.scale_out.speedup >= 1.1)
