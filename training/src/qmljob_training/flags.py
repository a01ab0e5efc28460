"""The worker program's flags: parsed and checked into one frozen value, before anything heavy is imported."""

import argparse
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from qmljob_api import environment
from qmljob_training import plugins
from qmljob_training.errors import ConfigurationError
from qmljob_training.workloads.protocol import WorkloadOptions


@dataclass(frozen=True)
class JobIdentity:
    """Who this process works for, from the operator's environment variables.

    Attributes:
        namespace, name, uid: of the job; a run by hand is `default/manual` with uid `manual`.
        attempt: of the gang, from 0.
    """

    namespace: str
    name: str
    uid: str
    attempt: int

    @property
    def path(self) -> str:
        """The job's own folder below a checkpoint location."""
        return f"{self.namespace}/{self.name}/{self.uid}"


@dataclass(frozen=True)
class TrainingConfig:
    """Everything that the flags say.

    Attributes:
        batch_size: per worker; None where global_batch_size is given, and the other way round.
        artifact: location of the weights, or None: then none are uploaded.
        checkpoint_location: None: then there are no checkpoints.
        checkpoint_steps: steps between checkpoints inside an epoch; 0 means only at the end of each epoch.
        resume_from: another job's checkpoint folder, read where this job has no checkpoint of its own.
        profile_epoch: the epoch that is profiled, from 1; 0 means none.
        progress: `auto` (a bar on a terminal, else JSON lines), `bar` or `json`.
        grace_seconds: between SIGTERM and SIGKILL.
    """

    workload: str
    strategy: str
    engine: str
    options: WorkloadOptions
    epochs: int
    batch_size: int | None
    global_batch_size: int | None
    learning_rate: float
    threads: int
    artifact: str | None
    checkpoint_location: str | None
    checkpoint_steps: int
    resume_from: str | None
    logdir: str | None
    profiler_port: int | None
    profile_epoch: int
    progress: str
    grace_seconds: float
    peer_timeout_seconds: float
    job: JobIdentity

    def batch_of_all(self, workers: int) -> int:
        """Returns the global batch size for a number of workers."""
        return self.global_batch_size or (self.batch_size or 0) * workers


def parse_flags(arguments: Sequence[str], env: Mapping[str, str] = os.environ) -> TrainingConfig:
    """Parses and checks the flags.

    Raises:
        ConfigurationError: a flag is unknown, or a value can't work; the message names the flag and what is right.
    """
    given = _parser().parse_args(arguments)
    return TrainingConfig(
        workload=given.workload,
        strategy=given.strategy,
        engine=given.engine,
        options=WorkloadOptions(qubits=given.qubits, examples=given.examples, seed=given.seed),
        epochs=given.epochs,
        batch_size=None if given.global_batch_size else given.batch_size,
        global_batch_size=given.global_batch_size,
        learning_rate=given.learning_rate,
        threads=given.threads,
        artifact=artifact_location(given.artifact, given.weights_gcs_bucket, given.weights_gcs_path),
        checkpoint_location=given.checkpoint_location,
        checkpoint_steps=given.checkpoint_steps,
        resume_from=given.resume_from,
        logdir=given.logdir,
        profiler_port=given.profiler_port,
        profile_epoch=given.profile_epoch,
        progress=given.progress,
        grace_seconds=given.grace_seconds,
        peer_timeout_seconds=_seconds(env, environment.PEER_TIMEOUT_SECONDS),
        job=read_identity(env),
    )


def read_identity(env: Mapping[str, str]) -> JobIdentity:
    """Reads the operator's variables.

    Raises:
        ConfigurationError: the attempt is no number.
    """
    attempt = env.get(environment.ATTEMPT, "0")
    if not (attempt.isascii() and attempt.isdigit()):
        raise ConfigurationError(f"{environment.ATTEMPT}={attempt}: must be a whole number from 0")
    return JobIdentity(
        namespace=env.get(environment.NAMESPACE, "") or "default",
        name=env.get(environment.NAME, "") or "manual",
        uid=env.get(environment.UID, "") or "manual",
        attempt=int(attempt),
    )


class _Parser(argparse.ArgumentParser):
    """Reports errors as ConfigurationError: argparse's own exit code is 2, which any Python program may end with."""

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(f"{message}; see python -m qmljob_training --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m qmljob_training",
        description="Train one replica's part of a quantum machine-learning model.",
        epilog="Also: python -m qmljob_training describe --help",
        allow_abbrev=False,
    )
    model = parser.add_argument_group("model and data")
    known = ", ".join(plugins.names(plugins.WORKLOADS))
    model.add_argument(
        "--workload", default="qcnn", help=f"model with its data set (default %(default)s; here: {known})"
    )
    model.add_argument("--qubits", type=whole_number("--qubits", 1), default=8, help="default %(default)s")
    model.add_argument(
        "--examples", type=whole_number("--examples", 1), default=160, help="training and test examples together (160)"
    )
    model.add_argument(
        "--seed", type=whole_number("--seed", 0), default=0, help="of data, order and weights (default 0)"
    )
    model.add_argument("--engine", default="tfq", help="what simulates circuits (default %(default)s)")

    loop = parser.add_argument_group("training")
    loop.add_argument("--strategy", default="multi-worker-mirrored", help="how replicas work together")
    loop.add_argument("--epochs", type=whole_number("--epochs", 1), default=50, help="default %(default)s")
    loop.add_argument("--batch-size", type=whole_number("--batch-size", 1), default=32, help="per worker (default 32)")
    loop.add_argument(
        "--global-batch-size", type=whole_number("--global-batch-size", 1), help="over all workers, instead"
    )
    loop.add_argument("--learning-rate", type=_positive("--learning-rate"), default=0.02, help="default %(default)s")
    loop.add_argument(
        "--threads",
        type=whole_number("--threads", 1),
        default=1,
        help="of TensorFlow; same count, same bits (default 1)",
    )

    place = parser.add_argument_group("places")
    place.add_argument("--weights-gcs-bucket", metavar="BUCKET", help="bucket for the weights")
    place.add_argument("--weights-gcs-path", metavar="PATH", help="path of the weights in the bucket (… .h5)")
    place.add_argument("--artifact", metavar="LOCATION", help="the same as one gs:// or file:// location")
    place.add_argument(
        "--checkpoint-location", metavar="LOCATION", help="gs:// or file:// folder; none: no checkpoints"
    )
    place.add_argument(
        "--checkpoint-steps",
        type=whole_number("--checkpoint-steps", 0),
        default=0,
        help="also every N steps (0: each epoch)",
    )
    place.add_argument("--resume-from", metavar="LOCATION", help="another job's checkpoint folder to start from")

    watch = parser.add_argument_group("watching")
    watch.add_argument("--logdir", metavar="LOCATION", help="folder or gs:// for TensorBoard's event files")
    watch.add_argument("--profiler-port", type=_port, help="serve TensorFlow's profiler here")
    watch.add_argument(
        "--profile-epoch",
        type=whole_number("--profile-epoch", 0),
        default=0,
        help="profile this epoch into --logdir (0: none)",
    )
    watch.add_argument("--progress", choices=("auto", "bar", "json"), default="auto", help="default %(default)s")
    watch.add_argument(
        "--grace-seconds", type=_positive("--grace-seconds"), default=30.0, help="between SIGTERM and SIGKILL (30)"
    )
    return parser


def artifact_location(location: str | None, bucket: str | None, path: str | None) -> str | None:
    """Returns the one location that --artifact, or the tutorial's --weights-gcs-bucket and --weights-gcs-path, name.

    Raises:
        ConfigurationError: both ways at once, or half of the second.
    """
    if location and (bucket or path):
        raise ConfigurationError("--artifact: give either it or --weights-gcs-bucket with --weights-gcs-path, not both")
    if bool(bucket) != bool(path):
        missing = "--weights-gcs-path" if bucket else "--weights-gcs-bucket"
        raise ConfigurationError(f"{missing} is missing: the bucket and the path of the weights go together")
    return f"gs://{bucket.removeprefix('gs://').strip('/')}/{path.lstrip('/')}" if bucket and path else location


def whole_number(flag: str, least: int) -> Callable[[str], int]:
    """Returns a parser of whole numbers from `least`; it raises ConfigurationError."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ConfigurationError(f"{flag} {text}: must be a whole number") from None
        if not least <= value < 2**31:
            raise ConfigurationError(f"{flag} {text}: must be {least} or more, and below {2**31}")
        return value

    return parse


def _positive(flag: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ConfigurationError(f"{flag} {text}: must be a number") from None
        if not (math.isfinite(value) and value > 0):
            raise ConfigurationError(f"{flag} {text}: must be a finite number above 0")
        return value

    return parse


def _port(text: str) -> int:
    value = whole_number("--profiler-port", 1)(text)
    if value > 65535:
        raise ConfigurationError(f"--profiler-port {text}: must be 65535 or less")
    return value


def _seconds(env: Mapping[str, str], name: str) -> float:
    text = env.get(name) or "0"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ConfigurationError(f"{name}={text}: must be a number of seconds, 0 for no limit")
    return value
