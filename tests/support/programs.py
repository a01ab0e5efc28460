"""Starts the worker and inference programs as their users do: as processes, by flags and environment."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from qmljob_api import environment
from qmljob_api.progress import InferenceResult, Progress, parse_progress, parse_result

SMALL = ("--qubits=4", "--examples=40", "--global-batch-size=8", "--seed=7", "--progress=json", "--engine=tfq")
"""A job whose training takes less than its start: 28 training examples, 4 steps an epoch, and nothing to compile."""
LIMIT_SECONDS = 240


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it wrote."""

    code: int
    stdout: str
    stderr: str

    @property
    def progress(self) -> list[Progress]:
        """Its progress lines."""
        return [line for text in self.stdout.splitlines() if (line := parse_progress(text)) is not None]

    @property
    def result(self) -> InferenceResult | None:
        """Its inference result."""
        return next((line for text in self.stdout.splitlines() if (line := parse_result(text)) is not None), None)

    def check_refusal(self, code: int, *words: str) -> None:
        """Asserts one line of error with these words, this exit code, and no traceback."""
        assert self.code == code, self.stderr
        assert "Traceback" not in self.stderr
        errors = [line for line in self.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, self.stderr
        for word in words:
            assert word in errors[0], errors[0]


def variables(**extra: str) -> dict[str, str]:
    """The environment of a program: this process's without any job's variables, and `extra`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("QMLJOB_", "TF_CONFIG"))}
    return inherited | extra


def start(
    module: str, flags: Sequence[str], env: Mapping[str, str], *, stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Starts `python -m <module>`; its output is read from pipes."""
    return start_command([sys.executable, "-m", module, *flags], env, stderr=stderr)


def start_command(
    command: Sequence[str], env: Mapping[str, str], *, stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Starts a program; its output is read from pipes."""
    return subprocess.Popen(command, env=dict(env), stdout=subprocess.PIPE, stderr=stderr, text=True)


def finish(process: subprocess.Popen[str]) -> Ended:
    """Waits for the end of a process; kills it when that takes too long."""
    try:
        stdout, stderr = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
    return Ended(process.returncode, stdout, stderr or "")


def train(*flags: str, env: Mapping[str, str] | None = None) -> Ended:
    """Runs a single worker to its end."""
    return finish(start("qmljob_training", flags, variables(**(env or {}))))


def infer(*flags: str, env: Mapping[str, str] | None = None) -> Ended:
    """Runs the inference program to its end."""
    return finish(start("qmljob_inference", flags, variables(**(env or {}))))


def tf_config(ports: Sequence[int], index: int) -> str:
    """TF_CONFIG of a worker among workers on loopback ports."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def start_gang(
    workers: int, *flags: str, env: Mapping[str, str] | None = None, last: Sequence[str] = ()
) -> list[subprocess.Popen[str]]:
    """Starts workers that find each other by TF_CONFIG; the last one has additional flags."""
    ports = free_ports(workers)
    own = {environment.NAME: "qcnn", environment.PEER_TIMEOUT_SECONDS: "120", **(env or {})}
    return [
        start(
            "qmljob_training",
            [*flags, *(last if index == workers - 1 else ())],
            variables(**own, TF_CONFIG=tf_config(ports, index)),
        )
        for index in range(workers)
    ]


def train_gang(
    workers: int, *flags: str, env: Mapping[str, str] | None = None, last: Sequence[str] = ()
) -> list[Ended]:
    """Runs workers to their end."""
    gang = start_gang(workers, *flags, env=env, last=last)
    try:
        return [finish(process) for process in gang]
    finally:
        for process in gang:
            process.kill()


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a weights file, by path inside it."""
    weights: dict[str, np.ndarray] = {}

    def keep(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset):
            weights[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(keep)
    return weights


def assert_same_bits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """Asserts that two sets of weights are equal, bit for bit."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value, err_msg=name)
