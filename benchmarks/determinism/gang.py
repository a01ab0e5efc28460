"""Runs one training job as plain processes on this machine; returns what it left: a digest of all bits, and times."""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import settings
from settings import Settings

from qmljob_api.artifact import CheckpointPointer
from qmljob_api.progress import Progress, parse_progress
from qmljob_training.checkpoint import Checkpoint, CheckpointFolder
from qmljob_training.stores import open_store

WARM_UP_EPOCHS = 2
LIMIT_SECONDS = 600.0


class GangFailedError(Exception):
    """A worker ended badly or took too long; the message holds its last lines."""


@dataclass(frozen=True)
class Job:
    """One way to train.

    Attributes:
        settings: of TensorFlow.
        flags: of the worker program, besides qubits.
        environment: variables besides, sorted pairs.
    """

    settings: Settings = field(default_factory=Settings)
    workers: int = 1
    qubits: int = 8
    flags: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        extra = "".join(f", {name}={value}" for name, value in self.environment)
        return f"{self.qubits} qubits, {self.workers} worker(s), {self.settings}{extra}"


@dataclass(frozen=True)
class Outcome:
    """What a job left.

    Attributes:
        digest: sha256 of the last checkpoint's data: weights, optimizer slots and metrics; "" without checkpoints.
        losses: of each epoch, from the chief.
        epoch_seconds: wall time of one epoch's training, median after the warm-up, slowest worker.
        user_seconds, system_seconds: processor time of one epoch, mean after the warm-up, all workers together.
    """

    digest: str
    losses: tuple[float, ...]
    epoch_seconds: float
    user_seconds: float
    system_seconds: float


@dataclass
class _Log:
    epochs: list[Progress] = field(default_factory=list)
    times: list[tuple[int, float, float]] = field(default_factory=list)


def run(job: Job, checkpoints: Path | None = None) -> Outcome:
    """Trains to the end.

    Args:
        checkpoints: an empty folder for them; they add to an epoch's processor time, not to its wall time.

    Raises:
        GangFailedError: see there.
    """
    with tempfile.TemporaryDirectory() as name:
        extra = [f"--checkpoint-location={checkpoints.as_uri()}"] if checkpoints else []
        logs = [_read(text) for text in _outputs(job, extra, Path(name))]
    return Outcome(
        digest=last_checkpoint(checkpoints)[0].data.sha256 if checkpoints else "",
        losses=tuple(entry.loss for entry in logs[0].epochs),
        epoch_seconds=max(statistics.median(e.seconds for e in log.epochs[WARM_UP_EPOCHS:]) for log in logs),
        user_seconds=sum(_slope(log, 1) for log in logs),
        system_seconds=sum(_slope(log, 2) for log in logs),
    )


def last_checkpoint(folder: Path) -> tuple[CheckpointPointer, Checkpoint]:
    """Returns the newest checkpoint that a run left."""
    store = open_store((folder / "default/manual/manual").as_uri())
    found = CheckpointFolder(store, attempt=0, uid="manual", fingerprint={}, threads=0).latest()
    if found is None:
        raise GangFailedError(f"no checkpoint in {store.location}")
    return found


def _outputs(job: Job, extra: list[str], folder: Path) -> list[str]:
    command = [sys.executable, str(Path(__file__).with_name("measured_worker.py"))]
    command += [f"--qubits={job.qubits}", "--progress=json", *job.flags, *extra]
    with ExitStack() as stack:
        files: list[IO[str]] = [stack.enter_context((folder / f"{rank}.log").open("w+")) for rank in range(job.workers)]
        processes = [
            subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
            for environment, file in zip(environments(job), files, strict=True)
        ]
        try:
            codes = [process.wait(LIMIT_SECONDS) for process in processes]
        except subprocess.TimeoutExpired:
            codes = [-1] * job.workers
        finally:
            for process in processes:
                process.kill()
                process.wait()
        texts = []
        for file in files:
            file.seek(0)
            texts.append(file.read())
    for code, text in zip(codes, texts, strict=True):
        if code:
            what = f"not at its end after {LIMIT_SECONDS:g} s" if code == -1 else f"exit code {code}"
            raise GangFailedError("\n".join([f"{job}: {what}", *text.splitlines()[-8:]]))
    return texts


def environments(job: Job) -> list[dict[str, str]]:
    """Returns the environment of each of the job's processes."""
    own = {**os.environ, **dict(job.environment), settings.VARIABLE: job.settings.encode()}
    own.pop("TF_CONFIG", None)
    if job.workers == 1:
        return [own]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(job.workers)]}
    tasks = [{"type": "worker", "index": index} for index in range(job.workers)]
    return [{**own, "TF_CONFIG": json.dumps({"cluster": cluster, "task": task})} for task in tasks]


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _read(text: str) -> _Log:
    log = _Log()
    for line in text.splitlines():
        if (entry := parse_progress(line)) is not None:
            log.epochs.append(entry)
        elif line.startswith("{") and (times := json.loads(line).get(settings.TIMES_MARK)):
            log.times.append(tuple(times))
    return log


def _slope(log: _Log, column: int) -> float:
    """Returns the processor seconds an epoch, after the warm-up."""
    first, last = log.times[WARM_UP_EPOCHS - 1], log.times[-1]
    return (last[column] - first[column]) / (last[0] - first[0])
