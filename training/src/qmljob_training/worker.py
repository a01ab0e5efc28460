"""The worker program: one replica's run, from flags to exit code."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from qmljob_api.artifact import CheckpointPointer, ModelDescription, RunDescription
from qmljob_api.progress import Progress
from qmljob_training import plugins, runtime
from qmljob_training.artifact import ArtifactWriter, check_location
from qmljob_training.batches import slice_size
from qmljob_training.checkpoint import CheckpointFolder, Fingerprint, Position
from qmljob_training.engines.protocol import Engine
from qmljob_training.errors import BadArtifactError, ConfigurationError
from qmljob_training.evaluation import Evaluation
from qmljob_training.event_files import EventFiles
from qmljob_training.flags import TrainingConfig, parse_flags
from qmljob_training.loop import Loop, LoopConfig
from qmljob_training.peers import wait_for_peers
from qmljob_training.preemption import StopRequest
from qmljob_training.progress import ProgressReporter, say
from qmljob_training.rendezvous import Rendezvous, check_port, read_rendezvous
from qmljob_training.stores import open_store
from qmljob_training.strategies.protocol import Strategy, Trainer
from qmljob_training.workloads.protocol import DataSet, Workload

_ARRIVED = 1
"""What workers exchange where only the meeting counts."""


@dataclass(frozen=True)
class Plan:
    """Everything that is known, and checked, before TensorFlow is imported.

    Attributes:
        checkpoints: the job's own folder; resume: the folder to start from where that one is empty.
        artifact: set on the chief only.
    """

    config: TrainingConfig
    rendezvous: Rendezvous
    strategy: Strategy
    workload: Workload
    data: DataSet
    checkpoints: CheckpointFolder | None
    resume: CheckpointFolder | None
    artifact: ArtifactWriter | None

    @property
    def global_batch_size(self) -> int:
        return self.config.batch_of_all(self.rendezvous.workers)


def run(arguments: Sequence[str], env: Mapping[str, str] = os.environ) -> None:
    """Runs one replica to its end.

    Raises:
        ProgramError, StoreError: whatever ends the run early; `__main__` turns it into one line and an exit code.
    """
    plan = make_plan(parse_flags(arguments, env), read_rendezvous(env))
    stop = StopRequest(plan.config.grace_seconds)
    stop.install()
    trainer = _join(plan, stop)
    position = _restore(plan, trainer)
    _say_start(plan, position)
    position = _train(plan, trainer, position, stop)
    if plan.artifact is not None:
        _save_artifact(plan, plan.artifact, trainer, position)
    # Nobody leaves before the artifact is whole: a chief that dies while it uploads takes the gang along.
    trainer.exchange(_ARRIVED)


def make_plan(config: TrainingConfig, rendezvous: Rendezvous) -> Plan:
    """Checks the flags against each other, the gang and the stores.

    Raises:
        ConfigurationError, StoreError: one line that says what to change.
    """
    strategy: Strategy = plugins.load(plugins.STRATEGIES, config.strategy, Strategy)
    strategy.check(rendezvous)
    workload: Workload = plugins.load(plugins.WORKLOADS, config.workload, Workload)
    plugins.check_known(plugins.ENGINES, config.engine)  # loaded when TensorFlow is set up; a typing error shows now
    workload.check(config.options)
    data = workload.data(config.options)
    _check_batches(config, rendezvous, len(data.train))
    if rendezvous.port is not None:
        check_port(rendezvous.port, "TF_CONFIG's port")
    if config.profiler_port is not None:
        check_port(config.profiler_port, "--profiler-port")
    chief = rendezvous.is_chief
    return Plan(
        config=config,
        rendezvous=rendezvous,
        strategy=strategy,
        workload=workload,
        data=data,
        checkpoints=_checkpoint_folder(config, rendezvous, config.checkpoint_location, config.job.path),
        resume=_checkpoint_folder(config, rendezvous, config.resume_from, ""),
        artifact=_artifact_writer(config, config.artifact) if config.artifact and chief else None,
    )


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


def _checkpoint_folder(
    config: TrainingConfig, rendezvous: Rendezvous, location: str | None, below: str
) -> CheckpointFolder | None:
    if location is None:
        return None
    store = open_store(f"{location.rstrip('/')}/{below}".rstrip("/"))
    if rendezvous.is_chief and below:
        store.check_writable()
    options = config.options
    fingerprint: Fingerprint = {"workload": config.workload, **asdict(options)}
    fingerprint |= {"learning_rate": config.learning_rate, "engine": config.engine, "strategy": config.strategy}
    fingerprint |= {"global_batch_size": config.batch_of_all(rendezvous.workers), "workers": rendezvous.workers}
    return CheckpointFolder(
        store, attempt=config.job.attempt, uid=config.job.uid, fingerprint=fingerprint, threads=config.threads
    )


def _artifact_writer(config: TrainingConfig, location: str) -> ArtifactWriter:
    folder, stem = check_location(location)
    writer = ArtifactWriter(location, open_store(folder), stem, attempt=config.job.attempt, uid=config.job.uid)
    writer.check()
    return writer


def _join(plan: Plan, stop: StopRequest) -> Trainer:
    config = plan.config
    runtime.configure(config.threads)
    wait_for_peers(plan.rendezvous, config.peer_timeout_seconds, say)
    plan.strategy.connect(plan.rendezvous)
    stop.install()
    if config.profiler_port is not None:
        import tensorflow as tf

        tf.profiler.experimental.server.start(config.profiler_port)
    engine: Engine = plugins.load(plugins.ENGINES, config.engine, Engine)
    return plan.strategy.trainer(lambda: plan.workload.model(config.options, engine), plan.data, config.learning_rate)


def _restore(plan: Plan, trainer: Trainer) -> Position:
    """Takes the newest checkpoint, on all workers the same one.

    The chief claims it first: from then on no process of an older attempt can replace it while the others read.

    Raises:
        ConfigurationError: the workers see different checkpoints.
    """
    if plan.checkpoints is None and plan.resume is None:
        return Position()
    found = _read_checkpoint(plan, trainer) if plan.rendezvous.is_chief else None
    trainer.exchange(_ARRIVED)
    position, digest = found or _read_checkpoint(plan, trainer)
    if len(set(trainer.exchange(digest))) > 1:
        raise ConfigurationError(
            f"the workers see different checkpoints at {plan.config.checkpoint_location or plan.config.resume_from}: "
            "choose a location that all of them share (gs://, or a shared volume)"
        )
    return position


def _read_checkpoint(plan: Plan, trainer: Trainer) -> tuple[Position, int]:
    """Restores the newest checkpoint, if there is one; returns its position, and a number made from its content."""
    for folder in (plan.checkpoints, plan.resume):
        found = folder.latest() if folder is not None else None
        if folder is None or found is None:
            continue
        pointer, checkpoint = found
        _check_same_model(plan, folder, pointer)
        if folder is plan.checkpoints and plan.rendezvous.is_chief and not folder.claim(pointer):
            return _read_checkpoint(plan, trainer)
        try:
            trainer.restore(checkpoint.state)
        except BadArtifactError as error:
            raise BadArtifactError(
                f"checkpoint {folder.store.location}: {error}; choose another --checkpoint-location"
            ) from error
        return checkpoint.position, int(pointer.data.sha256[:15], 16)
    return Position(), 0


def _check_same_model(plan: Plan, folder: CheckpointFolder, pointer: CheckpointPointer) -> None:
    """Refuses a checkpoint of another model or data; warns by name of what changes the bits that follow."""
    own = folder.fingerprint
    differing = {name for name in own if pointer.fingerprint.get(name) != own[name]}
    if wrong := differing & {"workload", "qubits", "examples", "seed"}:
        there = ", ".join(f"{name} {pointer.fingerprint.get(name)} (here {own[name]})" for name in sorted(wrong))
        raise BadArtifactError(
            f"checkpoint {folder.store.location} is of another job: {there}; choose another --checkpoint-location"
        )
    changes = [f"{name} {pointer.fingerprint.get(name)} -> {own[name]}" for name in sorted(differing)]
    if pointer.threads != plan.config.threads:
        changes.append(f"threads {pointer.threads} -> {plan.config.threads}")
    if changes and plan.rendezvous.is_chief:
        say(f"warning: resuming with other settings, so the bits that follow differ: {', '.join(changes)}")


def _say_start(plan: Plan, position: Position) -> None:
    config, gang, total = plan.config, plan.rendezvous, plan.global_batch_size
    width = slice_size(total, gang.workers)
    steps = -(-len(plan.data.train) // total)
    last = len(plan.data.train) - (steps - 1) * total
    say(
        f"{gang.role} {gang.index}: {config.workload}, {config.options.qubits} qubits, engine {config.engine}, "
        f"{config.threads} thread(s), seed {config.options.seed}, attempt {config.job.attempt}"
    )
    say(
        f"global batch {total} over {gang.workers} worker(s); this one takes examples "
        f"[{min(gang.rank * width, total)}:{min((gang.rank + 1) * width, total)}] of each batch; "
        f"{len(plan.data.train)} training and {len(plan.data.test)} test examples, "
        f"{steps} step(s) an epoch, {last} example(s) in the last"
    )
    if position.epoch or position.steps:
        say(f"resuming after epoch {position.epoch}, step {position.steps}")


def _train(plan: Plan, trainer: Trainer, position: Position, stop: StopRequest) -> Position:
    config, gang = plan.config, plan.rendezvous
    reporter = ProgressReporter(config.progress, epochs=config.epochs, done=position.epoch)
    events = EventFiles(config.logdir, f"{gang.role}-{gang.index}") if config.logdir else None
    if events is not None and gang.is_chief:
        events.graph(trainer.graph)

    def begin(epoch: int) -> None:
        if events is not None and epoch == config.profile_epoch:
            events.start_profile()

    def end(progress: Progress, evaluation: Evaluation) -> None:
        reporter.epoch(progress)
        if events is not None:
            events.stop_profile()
            if gang.is_chief:
                events.epoch(progress, evaluation)

    loop = Loop(
        LoopConfig(
            seed=config.options.seed,
            epochs=config.epochs,
            global_batch_size=plan.global_batch_size,
            learning_rate=config.learning_rate,
            checkpoint_steps=config.checkpoint_steps,
            role=gang.role,
            index=gang.index,
            rank=gang.rank,
            workers=gang.workers,
            attempt=config.job.attempt,
        ),
        trainer,
        plan.data,
        checkpoints=plan.checkpoints if gang.is_chief else None,
        stop=stop,
        on_epoch_begin=begin,
        on_epoch_end=end,
    )
    stop.training(True)
    try:
        return loop.run(position)
    finally:
        stop.training(False)
        reporter.close()
        if events is not None:
            events.close()


def _save_artifact(plan: Plan, writer: ArtifactWriter, trainer: Trainer, position: Position) -> None:
    config = plan.config
    described = ModelDescription(
        workload=config.workload,
        qubits=config.options.qubits,
        symbols=plan.workload.symbols(config.options),
        parameters=int(trainer.model.count_params()),
    )
    run = RunDescription(
        seed=config.options.seed,
        examples=config.options.examples,
        epochs=position.epoch,
        workers=plan.rendezvous.workers,
        global_batch_size=plan.global_batch_size,
        learning_rate=config.learning_rate,
        engine=config.engine,
        threads=config.threads,
        versions=runtime.versions(),
    )
    writer.save(trainer.model, plan.data.test, described, run, position.metrics)
    say(f"artifact: {writer.location}")
