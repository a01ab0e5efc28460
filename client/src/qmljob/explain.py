"""`qmljob explain`: asks the training program what a job would compute, as a process: TensorFlow stays out of here."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from qmljob.local import launch
from qmljob.local.plan import inherited_environment, plan_process
from qmljob_api import names
from qmljob_api.exitcodes import ExitCode
from qmljob_api.explanation import Explanation, parse_explanation
from qmljob_api.types import QMLJob
from qmljob_operator.resources.common import main_container
from qmljob_operator.resources.pod import build_pod
from qmljob_operator.topology import build_topology, service_addresses

LIMIT_SECONDS = 300.0
PROGRAM = "qmljob_training"
_OTHERS = ("describe", "explain")


class NoExplanationError(Exception):
    """There is nothing to explain, in one line. `code` is what the command ends with."""

    def __init__(self, text: str, code: int = ExitCode.INVALID_CONFIGURATION) -> None:
        super().__init__(text)
        self.code = int(code)


def explain(job: QMLJob) -> Explanation:
    """Returns the training program's explanation of what the job's chief, or worker 0, would run.

    Raises:
        NoExplanationError: the container runs another program, its flags are wrong, or it can't run on this machine.
    """
    arguments, environment = training_arguments(job)
    try:
        ended = subprocess.run(
            _command(arguments),
            env={**inherited_environment(os.environ), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoExplanationError(f"explaining took more than {LIMIT_SECONDS:.0f} s", 1) from None
    except OSError as error:
        raise NoExplanationError(f"{sys.executable} can't be started: {error.strerror}", 1) from None
    if ended.returncode != 0:
        said = ended.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {ended.returncode}"]
        invalid = ended.returncode == ExitCode.INVALID_CONFIGURATION
        raise NoExplanationError(said[-1].removeprefix("error: "), ended.returncode if invalid else 1)
    found = parse_explanation(ended.stdout)
    if found is None:
        raise NoExplanationError("the training program here is of another version; install the same one as qmljob's", 1)
    return found


def training_arguments(job: QMLJob) -> tuple[tuple[str, ...], dict[str, str]]:
    """Returns the flags and variables that the chief's training program gets, as a local run finds them.

    Raises:
        NoExplanationError: its container does not run our training program.
    """
    topology = build_topology(job)
    pod = build_pod(job, topology, topology.chief, attempt=0, restarts=0, addresses=service_addresses(job, topology))
    container = main_container(pod["spec"], names.TRAINER_CONTAINER_NAMES)
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    start = [str(word) for word in words[:3]]
    python = bool(start) and PurePosixPath(start[0]).name in {"python", "python3"}
    if not python or start[1:] != ["-m", PROGRAM] or str(next(iter(words[3:]), "")) in _OTHERS:
        raise NoExplanationError(
            f"container {container.get('name')} runs {' '.join(start) or 'what its image says'}: explain knows only "
            f"this project's worker program, with the command [python, -m, {PROGRAM}]"
        )
    plan = plan_process(
        {"spec": {"containers": [{**container, "command": words, "args": []}]}},
        name=topology.chief.name,
        extra_env={},
        workdir=Path.cwd(),
    )
    return plan.argv[3:], dict(plan.env)


def _command(arguments: Sequence[str]) -> list[str]:
    # Started through the launcher, it ends with us, as the replicas do.
    start = [sys.executable, "-I", "-S", str(Path(launch.__file__)), str(os.getpid())]
    own = arguments[1:] if arguments[:1] == ("train",) else arguments
    return [*start, sys.executable, "-m", PROGRAM, "explain", *own, "--json"]
