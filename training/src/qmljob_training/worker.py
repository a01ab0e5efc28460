"""The worker program: one replica's run, from flags to exit code."""

import os
from collections.abc import Mapping, Sequence

from qmljob_api.artifact import ModelDescription, RunDescription
from qmljob_api.progress import Progress
from qmljob_training import plugins, runtime
from qmljob_training.batches import slice_size
from qmljob_training.checkpoint import Position
from qmljob_training.engines.protocol import Engine
from qmljob_training.evaluation import Evaluation
from qmljob_training.event_files import EventFiles
from qmljob_training.flags import parse_flags
from qmljob_training.loop import Loop, LoopConfig
from qmljob_training.peers import wait_for_peers
from qmljob_training.plan import Plan, check_same_flags, make_plan
from qmljob_training.preemption import StopRequest
from qmljob_training.progress import ProgressReporter, say
from qmljob_training.rendezvous import read_rendezvous
from qmljob_training.resuming import restore
from qmljob_training.strategies.protocol import Trainer

_ARRIVED = 1
"""What workers exchange where only the meeting counts."""


def run(arguments: Sequence[str], env: Mapping[str, str] = os.environ) -> None:
    """Runs one replica to its end.

    Raises:
        ProgramError, StoreError: whatever ends the run early; `__main__` turns it into one line and an exit code.
    """
    config = parse_flags(arguments, env)
    stop = StopRequest(config.grace_seconds)
    stop.watch()
    plan = make_plan(config, read_rendezvous(env))
    trainer = _join(plan)
    position = restore(plan, trainer)
    _say_start(plan, position)
    position = _train(plan, trainer, position, stop)
    _save_artifact(plan, trainer, position)
    # Nobody leaves before the artifact is whole: a chief that dies while it uploads takes the gang along.
    plan.strategy.exchange(_ARRIVED)


def _join(plan: Plan) -> Trainer:
    config = plan.config
    runtime.configure(config.threads)
    wait_for_peers(plan.rendezvous, config.peer_timeout_seconds, say)
    plan.strategy.connect(plan.rendezvous)
    check_same_flags(plan)
    if config.profiler_port is not None:
        import tensorflow as tf

        tf.profiler.experimental.server.start(config.profiler_port)
    engine: Engine = plugins.load(plugins.ENGINES, config.engine, Engine)
    return plan.strategy.trainer(lambda: plan.workload.model(config.options, engine), plan.data, config.learning_rate)


def _say_start(plan: Plan, position: Position) -> None:
    config, gang, total = plan.config, plan.rendezvous, plan.global_batch_size
    width = slice_size(total, gang.workers)
    steps = -(-len(plan.data.train) // total)
    last = len(plan.data.train) - (steps - 1) * total
    say(
        f"{gang.role} {gang.index}: {config.workload}, {config.options.qubits} qubits, engine {config.engine}, "
        f"{config.threads} thread(s), seed {config.options.seed}, attempt {config.job.attempt}"
    )
    say(f"engine {config.engine}: {plan.engine_reason}")
    say(
        f"global batch {total} over {gang.workers} worker(s); this one takes examples "
        f"[{min(gang.rank * width, total)}:{min((gang.rank + 1) * width, total)}] of each batch; "
        f"{len(plan.data.train)} training and {len(plan.data.test)} test examples, "
        f"{steps} step(s) an epoch, {last} example(s) in the last"
    )
    if position.epoch or position.steps:
        say(f"resuming after epoch {position.epoch}, step {position.steps}")
    if position.epoch > config.epochs:
        say(f"warning: the checkpoint is beyond --epochs {config.epochs}; its weights are taken as they are")


def _train(plan: Plan, trainer: Trainer, position: Position, stop: StopRequest) -> Position:
    config, gang = plan.config, plan.rendezvous
    reporter = ProgressReporter(config.progress, epochs=config.epochs, done=position.epoch)
    events = EventFiles(config.logdir, f"{gang.role}-{gang.index}") if config.logdir else None
    if events is not None:
        graph = trainer.graph  # on every worker: tracing may be a collective
        if gang.is_chief:
            events.graph(graph)

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
        checkpoints=plan.checkpoints,
        writes=gang.is_chief,
        stop=stop,
        meet=lambda: plan.strategy.exchange(_ARRIVED),
        on_epoch_begin=begin,
        on_epoch_end=end,
    )
    stop.looked_at()
    # A kill may have come between a checkpoint and its progress line, and a finished job has no line of its own.
    if (repeated := loop.last_progress(position)) is not None:
        reporter.epoch(repeated)
    try:
        return loop.run(position)
    finally:
        reporter.close()
        if events is not None:
            events.close()


def _save_artifact(plan: Plan, trainer: Trainer, position: Position) -> None:
    config = plan.config
    if config.artifact is None:
        return
    trainer.state()  # on every worker: reading weights may be a collective
    if plan.artifact is None:
        return
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
    plan.artifact.save(trainer.model, plan.data.test, described, run, position.metrics)
    say(f"artifact: {plan.artifact.location}")
