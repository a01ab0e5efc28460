"""`qmljob explain` and the training program's `explain`, as real processes: text, JSON, and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qmljob_api.exitcodes import ExitCode
from qmljob_api.explanation import Explanation, parse_explanation
from qmljob_api.explanation_text import as_text
from support.programs import Ended, finish, start, tf_config, variables

JOB = """\
apiVersion: qml.dev/v1alpha1
kind: QMLJob
metadata: {{name: qcnn}}
spec:
  replicaSpecs:
    worker:
      replicas: 2
      template:
        spec:
          volumes: [{{name: needs-a-cluster, emptyDir: {{}}}}]
          containers:
            - {{name: sidecar, image: x}}
            - name: trainer
              image: x
              command: {command}
              args: {arguments}
              env: [{{name: QUBITS, value: "12"}}]
"""
OURS = "[python, -m, qmljob_training]"
ARGUMENTS = "[--qubits=$(QUBITS), --examples=100, --global-batch-size=16, --epochs=3, --logdir=gs://bucket/logs]"


def qmljob_explain(folder: Path, *flags: str, command: str = OURS, arguments: str = ARGUMENTS) -> Ended:
    (folder / "job.yaml").write_text(JOB.format(command=command, arguments=arguments))
    done = subprocess.run(
        [sys.executable, "-m", "qmljob", "explain", "job.yaml", *flags],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def explanation(document: str) -> Explanation:
    assert document.count("\n") == 1, "one document, and nothing beside it on standard output"
    found = parse_explanation(document)
    assert found is not None
    return found


def test_a_manifest_is_explained_as_its_workers_would_run_it(tmp_path: Path) -> None:
    ended = qmljob_explain(tmp_path, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    found = explanation(ended.stdout)
    assert (found.qubits, found.train_examples, found.test_examples, found.epochs) == (12, 70, 30, 3)
    assert (found.workers, found.batch_size, found.global_batch_size, found.steps) == (2, 8, 16, 5)
    (circuit,) = found.circuits
    assert (circuit.qubits, circuit.gates, circuit.features, circuit.symbols) == (12, 276, 12, 20)
    assert len(circuit.cones) == 6
    assert all(cone.qubits <= 12 and cone.gates < circuit.primitives for cone in circuit.cones)
    assert sorted(readout for group in circuit.groups for readout in group.readouts) == [0, 1, 2, 3, 4, 5]
    assert (found.requested, found.engine) == ("auto", "lightcone")
    assert [each.engine for each in found.engines] == ["lightcone", "tfq"]
    assert all(each.refusal is None and each.seconds > 0 and each.batch_bytes > 0 for each in found.engines)
    assert found.step_seconds is not None
    assert found.epoch_seconds == pytest.approx(5 * found.step_seconds)
    assert found.scale_out is not None
    assert found.scale_out.parameters == 20 + 6 * 8 + 8 + 8 + 1
    assert found.scale_out.all_reduce_seconds == pytest.approx(2.7e-3, rel=1e-3)
    check_text(as_text(found))
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"], "explaining leaves nothing behind"


def check_text(text: str) -> None:
    """Everything that a person needs is there, one thing a line."""
    for words in (
        "qcnn, 12 qubits: 70 training and 30 test examples, 3 epoch(s) of 5 step(s)",
        "2 worker(s), 8 examples a step each (global batch 16), 1 thread(s) each",
        "circuit: 12 qubits, 276 gates, 20 symbols, 12 features, 6 readout(s)",
        "  readout 0, 1, 2, 3, 4, 5: light cone of 12 of 12 qubits, 111 of 276 gates",
        "  computed together: readout ",
        "engine lightcone: estimated ",
        "  tfq: ",
        " an epoch, and ",
        "for compiling, once",
        "a second worker ",
    ):
        assert any(words in line for line in text.splitlines()), (words, text)


def test_text_is_for_a_person_and_workers_can_be_set(tmp_path: Path) -> None:
    ended = qmljob_explain(
        tmp_path, "--replicas", "1", arguments="[train, --qubits=4]", command="[python3, -m, qmljob_training]"
    )
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.startswith(
        "qcnn, 4 qubits: 112 training and 48 test examples, 50 epoch(s) of 4 step(s)\n1 worker(s)"
    )


@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    [
        pytest.param("[python, own.py]", "[]", "runs python own.py: explain knows only", id="own program"),
        pytest.param("[python, -m, qmljob_training.explain]", "[]", "explain knows only", id="another module"),
        pytest.param("[sh, -c]", "[x]", "runs sh -c x: explain knows only", id="a shell"),
        pytest.param("null", "[]", "runs what its image says: explain knows only", id="no command"),
        pytest.param(OURS, "[describe]", "explain knows only", id="another command of ours"),
        pytest.param(OURS, "[--qubits=0]", "--qubits 0: must be 1 or more", id="a bad flag"),
        pytest.param(OURS, "[--engine=none]", "--engine none: unknown; choose one of: auto", id="an unknown engine"),
        pytest.param(OURS, "[--workload=qcnn-pure, --qubits=6]", "needs a power of two", id="impossible options"),
        pytest.param(OURS, "[--engine=tfq, --qubits=50]", "engine tfq needs 2.52e+07 GiB for", id="too much memory"),
    ],
)
def test_what_cannot_be_explained_is_one_line(tmp_path: Path, command: str, arguments: str, said: str) -> None:
    ended = qmljob_explain(tmp_path, command=command, arguments=arguments)
    assert (ended.code, ended.stdout) == (ExitCode.INVALID_CONFIGURATION, ""), ended.stderr
    assert ended.stderr.startswith("job.yaml: ")
    assert ended.stderr.count("\n") == 1
    assert said in ended.stderr


def test_a_bad_manifest_is_said_as_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("kind: TFJob")
    done = subprocess.run(
        [sys.executable, "-m", "qmljob", "explain", "job.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (ExitCode.INVALID_CONFIGURATION, "")
    assert all(line.startswith("job.yaml: ") for line in done.stderr.splitlines())


def test_the_program_reads_the_number_of_workers_from_tf_config() -> None:
    env = variables(TF_CONFIG=tf_config([1, 2, 3], 0))
    ended = finish(start("qmljob_training", ["explain", "--qubits=4", "--engine=tfq", "--json"], env))
    assert ended.code == 0, ended.stderr
    found = explanation(ended.stdout)
    assert (found.workers, found.global_batch_size, found.engine) == (3, 96, "tfq")
    assert found.reason == "--engine asks for it"
