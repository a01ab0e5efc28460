"""`python -m qmljob_training explain`: what a job would compute, how, and for how long, as text or JSON.

Takes the flags of training, and TF_CONFIG for the number of workers; trains nothing and writes nothing.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from qmljob_api.explanation import CircuitExplanation, EngineEstimate, Explanation, ReadoutCone, ReadoutGroup, ScaleOut
from qmljob_api.explanation_text import as_text
from qmljob_training import plugins
from qmljob_training.batches import slice_size
from qmljob_training.engines import auto, estimate
from qmljob_training.engines.estimate import Estimate, Sight
from qmljob_training.engines.lightcone.formulation import Formulation
from qmljob_training.engines.protocol import CircuitModel, Expectation
from qmljob_training.errors import ConfigurationError
from qmljob_training.finite import check_finite
from qmljob_training.flags import TrainingConfig, config_of, training_parser
from qmljob_training.rendezvous import read_rendezvous
from qmljob_training.workloads.protocol import Workload

HELPS_FROM = 1.1
"""Speed-up from which a second worker is said to help: less than this is lost in the estimate's error."""
ALL_REDUCE_MESSAGE_SECONDS = 0.35e-3
ALL_REDUCE_BYTES_A_SECOND = 1e9
COLLECTIVE_SECONDS = 2.0e-3
"""What a step of several workers costs beside the messages: on two idle cores, 1 to 3.4 ms (docs/scale-out.md)."""


def run(arguments: Sequence[str], env: Mapping[str, str] = os.environ) -> None:
    """Explains the job that training with these flags would run.

    Raises:
        ProgramError: what is wrong with the flags, or why no engine can run the job on this machine.
    """
    parser = training_parser("python -m qmljob_training explain", "Explain what training with these flags would do.")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args(arguments)
    explanation = explain(config_of(given, env), read_rendezvous(env).workers)
    print(explanation.model_dump_json() if given.json else as_text(explanation), flush=True)


def explain(config: TrainingConfig, workers: int) -> Explanation:
    """Returns the explanation of a job with so many workers.

    Raises:
        ConfigurationError: the job can't run: an option, the engine, or too little memory.
    """
    workload: Workload = plugins.load(plugins.WORKLOADS, config.workload, Workload)
    plugins.check_known(plugins.ENGINES, config.engine)
    workload.check(config.options)
    data = workload.data(config.options)
    check_finite(data)
    choice = auto.resolve(config.engine, workload, config.options)
    models, parameters = _built(workload, config)
    batch = config.batch_of_all(workers)
    width = slice_size(batch, workers)
    sights, formulations = _seen(models)
    found = {each.engine: each for each in _estimates(models, formulations, width)}
    chosen = found.get(choice.engine) if models else None
    if config.engine == auto.AUTO and len(found) == 2:
        choice = _with_the_exact_reason(choice, models, formulations)
    if chosen is not None and chosen.refusal is not None and chosen.memory[0] > estimate.present_memory():
        raise ConfigurationError(chosen.refusal)
    steps = -(-len(data.train) // batch)
    return Explanation(
        workload=config.workload,
        qubits=config.options.qubits,
        train_examples=len(data.train),
        test_examples=len(data.test),
        workers=workers,
        batch_size=width,
        global_batch_size=batch,
        steps=steps,
        epochs=config.epochs,
        threads=config.threads,
        cores=len(os.sched_getaffinity(0)),
        circuits=tuple(_circuit(*each) for each in zip(models, sights, formulations, strict=True)),
        requested=config.engine,
        engine=choice.engine,
        reason=choice.reason,
        engines=tuple(_told(each) for each in found.values()) if models else (),
        step_seconds=None if chosen is None else _step(chosen, parameters, workers),
        epoch_seconds=None if chosen is None else steps * _step(chosen, parameters, workers),
        compile_seconds=None if chosen is None else chosen.compile_seconds,
        calibration=estimate.CALIBRATION,
        scale_out=None if chosen is None else _scale_out(choice.engine, models, formulations, batch, parameters),
    )


def _with_the_exact_reason(
    choice: auto.Choice, models: Sequence[CircuitModel], formulations: Sequence[Formulation | None]
) -> auto.Choice:
    """Returns the same choice; where it was made by a bound on lightcone's cost, with the estimate in its place."""
    own, tfq = _estimates(models, formulations, estimate.ASSUMED_BATCH)
    exact = auto.cheaper(own, tfq)
    return exact if exact.engine == choice.engine else choice


class _Recorder:
    """An engine that simulates nothing, and keeps what it is asked to simulate."""

    name = "recorder"

    def __init__(self) -> None:
        self.models: list[CircuitModel] = []

    def expectation(self, model: CircuitModel) -> Expectation:
        import tensorflow as tf

        self.models.append(model)
        return lambda features, weights: tf.zeros((tf.shape(features)[0], len(model.observables)))


def _built(workload: Workload, config: TrainingConfig) -> tuple[list[CircuitModel], int]:
    """Returns the circuits of a workload's model, and the number of its trainable parameters."""
    recorder = _Recorder()
    model: Any = workload.model(config.options, recorder)
    parameters = sum(int(weight.shape.num_elements()) for weight in model.trainable_weights)
    return recorder.models, parameters


def _seen(models: Sequence[CircuitModel]) -> tuple[list[Sight | None], list[Formulation | None]]:
    """Returns what lightcone sees and plans; None for a circuit that it can't simulate, which another engine may."""
    try:
        return [estimate.look(model) for model in models], list(estimate.formulated(models))
    except ConfigurationError:
        return [None] * len(models), [None] * len(models)


def _estimates(
    models: Sequence[CircuitModel], formulations: Sequence[Formulation | None], batch: int
) -> tuple[Estimate, ...]:
    planned = [each for each in formulations if each is not None]
    own = (estimate.lightcone_estimate(planned, batch),) if len(planned) == len(models) else ()
    return (*own, estimate.tfq_estimate(models, batch))


def _step(estimated: Estimate, parameters: int, workers: int) -> float:
    return estimated.seconds + all_reduce_seconds(parameters, workers)


def all_reduce_seconds(parameters: int, workers: int) -> float:
    """Returns the time of summing float32 `parameters` over workers by a ring.

    2 (p - 1) messages follow each other, of 4 n / p bytes each (Patarasu and Yuan 2009, J. Parallel Distrib. Comput.
    69): t = 2 (p - 1) (l + 4 n / (p b)). Two local workers took 0.7 ms for 69 numbers, so the latency l is 0.35 ms;
    the bandwidth b is taken as 1 GB/s. To this comes what TensorFlow takes to set a collective going in a step.
    """
    messages = 2 * (workers - 1)
    started = COLLECTIVE_SECONDS if workers > 1 else 0.0
    return started + messages * (ALL_REDUCE_MESSAGE_SECONDS + 4 * parameters / (workers * ALL_REDUCE_BYTES_A_SECOND))


def _scale_out(
    engine: str,
    models: Sequence[CircuitModel],
    formulations: Sequence[Formulation | None],
    batch: int,
    parameters: int,
) -> ScaleOut | None:
    """Compares one worker with two, for the same global batch (strong scaling), each on cores of its own."""

    def seconds(width: int) -> float:
        return next(each.seconds for each in _estimates(models, formulations, width) if each.engine == engine)

    if batch < 2:
        return None
    reduce = all_reduce_seconds(parameters, 2)
    one, two = seconds(batch), seconds(slice_size(batch, 2)) + reduce
    return ScaleOut(
        parameters=parameters,
        all_reduce_seconds=reduce,
        one_seconds=one,
        two_seconds=two,
        speedup=one / two,
        helps=one / two >= HELPS_FROM,
    )


def _circuit(model: CircuitModel, sight: Sight | None, formulation: Formulation | None) -> CircuitExplanation:
    circuit = model.encoding + model.ansatz
    return CircuitExplanation(
        qubits=len(circuit.all_qubits() | {qubit for each in model.observables for qubit in each.qubits}),
        gates=sum(1 for _ in circuit.all_operations()),
        primitives=0 if sight is None else len(sight.primitives),
        features=len(model.feature_symbols),
        symbols=len(model.weight_symbols),
        cones=()
        if sight is None
        else tuple(ReadoutCone(qubits=len(cone.qubits), gates=len(cone.gates)) for cone in sight.cones),
        groups=() if sight is None or formulation is None else _groups(sight, formulation),
    )


def _groups(sight: Sight, formulation: Formulation) -> tuple[ReadoutGroup, ...]:
    if formulation.heisenberg is None:
        return tuple(
            ReadoutGroup(
                readouts=tuple(sorted(sight.active[number] for number in group.readouts)),
                qubits=program.qubits,
                method="state",
                steps=len(program.blocks),
            )
            for group, program in zip(sight.groups, formulation.states, strict=True)
        )
    # Networks are listed group by group; `order` has the place of each in that list.
    owners = [readout for readout, _ in formulation.owners]
    listed = [owner for _, owner in sorted(zip(formulation.heisenberg.order, owners, strict=True))]
    groups, first = [], 0
    for group in formulation.heisenberg.groups:
        readouts = tuple(sorted(set(listed[first : first + len(group.members)])))
        first += len(group.members)
        qubits = max(len(sight.cones[readout].qubits) for readout in readouts)
        groups.append(ReadoutGroup(readouts=readouts, qubits=qubits, method="heisenberg", steps=group.plan.steps))
    return tuple(groups)


def _told(found: Estimate) -> EngineEstimate:
    return EngineEstimate(
        engine=found.engine,
        refusal=found.refusal,
        multiplications=found.multiplications,
        example_bytes=found.memory[0],
        batch_bytes=found.memory[1],
        seconds=found.seconds,
        compile_seconds=found.compile_seconds,
    )
