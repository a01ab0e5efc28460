"""From a model to what is computed for it: which readouts, which way, from which blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import cirq

from qmljob_training.engines.lightcone.cone import Cone, past_cone
from qmljob_training.engines.lightcone.costs import NATIVE_SHARE, ReadoutGroup, merge_readouts, state_cost
from qmljob_training.engines.lightcone.fusion import fuse
from qmljob_training.engines.lightcone.heisenberg import ASSUMED_BATCH, Program, group_networks
from qmljob_training.engines.lightcone.lowering import Primitive, lower
from qmljob_training.engines.lightcone.network import NetworkBuilder
from qmljob_training.engines.lightcone.statevector import StateProgram, state_program
from qmljob_training.engines.protocol import CircuitModel

MAX_NETWORK_GATES = 600
"""Networks are planned in time quadratic in their size; larger cones go to state vectors unplanned."""
MAX_STRINGS = 64
MAX_NETWORK_COST = 10**8
"""Multiplications. Networks that cost more have tensors as large as state vectors, and compile slowly."""
WIDE_FROM = 10
"""Qubits from which state vectors are out of the innermost cache, and wider blocks save passes over memory."""

NATIVE_WIDTH = 2
"""Qubits of a block for the native loops (measured: docs/engines.md)."""


@dataclass(frozen=True)
class Formulation:
    """What is computed for a model.

    Attributes:
        constants: what each readout's identity terms add up to.
        heisenberg: networks of Pauli strings, if that is the way; `owners` has the readout and the factor of each.
        states: otherwise: programs for groups of readouts; `columns` has the readouts in the programs' order.
        native: whether these are for the native loops.
    """

    constants: tuple[float, ...]
    heisenberg: Program | None = None
    owners: tuple[tuple[int, float], ...] = ()
    states: tuple[StateProgram, ...] = ()
    columns: tuple[int, ...] = ()
    native: bool = False


def formulate(model: CircuitModel, method: str = "auto", *, native: bool = False) -> Formulation:
    """Chooses the cheaper way by estimated multiplications for a batch of 32.

    Args:
        method: "heisenberg" or "state" asks for one way where both are possible.
        native: whether the native loops move state vectors.

    Raises:
        ConfigurationError: the circuit holds something that can't be simulated.
    """
    primitives = lower(model.encoding + model.ansatz)
    strings = [[term for term in observable if len(term)] for observable in model.observables]
    constants = tuple(
        float(sum(term.coefficient.real for term in observable if not len(term))) for observable in model.observables
    )
    active = [index for index, terms in enumerate(strings) if terms]
    cones = [past_cone(primitives, strings[index]) for index in active]
    groups = merge_readouts(cones, primitives, ASSUMED_BATCH)
    limit: float = sum(state_cost(group.cone, primitives, ASSUMED_BATCH) for group in groups)
    limit *= NATIVE_SHARE if native else 1.0
    limit = inf if method == "heisenberg" else min(limit, MAX_NETWORK_COST)
    if method != "state" and (found := _heisenberg(model, primitives, strings, cones, limit)):
        return Formulation(constants, *found)
    programs = tuple(_states(group, active, strings, primitives, model.feature_symbols, native) for group in groups)
    columns = tuple(active[number] for group in groups for number in group.readouts)
    return Formulation(constants, states=programs, columns=columns, native=native)


def _heisenberg(
    model: CircuitModel,
    primitives: Sequence[Primitive],
    strings: Sequence[Sequence[cirq.PauliString]],
    cones: Sequence[Cone],
    limit: float,
) -> tuple[Program, tuple[tuple[int, float], ...]] | None:
    count = sum(len(terms) for terms in strings)
    if count > MAX_STRINGS or any(len(cone.gates) > MAX_NETWORK_GATES for cone in cones):
        return None
    builder = NetworkBuilder(frozenset(model.feature_symbols))
    networks, owners = [], []
    for readout, terms in enumerate(strings):
        for term in terms:
            cone = past_cone(primitives, [term])
            network = builder.build([primitives[index] for index in cone.gates], dict(term.items()))
            if network is None:
                return None
            networks.append(network)
            owners.append((readout, float(term.coefficient.real)))
    if not networks:
        return None
    program = group_networks(networks, builder.blocks, model.feature_symbols, model.weight_symbols, limit)
    return None if program is None else (program, tuple(owners))


def _states(
    group: ReadoutGroup,
    active: Sequence[int],
    strings: Sequence[Sequence[cirq.PauliString]],
    primitives: Sequence[Primitive],
    features: Sequence[str],
    native: bool,
) -> StateProgram:
    width = NATIVE_WIDTH if native else 4 if len(group.cone.qubits) >= WIDE_FROM else 2
    blocks = fuse([primitives[index] for index in group.cone.gates], frozenset(features), width)
    return state_program(blocks, group.cone.qubits, [strings[active[number]] for number in group.readouts])
