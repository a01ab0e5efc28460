"""Asks the training program to describe an artifact: a process, since the client never imports TensorFlow."""

import os
import subprocess
import sys
from pathlib import Path

from qmljob.local import launch
from qmljob.local.plan import inherited_environment
from qmljob.local.record import RunRecord
from qmljob.report.errors import NoDescriptionError
from qmljob_api import environment
from qmljob_api.description import ArtifactDescription, parse_description

LIMIT_SECONDS = 300.0
_MESSAGE_CHARACTERS = 300


def describe(record: RunRecord) -> ArtifactDescription:
    """Returns the description of a run's artifact.

    Raises:
        NoDescriptionError: the run left no artifact, or not one of our training program's.
    """
    if record.artifact is None:
        raise NoDescriptionError("the run left no artifact")
    try:
        ended = subprocess.run(
            _command(record.artifact),
            env={**inherited_environment(os.environ), environment.STORE_ROOT: record.store},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoDescriptionError(f"describing the artifact took more than {LIMIT_SECONDS:.0f} s") from None
    except OSError as error:
        raise NoDescriptionError(f"{sys.executable} can't be started: {error.strerror}") from None
    if ended.returncode != 0:
        said = ended.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {ended.returncode}"]
        raise NoDescriptionError(said[-1].removeprefix("error: ")[:_MESSAGE_CHARACTERS].rstrip("."))
    description = parse_description(ended.stdout)
    if description is None:
        raise NoDescriptionError("the training program here is of another version; install the same one as qmljob's")
    return description


def _command(artifact: str) -> list[str]:
    # Started through the launcher, it ends with us, as the replicas do.
    start = [sys.executable, "-I", "-S", str(Path(launch.__file__)), str(os.getpid())]
    return [*start, sys.executable, "-m", "qmljob_training", "describe", f"--artifact={artifact}", "--json"]
