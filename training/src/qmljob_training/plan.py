"""What a worker is about to do: everything that is known, and checked, before TensorFlow is imported."""

import hashlib
from dataclasses import asdict, dataclass, replace

from qmljob_training import plugins
from qmljob_training.artifact import ArtifactWriter, check_location
from qmljob_training.checkpoint import CheckpointFolder, Fingerprint
from qmljob_training.engines import auto
from qmljob_training.errors import ConfigurationError
from qmljob_training.finite import check_finite
from qmljob_training.flags import TrainingConfig
from qmljob_training.native import ops
from qmljob_training.rendezvous import Rendezvous, check_port
from qmljob_training.stores import open_store
from qmljob_training.strategies.protocol import Strategy
from qmljob_training.workloads.protocol import DataSet, Workload


@dataclass(frozen=True)
class Plan:
    """A replica's part of a job.

    Attributes:
        config: the flags, with `--engine auto` replaced by the engine that it comes to.
        engine_reason: why that engine.
        checkpoints: the job's own folder; resume: the folder to start from where that one is empty.
        artifact: set on the chief only.
    """

    config: TrainingConfig
    engine_reason: str
    rendezvous: Rendezvous
    strategy: Strategy
    workload: Workload
    data: DataSet
    checkpoints: CheckpointFolder | None
    resume: CheckpointFolder | None
    artifact: ArtifactWriter | None

    @property
    def global_batch_size(self) -> int:
        """Examples a step, over all workers."""
        return self.config.batch_of_all(self.rendezvous.workers)


def make_plan(config: TrainingConfig, rendezvous: Rendezvous) -> Plan:
    """Checks the flags against each other, the gang and the stores.

    Raises:
        ConfigurationError, StoreError: one line that says what to change.
    """
    strategy: Strategy = plugins.load(plugins.STRATEGIES, config.strategy, Strategy)
    strategy.check(rendezvous)
    workload: Workload = plugins.load(plugins.WORKLOADS, config.workload, Workload)
    plugins.check_known(plugins.ENGINES, config.engine)
    workload.check(config.options)
    data = workload.data(config.options)
    check_finite(data)
    _check_batches(config, rendezvous, len(data.train))
    _check_ports(config, rendezvous)
    # Before the fingerprint is made: what is recorded is what was used. Loaded when TensorFlow is set up.
    choice = auto.resolve(config.engine, workload, config.options)
    config = replace(config, engine=choice.engine)
    return Plan(
        config=config,
        engine_reason=choice.reason,
        rendezvous=rendezvous,
        strategy=strategy,
        workload=workload,
        data=data,
        checkpoints=_own_folder(config, rendezvous),
        resume=_folder(config, rendezvous, config.resume_from, "--resume-from") if config.resume_from else None,
        artifact=_artifact_writer(config, config.artifact) if config.artifact and rendezvous.is_chief else None,
    )


def check_same_flags(plan: Plan) -> None:
    """Checks, once the gang is connected, that all workers run with the same flags.

    Two workers with different seeds would train without an error, and to no purpose; with different numbers of epochs
    they would wait for each other's collectives.

    Raises:
        ConfigurationError: names the flags that differ.
    """
    config = plan.config
    flags: dict[str, object] = {f"--{name.replace('_', '-')}": value for name, value in asdict(config.options).items()}
    flags |= {"--workload": config.workload, "--engine": config.engine, "--strategy": config.strategy}
    flags |= {"--epochs": config.epochs, "--learning-rate": config.learning_rate, "--threads": config.threads}
    flags |= {"--batch-size or --global-batch-size": plan.global_batch_size}
    flags |= {"--checkpoint-location": config.checkpoint_location, "--checkpoint-steps": config.checkpoint_steps}
    flags |= {"--resume-from": config.resume_from, "--artifact": config.artifact, "--logdir": config.logdir}
    flags |= {"--profile-epoch": config.profile_epoch, "the attempt": config.job.attempt}
    if _is_common(plan, flags):
        return
    differing = [name for name, value in flags.items() if not _is_common(plan, {name: value})]
    raise ConfigurationError(
        f"the replicas run with different flags ({', '.join(differing)}): "
        "make the arguments of all roles in replicaSpecs the same"
    )


def _is_common(plan: Plan, flags: dict[str, object]) -> bool:
    digest = hashlib.sha256(repr(sorted(flags.items())).encode()).hexdigest()
    return len(set(plan.strategy.exchange(int(digest[:15], 16)))) == 1


def _check_batches(config: TrainingConfig, rendezvous: Rendezvous, examples: int) -> None:
    workers = rendezvous.workers
    if workers > examples:
        raise ConfigurationError(
            f"{workers} workers for {examples} training examples (70 % of --examples {config.options.examples}): "
            "use fewer workers or more examples"
        )
    if config.batch_of_all(workers) < workers:
        raise ConfigurationError(
            f"--global-batch-size {config.global_batch_size}: less than one example for each of {workers} workers; "
            f"use {workers} or more"
        )


def _check_ports(config: TrainingConfig, rendezvous: Rendezvous) -> None:
    if rendezvous.port is not None:
        check_port(rendezvous.port, "TF_CONFIG's port")
    if config.profiler_port is None:
        return
    if config.profiler_port == rendezvous.port:
        raise ConfigurationError(f"--profiler-port {config.profiler_port}: is TF_CONFIG's port too; choose another")
    check_port(config.profiler_port, "--profiler-port")


def _own_folder(config: TrainingConfig, rendezvous: Rendezvous) -> CheckpointFolder | None:
    if config.checkpoint_location is None:
        return None
    location = f"{config.checkpoint_location.rstrip('/')}/{config.job.path}"
    folder = _folder(config, rendezvous, location, "--checkpoint-location")
    if rendezvous.is_chief:
        folder.store.check_writable()
    return folder


def _folder(config: TrainingConfig, rendezvous: Rendezvous, location: str, flag: str) -> CheckpointFolder:
    fingerprint: Fingerprint = {"workload": config.workload, **asdict(config.options)}
    fingerprint |= {"learning_rate": config.learning_rate, "engine": config.engine, "strategy": config.strategy}
    if config.engine == auto.LIGHTCONE:
        # Loops of another instruction set give other last bits, and so does TensorFlow in their place.
        fingerprint |= {"loops": ops.description()}
    fingerprint |= {"global_batch_size": config.batch_of_all(rendezvous.workers), "workers": rendezvous.workers}
    return CheckpointFolder(
        open_store(location),
        attempt=config.job.attempt,
        uid=config.job.uid,
        fingerprint=fingerprint,
        threads=config.threads,
        flag=flag,
    )


def _artifact_writer(config: TrainingConfig, location: str) -> ArtifactWriter:
    folder, stem = check_location(location)
    writer = ArtifactWriter(location, open_store(folder), stem, attempt=config.job.attempt, uid=config.job.uid)
    writer.check()
    return writer
