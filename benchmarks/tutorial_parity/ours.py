"""Runs this project's own programs for one seed and returns what they report, as a record like tutorial.py's."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qmljob_api.progress import InferenceResult, Progress, parse_progress, parse_result

QUBITS = 8
EXAMPLES = 160
ERROR_LINES = 8


class RunFailedError(Exception):
    """A program ended badly or did not report what it should; the message holds its last lines."""


@dataclass(frozen=True)
class Options:
    """What the runs of all seeds have in common."""

    workers: int
    epochs: int
    global_batch_size: int
    learning_rate: float
    threads: int
    fresh_seed_offset: int


def run(options: Options, seed: int, folder: Path) -> dict[str, Any]:
    """Trains with one seed, then evaluates on the artifact's test split and on fresh examples.

    One worker is one plain process; more go through `qmljob run`, as a user starts them.

    Raises:
        RunFailedError: see there.
    """
    folder.mkdir(parents=True)
    artifact = (folder / "weights.h5").resolve().as_uri()
    if options.workers == 1:
        command = [sys.executable, "-m", "qmljob_training", *training_flags(options, seed, artifact)]
    else:
        manifest = folder / "job.yaml"
        # JSON is YAML, and needs no library to write.
        manifest.write_text(json.dumps(job(options, seed, artifact), indent=2))
        command = [str(Path(sys.executable).with_name("qmljob")), "run", str(manifest), "--no-inference"]
        command += ["--store", str(folder / "store"), "--report", str(folder / "report")]
    lines = output_of(command, folder / "training.log")
    if options.workers > 1:
        # `qmljob run` shows sentences and keeps what each worker really said in its report folder.
        logs = sorted((folder / "report" / "logs").glob("*.log"))
        lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    history = epochs_of(lines)
    if not history or history[-1].epoch != options.epochs:
        last = history[-1].epoch if history else "none"
        raise RunFailedError(f"training reported epoch {last} last, not {options.epochs}: see {folder}/training.log")
    fresh_seed = seed + options.fresh_seed_offset
    fresh = ["--fresh-examples", str(EXAMPLES), "--fresh-seed", str(fresh_seed)]
    inference = [sys.executable, "-m", "qmljob_inference", "--artifact", artifact, *fresh]
    results = [found for line in output_of(inference, folder / "inference.log") if (found := parse_result(line))]
    if not results or results[-1].fresh_mse is None:
        raise RunFailedError(f"inference reported no error on fresh examples: see {folder}/inference.log")
    return record(options, seed, history, results[-1])


def training_flags(options: Options, seed: int, artifact: str) -> list[str]:
    """Returns the training program's flags."""
    return [
        "--workload=qcnn",
        f"--qubits={QUBITS}",
        f"--examples={EXAMPLES}",
        f"--epochs={options.epochs}",
        f"--global-batch-size={options.global_batch_size}",
        f"--learning-rate={options.learning_rate}",
        f"--threads={options.threads}",
        f"--seed={seed}",
        "--engine=tfq",
        "--progress=json",
        f"--artifact={artifact}",
    ]


def job(options: Options, seed: int, artifact: str) -> dict[str, Any]:
    """Returns the manifest of a job with the given number of workers."""
    trainer = {
        "name": "trainer",
        "image": "qmljob-worker",
        "command": ["python", "-m", "qmljob_training"],
        "args": training_flags(options, seed, artifact),
    }
    replicas = {"replicas": options.workers, "template": {"spec": {"containers": [trainer]}}}
    return {
        "apiVersion": "qml.dev/v1alpha1",
        "kind": "QMLJob",
        "metadata": {"name": f"parity-{seed}"},
        "spec": {"replicaSpecs": {"worker": replicas}},
    }


def output_of(command: list[str], log: Path) -> list[str]:
    """Runs a program to its end, keeps its output in a file and returns the lines."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ},
    )
    log.write_text(done.stdout)
    lines = done.stdout.splitlines()
    if done.returncode:
        raise RunFailedError("\n".join([f"{' '.join(command)}: exit code {done.returncode}", *lines[-ERROR_LINES:]]))
    return lines


def epochs_of(lines: Iterable[str]) -> list[Progress]:
    """Returns the first worker's progress, one entry an epoch in order (the last one said wins)."""
    said = (parse_progress(line) for line in lines)
    epochs = {entry.epoch: entry for entry in said if entry is not None and entry.index == 0}
    return [epochs[epoch] for epoch in sorted(epochs)]


def record(options: Options, seed: int, history: list[Progress], result: InferenceResult) -> dict[str, Any]:
    """Returns the run's record, with the names that tutorial.py uses."""
    return {
        "program": "qmljob",
        "seed": seed,
        "workers": options.workers,
        "epochs": options.epochs,
        "global_batch_size": options.global_batch_size,
        "learning_rate": options.learning_rate,
        "loss": history[-1].loss,
        "val_loss": history[-1].val_loss,
        "test_mse": result.mse,
        "test_sign_accuracy": result.sign_accuracy,
        "fresh_mse": result.fresh_mse,
        "fresh_examples": result.fresh_examples,
        "history": {
            "loss": [round(entry.loss, 6) for entry in history],
            "val_loss": [round(entry.val_loss, 6) for entry in history],
        },
        "seconds": round(sum(entry.seconds + entry.validation_seconds for entry in history), 2),
        "threads": options.threads,
    }
