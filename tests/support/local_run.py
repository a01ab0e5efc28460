"""Local runs of tiny programs in the place of replicas: manifests, runs in this process, and what is left behind."""

import io
import os
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from qmljob.local.output import Output
from qmljob.local.record import RunRecord, read_record
from qmljob.local.run import Folders, Options, run_job
from qmljob.local.supervisor import Timing
from qmljob.manifest import load_job

FAST = Timing(settle=0.2, backoff_base=0.01, restart_grace=0.3, stop_grace=0.3, linger=0.3)
LIMIT_SECONDS = 60
"""After which a wait for an event has failed."""

PRELUDE = """
import json, os, signal, sys
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
attempt = int(os.environ["QMLJOB_ATTEMPT"])

def say(*words):
    print(*words, flush=True)

def epoch(number, loss=None):
    line = dict(qmljob="progress/v1", role=config["task"]["type"], index=index, attempt=attempt, epoch=number, epochs=4,
                step=number, loss=loss or 1 / number, sign_accuracy=0.5, val_loss=2 / number, val_sign_accuracy=0.5,
                learning_rate=0.02, seconds=0.1, validation_seconds=0.1, examples_per_second=10.0)
    say(json.dumps(line))

def wait_for_the_end():
    signal.pause()

def meet():
    # The chief goes on when the others have come here: its end may be theirs.
    pipe = f"{__file__}.{attempt}"
    try:
        os.mkfifo(pipe)
    except FileExistsError:
        pass
    end = os.open(pipe, os.O_RDWR)
    if index:
        os.write(end, b".")
        return
    missing = len(config["cluster"]["worker"]) - 1
    while missing:
        missing -= len(os.read(end, missing))
"""
INFER = """
import json, os
assert "TF_CONFIG" not in os.environ
print(json.dumps(dict(qmljob="result/v1", artifact="gs://bucket/w.h5", mse=0.25, sign_accuracy=1.0, examples=8)))
"""


def manifest(folder: Path, program: str, *, inference: str | None = None, workers: int = 2, **spec: Any) -> Path:
    """Writes a manifest whose workers run a program, and returns its path."""
    (folder / "program.py").write_text(PRELUDE + textwrap.dedent(program))
    container = {"name": "trainer", "image": "x", "command": ["python", str(folder / "program.py")]}
    document: dict[str, Any] = {
        "apiVersion": "qml.dev/v1alpha1",
        "kind": "QMLJob",
        "metadata": {"name": "qcnn"},
        "spec": {
            "replicaSpecs": {"worker": {"replicas": workers, "template": {"spec": {"containers": [container]}}}},
            **spec,
        },
    }
    if inference is not None:
        (folder / "infer.py").write_text(textwrap.dedent(inference))
        container = {"name": "inference", "image": "x", "command": ["python3", str(folder / "infer.py")]}
        document["spec"]["inference"] = {"template": {"spec": {"containers": [container]}}}
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


class Run:
    """A run inside this process: what it printed, its exit code and its record."""

    def __init__(self, path: Path, *, inference: bool = True, timing: Timing = FAST, store: Path | None = None) -> None:
        stdout, stderr = io.StringIO(), io.StringIO()
        folder = path.parent / f"run-{len(list(path.parent.glob('run-*')))}"
        options = Options(
            path, Folders(folder, store or folder / "store"), "qmljob run again", inference=inference, timing=timing
        )
        self.code = run_job(load_job(path), options, Output(stdout, stderr))
        self.out, self.err = stdout.getvalue(), stderr.getvalue()
        self.folder = folder
        self.record: RunRecord = read_record(folder)

    def log(self, name: str) -> str:
        return (self.folder / "logs" / f"{name}.log").read_text()


def processes_of(folder: Path) -> list[int]:
    """Returns the ids of all processes, zombies aside, whose command line names something in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


@pytest.fixture
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """Every test ends without a process of its own, and with the signal handlers that it found."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    yield
    assert processes_of(tmp_path) == []
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers
