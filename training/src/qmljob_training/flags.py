"""The worker program's flags: parsed and checked into one frozen value, before anything heavy is imported."""

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qmljob_api import environment
from qmljob_api.artifact import MAX_QUBITS
from qmljob_training import plugins
from qmljob_training.commandline import (
    FlagParser,
    add_artifact_flags,
    artifact_location,
    location,
    port_number,
    positive_number,
    whole_number,
)
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
    parser = training_parser(
        "python -m qmljob_training", "Train one replica's part of a quantum machine-learning model."
    )
    return config_of(parser.parse_args(arguments), env)


def config_of(given: argparse.Namespace, env: Mapping[str, str]) -> TrainingConfig:
    """Returns what parsed flags say; raises ConfigurationError where they can't work together."""
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
        artifact=artifact_location(given),
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


def training_parser(program: str, description: str) -> argparse.ArgumentParser:
    """Returns the parser of training's flags, for `config_of`."""
    parser = FlagParser(
        prog=program,
        description=description,
        epilog="Also: python -m qmljob_training describe --help, python -m qmljob_training explain --help",
    )
    _add_model_flags(parser.add_argument_group("model and data"))
    _add_training_flags(parser.add_argument_group("training"))
    _add_place_flags(parser.add_argument_group("places"))
    _add_watching_flags(parser.add_argument_group("watching"))
    return parser


def _add_model_flags(group: argparse._ArgumentGroup) -> None:
    known = ", ".join(plugins.names(plugins.WORKLOADS))
    add = group.add_argument
    add("--workload", default="qcnn", help=f"model with its data set (default %(default)s; here: {known})")
    add("--qubits", type=whole_number(1, MAX_QUBITS), default=8, help="default %(default)s")
    add("--examples", type=whole_number(1), default=160, help="training and test examples together (%(default)s)")
    add("--seed", type=whole_number(0), default=0, help="of data, order and weights (default %(default)s)")
    engines = ", ".join(plugins.names(plugins.ENGINES))
    add("--engine", default="auto", help=f"what simulates circuits (default %(default)s; here: {engines})")


def _add_training_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--strategy", default="multi-worker-mirrored", help="how replicas work together (default %(default)s)")
    add("--epochs", type=whole_number(1), default=50, help="default %(default)s")
    batch = group.add_mutually_exclusive_group()
    batch.add_argument("--batch-size", type=whole_number(1), default=32, help="examples a step, per worker (32)")
    batch.add_argument("--global-batch-size", type=whole_number(1), help="examples a step, over all workers, instead")
    add("--learning-rate", type=positive_number, default=0.02, help="default %(default)s")
    add("--threads", type=whole_number(1), default=1, help="of TensorFlow; same count, same bits (default %(default)s)")


def _add_place_flags(group: argparse._ArgumentGroup) -> None:
    add_artifact_flags(group)
    add = group.add_argument
    add(
        "--checkpoint-location", type=location, metavar="LOCATION", help="gs:// or file:// folder; none: no checkpoints"
    )
    add("--checkpoint-steps", type=whole_number(0), default=0, help="also every N steps (default: each epoch only)")
    add("--resume-from", type=location, metavar="LOCATION", help="another job's checkpoint folder to start from")


def _add_watching_flags(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--logdir", type=location, metavar="LOCATION", help="folder or gs:// for TensorBoard's event files")
    add("--profiler-port", type=port_number, help="serve TensorFlow's profiler here")
    add("--profile-epoch", type=whole_number(0), default=0, help="profile this epoch into --logdir (default: none)")
    add("--progress", choices=("auto", "bar", "json"), default="auto", help="default %(default)s")
    add("--grace-seconds", type=positive_number, default=30.0, help="from SIGTERM to SIGKILL (default %(default)s)")


def _seconds(env: Mapping[str, str], name: str) -> float:
    text = env.get(name) or "0"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ConfigurationError(f"{name}={text}: must be a number of seconds, 0 for no limit")
    return value
