"""The description of a real artifact, by the real program; and the report that is made from it."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import cirq
import pytest
import sympy

from qmljob.local.record import Phase, RunRecord, write_record
from qmljob.report import write_report
from qmljob_api.artifact import ArtifactManifest
from qmljob_api.description import ArtifactDescription, parse_description
from qmljob_api.exitcodes import ExitCode
from qmljob_training import drawing
from qmljob_training.workloads.protocol import WorkloadOptions
from qmljob_training.workloads.qcnn import PureQcnn, Qcnn

QUBITS, EXAMPLES = 3, 20
TEST_EXAMPLES = 6


def program(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs the training program to its end."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("QMLJOB_", "TF_CONFIG"))}
    return subprocess.run(
        [sys.executable, "-m", "qmljob_training", *arguments], env=env, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trains for one epoch, and returns the path of the artifact."""
    path = tmp_path_factory.mktemp("store") / "w.h5"
    ended = program(f"--qubits={QUBITS}", f"--examples={EXAMPLES}", "--epochs=1", f"--artifact={path.as_uri()}")
    assert ended.returncode == 0, ended.stderr
    return path


@pytest.fixture(scope="module")
def description(artifact: Path) -> ArtifactDescription:
    """What the program says of that artifact."""
    ended = program("describe", "--artifact", artifact.as_uri(), "--json")
    assert ended.returncode == 0, ended.stderr
    found = parse_description(ended.stdout)
    assert found is not None
    assert ended.stdout.count("\n") == 1, "one document, and nothing beside it on standard output"
    return found


def manifest_of(artifact: Path) -> ArtifactManifest:
    return ArtifactManifest.model_validate_json(artifact.with_suffix(".json").read_bytes())


def mean_squared_error(predictions: tuple[float, ...], labels: tuple[float, ...]) -> float:
    return sum((one - other) ** 2 for one, other in zip(predictions, labels, strict=True)) / len(labels)


def test_the_description_is_of_this_artifact(artifact: Path, description: ArtifactDescription) -> None:
    manifest = manifest_of(artifact)
    assert (description.artifact, description.model, description.run) == (
        artifact.as_uri(),
        manifest.model,
        manifest.run,
    )
    assert description.metrics == manifest.metrics


def test_answers_after_training_have_the_validation_loss_that_training_ended_with(
    artifact: Path, description: ArtifactDescription
) -> None:
    error = mean_squared_error(description.predictions.after, description.readouts.labels)
    assert error == pytest.approx(manifest_of(artifact).metrics["val_loss"], abs=1e-6)


def test_readouts_are_of_the_test_split_before_and_after(description: ArtifactDescription) -> None:
    readouts = description.readouts
    assert set(readouts.labels) <= {-1.0, 1.0}
    for rows in (readouts.before, readouts.after):
        assert len(rows) == TEST_EXAMPLES
        assert {len(row) for row in rows} == {QUBITS - QUBITS // 2}
        assert all(abs(value) <= 1 + 1e-6 for row in rows for value in row)
    assert readouts.before != readouts.after


def test_circuits_are_drawn(description: ArtifactDescription) -> None:
    sizes = {circuit.title: (circuit.qubits, circuit.gates) for circuit in description.circuits}
    assert sizes["Encoding"] == (QUBITS, 9)
    assert sizes["Ansatz"] == (QUBITS, 2 * 15 + 10)
    assert all(circuit.svg is not None and circuit.svg.startswith("<svg") for circuit in description.circuits)
    assert "qconv" not in "".join(circuit.text for circuit in description.circuits)


def test_a_person_gets_a_few_lines(artifact: Path) -> None:
    ended = program("describe", "--artifact", str(artifact))
    assert ended.returncode == 0, ended.stderr
    first, *others = ended.stdout.splitlines()
    assert first.startswith(f"artifact {artifact}: qcnn, {QUBITS} qubits, ")
    assert len(others) < 60


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), ExitCode.INVALID_CONFIGURATION, "--artifact is missing"),
        (("--artifact", "w.txt"), ExitCode.INVALID_CONFIGURATION, "ends in .h5"),
        (("--artifact", "w.h5", "--threads", "0"), ExitCode.INVALID_CONFIGURATION, "--threads 0"),
        (("--weights", "w.h5"), ExitCode.INVALID_CONFIGURATION, "--weights"),
        (("--artifact", "/nowhere/w.h5"), ExitCode.BAD_ARTIFACT, "/nowhere/w.json is missing"),
    ],
    ids=["no artifact named", "not an artifact's name", "no threads", "an unknown flag", "a missing artifact"],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], code: ExitCode, said: str) -> None:
    ended = program("describe", *arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.count("\n") == 1
    assert said in ended.stderr


def record_of(artifact: str, store: Path) -> RunRecord:
    return RunRecord(
        phase=Phase.SUCCEEDED,
        job="tiny",
        namespace="default",
        uid="8a",
        manifest="tiny.yaml",
        store=str(store),
        command=("python", "-m", "qmljob_training"),
        replicas=("tiny-worker-0",),
        chief="tiny-worker-0",
        started_at=datetime.now(UTC),
        artifact=artifact,
    )


def test_the_report_shows_an_artifact_in_the_folder_that_stands_for_a_bucket(artifact: Path, tmp_path: Path) -> None:
    write_record(tmp_path, record_of(f"gs://{artifact.parent.name}/{artifact.name}", artifact.parent.parent))
    page = write_report(tmp_path)
    assert {file.name for file in page.parent.glob("*.png")} == {"readouts.png", "predictions.png"}
    assert page.read_text("utf-8").count("data:image/svg+xml") == len(Qcnn().circuits(WorkloadOptions(3, 20, 0)))


def test_the_report_of_an_artifact_that_is_gone_says_so(tmp_path: Path) -> None:
    write_record(tmp_path, record_of("gs://bucket/w.h5", tmp_path))
    assert "w.json is missing" in write_report(tmp_path).read_text("utf-8")


@pytest.mark.parametrize(
    ("workload", "qubits"), [(Qcnn(), 8), (Qcnn(), 3), (Qcnn(), 5), (PureQcnn(), 8), (PureQcnn(), 4)]
)
def test_the_blocks_are_the_ansatz(workload: Qcnn | PureQcnn, qubits: int) -> None:
    circuits = workload.circuits(WorkloadOptions(qubits, 20, 0))
    blocks = circuits["Ansatz in blocks"].all_operations()
    opened = [operation for block in blocks for operation in cirq.decompose_once(block)]
    assert opened == list(circuits["Ansatz"].all_operations())


def named(*names: str) -> cirq.Circuit:
    return cirq.Circuit(cirq.X(cirq.q(0)) ** sympy.Symbol(name) for name in names)


@pytest.mark.parametrize(
    ("names", "trained", "short"),
    [
        (("q010", "q002", "a0"), {"q010", "q002"}, {"q002": "θ2", "q010": "θ10", "a0": "x0"}),
        (("q1", "r1"), {"q1", "r1"}, {}),
        (("q1", "q01"), {"q1", "q01"}, {}),
        (("alpha", "q1"), {"alpha"}, {"q1": "x1"}),
        ((), set(), {}),
    ],
    ids=["numbered", "two beginnings", "one number twice", "no number", "no symbols"],
)
def test_short_names_stand_for_one_symbol_each(
    names: tuple[str, ...], trained: set[str], short: dict[str, str]
) -> None:
    assert drawing.abbreviate([named(*names)], trained) == short


def test_a_drawing_leaves_the_order_of_gates_and_their_number() -> None:
    bits = cirq.GridQubit.rect(1, 2)
    gates = [cirq.rx(sympy.Symbol("a3"))(bits[0]), cirq.CNOT(*bits), cirq.Y(bits[1]) ** -sympy.Symbol("q01")]
    drawn = drawing.draw("one", cirq.Circuit(cirq.Circuit(gate) for gate in gates), {"a3": "x3", "q01": "θ1"})
    assert (drawn.qubits, drawn.moments, drawn.gates) == (2, 3, 3)
    assert [line.rstrip() for line in drawn.text.splitlines()] == [
        "0─Rx(x3)─@───────",
        "         │",
        "1────────X─Y^-θ1─",
    ]


@pytest.mark.parametrize(
    "circuit",
    [
        cirq.Circuit(),
        cirq.Circuit(cirq.X(cirq.q(0)) for _ in range(drawing.DRAWN_GATES + 1)),
        cirq.Circuit(cirq.X(cirq.NamedQubit("<script>"))),
    ],
    ids=["empty", "too large", "a name that is no XML"],
)
def test_what_cannot_be_drawn_is_left_as_text(circuit: cirq.Circuit) -> None:
    drawn = drawing.draw("one", circuit, {})
    assert drawn.svg is None
    assert len(drawn.text) < 10_000
