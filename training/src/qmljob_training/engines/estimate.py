"""What a step costs on each engine: pure functions of the circuits, and a few measured constants.

The numbers rank engines and tell a person the order of magnitude; they are no promise. The constants were measured on
one core of an AMD EPYC virtual machine (docs/engines.md says how well they foretell real epochs).
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import cirq
import sympy

from qmljob_training.engines.lightcone import costs, native
from qmljob_training.engines.lightcone.cone import Cone, past_cone
from qmljob_training.engines.lightcone.contraction import STEP_COST
from qmljob_training.engines.lightcone.costs import ReadoutGroup, merge_readouts, state_cost
from qmljob_training.engines.lightcone.formulation import Formulation, formulate
from qmljob_training.engines.lightcone.lowering import Primitive, lower
from qmljob_training.engines.lightcone.statevector import ONE_BY_ONE
from qmljob_training.engines.protocol import CircuitModel
from qmljob_training.errors import ConfigurationError
from qmljob_training.native import ops

ASSUMED_BATCH = 32
"""Examples a step that engines are compared at, so that the choice does not depend on how many workers there are."""
AMPLITUDE_BYTES = 8
NUMBER_BYTES = 4

CALIBRATION = "constants measured on one core of an AMD EPYC virtual machine"
LOOP_SECONDS = 0.25e-3
"""Of a step beside the circuits: gathering the batch, the classical layers, the optimizer."""
NETWORK_SECONDS = 0.18e-9
"""A multiplication of lightcone's where it contracts networks, in value and gradient, with XLA's overhead."""
STATE_SECONDS = 0.18e-9
"""The same where it moves state vectors."""
NATIVE_SECONDS = costs.NATIVE_SHARE * STATE_SECONDS
"""The same where the native loops move them."""
NATIVE_CALL_SECONDS = 0.15e-3
"""Of a step with native loops: XLA makes the matrices and takes their gradient back, as calls of their own."""
LIGHTCONE_GRADIENT = 3
"""Multiplications of value and gradient, as a multiple of the value's alone."""
COMPILE_BASE_SECONDS = 1.5
COMPILE_CONTRACTION_SECONDS = 0.034
COMPILE_BLOCK_SECONDS = 0.15
"""XLA's time for a contraction or a block: value and gradient, in training and in validation."""
TFQ_GATE_SECONDS = 6.0e-6
"""What TensorFlow Quantum needs for a gate of an example however small the register: it is read and bound anew."""
TFQ_AMPLITUDE_SECONDS = 2.0e-9
"""What it needs for a gate and an amplitude, value and adjoint gradient together."""
TFQ_MULTIPLICATIONS = 3 * 8
"""Of real numbers for a gate and an amplitude: two gates of 2 x 2 for one of 4 x 4, on state and derivative."""
TFQ_STATE_VECTORS = 3
TFQ_GATES = (
    *(cirq.HPowGate, cirq.XPowGate, cirq.YPowGate, cirq.ZPowGate, cirq.CZPowGate, cirq.CXPowGate, cirq.SwapPowGate),
    *(cirq.ISwapPowGate, cirq.XXPowGate, cirq.YYPowGate, cirq.ZZPowGate, cirq.IdentityGate),
)


@dataclass(frozen=True)
class Estimate:
    """What one step (value and gradient of a batch on one worker) is estimated to cost on an engine.

    Attributes:
        engine: its name.
        refusal: why it can't be used; None where it can.
        multiplications: of real numbers.
        memory: bytes for one example, and for the whole batch.
        seconds: of the step, on one thread, with the training loop's own share.
        compile_seconds: once, before the first step.
    """

    engine: str
    refusal: str | None
    multiplications: int
    memory: tuple[int, int]
    seconds: float
    compile_seconds: float


@dataclass(frozen=True)
class Sight:
    """What engine `lightcone` sees of a circuit, before it decides how to compute it.

    Attributes:
        primitives: the circuit's gates, some of them decomposed.
        cones: of each readout; a readout that is a constant has an empty one.
        groups: readouts that are simulated together where state vectors are the way; numbers as in `active`.
        active: the readouts that are not constant.
    """

    primitives: tuple[Primitive, ...]
    cones: tuple[Cone, ...]
    groups: tuple[ReadoutGroup, ...]
    active: tuple[int, ...]


def look(model: CircuitModel) -> Sight:
    """Returns the light cones of a model; raises ConfigurationError where it can't be simulated."""
    primitives = lower(model.encoding + model.ansatz)
    strings = [[term for term in observable if len(term)] for observable in model.observables]
    cones = tuple(past_cone(primitives, terms) for terms in strings)
    active = tuple(index for index, terms in enumerate(strings) if terms)
    groups = merge_readouts([cones[index] for index in active], primitives, ASSUMED_BATCH)
    return Sight(primitives, cones, groups, active)


def present_memory() -> int:
    """Returns the bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def lightcone_bound(sights: Sequence[Sight], batch: int) -> float:
    """Returns the seconds of a step that lightcone never needs more than: those of state vectors.

    Cheap to know, where the exact number needs the order of contraction. Infinite where state vectors don't fit.
    """
    groups = [(group, sight.primitives) for sight in sights for group in sight.groups]
    largest = max((len(group.cone.qubits) for group, _ in groups), default=0)
    if _memory_refusal(largest) is not None:
        return math.inf
    operations = sum(state_cost(group.cone, primitives, batch) for group, primitives in groups)
    rate = NATIVE_SECONDS if ops.available() else STATE_SECONDS
    return LIGHTCONE_GRADIENT * operations * rate + LOOP_SECONDS + _call_seconds(native=ops.available())


def lightcone_estimate(formulations: Sequence[Formulation], batch: int) -> Estimate:
    """Returns the estimate for what lightcone has planned for a model's circuits."""
    operations = [formulation_cost(each, batch) for each in formulations]
    rates = [_rate(each) for each in formulations]
    seconds = LIGHTCONE_GRADIENT * sum(count * rate for count, rate in zip(operations, rates, strict=True))
    seconds += sum(_call_seconds(native=each.native) for each in formulations)
    memory = [formulation_memory(each, batch) for each in formulations]
    largest = max((program.qubits for each in formulations for program in each.states), default=0)
    return Estimate(
        "lightcone",
        _memory_refusal(largest),
        LIGHTCONE_GRADIENT * sum(operations),
        (max((one for one, _ in memory), default=0), max((whole for _, whole in memory), default=0)),
        seconds + LOOP_SECONDS,
        sum(_compile_seconds(each) for each in formulations),
    )


def formulation_cost(formulation: Formulation, batch: int) -> int:
    """Returns multiplications for the values of a batch, with each op's overhead counted as some."""
    if formulation.heisenberg is not None:
        return sum(group.plan.cost(batch * len(group.members)) for group in formulation.heisenberg.groups)
    return sum(
        batch * 4 * 2 ** len(block.qubits) * 2**program.qubits + STEP_COST
        for program in formulation.states
        for block, _ in program.blocks
    )


def formulation_memory(formulation: Formulation, batch: int) -> tuple[int, int]:
    """Returns the bytes for one example and for a batch: state vectors, or the largest tensors and their gradients."""
    if formulation.heisenberg is not None:
        groups = formulation.heisenberg.groups
        shared = max(2 * NUMBER_BYTES * group.plan.steps * group.plan.largest[0] for group in groups)
        each = max(2 * NUMBER_BYTES * group.plan.steps * group.plan.largest[1] * len(group.members) for group in groups)
        return shared + each, shared + batch * each
    largest = max((program.qubits for program in formulation.states), default=0)
    if formulation.native:
        kept = AMPLITUDE_BYTES * 2**largest
        kept_of_batch = batch * kept if batch * kept <= native.KEPT_BYTES else 0
        # Below, as many examples as there are lanes are in flight at once.
        together = 1 if largest >= native.BY_EXAMPLE_BELOW else 2 ** native.LANE_BITS[NUMBER_BYTES]
        return costs.NATIVE_STATE_VECTORS * kept * together, kept_of_batch + 2 * kept * together
    one = costs.STATE_VECTORS * AMPLITUDE_BYTES * 2**largest
    return one, one if largest >= ONE_BY_ONE else batch * one


def tfq_estimate(models: Sequence[CircuitModel], batch: int) -> Estimate:
    """Returns the estimate for TensorFlow Quantum, which simulates the whole register for each example."""
    circuits = [model.encoding + model.ansatz for model in models]
    sizes = [(_gates(circuit), 2 ** len(circuit.all_qubits())) for circuit in circuits]
    one = max((TFQ_STATE_VECTORS * AMPLITUDE_BYTES * amplitudes for _, amplitudes in sizes), default=0)
    seconds = sum(gates * (TFQ_GATE_SECONDS + TFQ_AMPLITUDE_SECONDS * amplitudes) for gates, amplitudes in sizes)
    return Estimate(
        "tfq",
        _tfq_refusal(circuits, one),
        sum(TFQ_MULTIPLICATIONS * batch * gates * amplitudes for gates, amplitudes in sizes),
        (one, one),  # it simulates one example after the other, on all threads
        batch * seconds + LOOP_SECONDS,
        0.0,
    )


def tfq_is_installed() -> bool:
    """Says whether TensorFlow Quantum can be imported; does not import it."""
    return find_spec("tensorflow_quantum") is not None


def formulated(models: Sequence[CircuitModel]) -> tuple[Formulation, ...]:
    """Returns how lightcone would compute each circuit; raises ConfigurationError where it can't."""
    return tuple(formulate(model, native=ops.available()) for model in models)


def _tfq_refusal(circuits: Sequence[cirq.Circuit], one_example: int) -> str | None:
    if not tfq_is_installed():
        return "TensorFlow Quantum is not installed"
    if one_example > present_memory():
        return (
            f"engine tfq needs {one_example / 2**30:.3g} GiB for the state vectors of one example, this machine has "
            f"{present_memory() / 2**30:.3g} GiB; use fewer qubits"
        )
    unknown = (each for circuit in circuits for each in circuit.all_operations() if not _known_to_tfq(each))
    if (first := next(unknown, None)) is not None:
        return f"{' '.join(str(first).split())} may be unknown to it"
    return None


def _known_to_tfq(operation: cirq.Operation) -> bool:
    """Says whether TensorFlow Quantum surely takes an operation; it takes a few that are not said to be known here."""
    gate = operation.gate
    places = (cirq.GridQubit, cirq.LineQubit)
    if not isinstance(gate, TFQ_GATES) or not all(isinstance(qubit, places) for qubit in operation.qubits):
        return False
    exponent = getattr(gate, "exponent", 0)
    # It writes a symbol, or a number times a symbol; no sums.
    return not isinstance(exponent, sympy.Basic) or (len(exponent.free_symbols) <= 1 and not exponent.is_Add)


def _memory_refusal(qubits: int) -> str | None:
    """Returns lightcone's own words on state vectors of so many qubits, where they don't fit."""
    try:
        vectors = costs.NATIVE_STATE_VECTORS if ops.available() else costs.STATE_VECTORS
        costs.check_memory(qubits, AMPLITUDE_BYTES, vectors=vectors)
    except ConfigurationError as error:
        return str(error)
    return None


def _rate(formulation: Formulation) -> float:
    if formulation.heisenberg is not None:
        return NETWORK_SECONDS
    return NATIVE_SECONDS if formulation.native else STATE_SECONDS


def _call_seconds(*, native: bool) -> float:
    return NATIVE_CALL_SECONDS if native else 0.0


def _compile_seconds(formulation: Formulation) -> float:
    if formulation.heisenberg is not None:
        contractions = sum(group.plan.steps for group in formulation.heisenberg.groups)
        return COMPILE_BASE_SECONDS + COMPILE_CONTRACTION_SECONDS * contractions
    if formulation.native:
        return COMPILE_BASE_SECONDS
    blocks = sum(len(program.blocks) for program in formulation.states)
    return COMPILE_BASE_SECONDS + COMPILE_BLOCK_SECONDS * blocks


def _gates(circuit: cirq.Circuit) -> int:
    return sum(1 for _ in circuit.all_operations())
