"""Which readouts to simulate together, which way, and whether it fits: pure functions of sizes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import cirq

from qmljob_training.engines.lightcone.cone import Cone
from qmljob_training.engines.lightcone.contraction import STEP_COST
from qmljob_training.engines.lightcone.lowering import Primitive
from qmljob_training.errors import ConfigurationError

STATE_VECTORS = 4
"""State vectors in memory for each example in flight: the state, its derivative, and what each becomes."""

NATIVE_STATE_VECTORS = 3
"""The same for the native loops: what the values keep, state and costate."""
NATIVE_SHARE = 0.1
"""Time of a multiplication in the native loops, as a share of TensorFlow's: 0.018 ns to 0.18 (measured)."""


@dataclass(frozen=True)
class ReadoutGroup:
    """Readouts whose state vectors are simulated as one.

    Attributes:
        readouts: their numbers.
        cone: of all of them together.
    """

    readouts: tuple[int, ...]
    cone: Cone


def state_cost(cone: Cone, primitives: Sequence[Primitive], batch: int) -> int:
    """Returns the estimated cost of simulating a cone's state vectors forward, in multiplications.

    Fused, about every second gate on two qubits costs a complex 4 x 4 product on all amplitudes.
    """
    wide = sum(1 for index in cone.gates if len(primitives[index].qubits) > 1)
    passes = max(1, min(wide, 2 * len(cone.gates) // 3))
    return int(passes * (batch * 16 * 2 ** len(cone.qubits) + STEP_COST))


def merge_readouts(cones: Sequence[Cone], primitives: Sequence[Primitive], batch: int) -> tuple[ReadoutGroup, ...]:
    """Returns groups of readouts: two groups are one where that is estimated to be cheaper."""
    equal: dict[Cone, list[int]] = {}
    for index, cone in enumerate(cones):
        equal.setdefault(cone, []).append(index)
    groups = [ReadoutGroup(tuple(indices), cone) for cone, indices in equal.items()]
    while True:
        best: tuple[int, ReadoutGroup, ReadoutGroup, ReadoutGroup] | None = None
        for one, other in combinations(groups, 2):
            both = ReadoutGroup(one.readouts + other.readouts, _union(one.cone, other.cone))
            apart = state_cost(one.cone, primitives, batch) + state_cost(other.cone, primitives, batch)
            saved = apart - state_cost(both.cone, primitives, batch)
            if saved >= 0 and (best is None or saved > best[0]):
                best = (saved, one, other, both)
        if best is None:
            return tuple(groups)
        groups = [group for group in groups if group is not best[1] and group is not best[2]] + [best[3]]


def check_memory(qubits: int, amplitude_bytes: int, present: int | None = None, vectors: int = STATE_VECTORS) -> None:
    """Raises ConfigurationError where the state vectors of one example don't fit this machine.

    Args:
        qubits: of the largest group of readouts.
        amplitude_bytes: 8 in single precision, 16 in double.
        present: bytes of memory; this machine's where not given.
        vectors: state vectors for each example in flight.
    """
    needed = vectors * amplitude_bytes * 2**qubits
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if present is None else present
    if needed > available:
        raise ConfigurationError(
            f"engine lightcone needs {needed / 2**30:.3g} GiB for the state vectors of one example: a readout depends "
            f"on {qubits} qubits; this machine has {available / 2**30:.3g} GiB; use fewer qubits or fewer layers"
        )


def _union(one: Cone, other: Cone) -> Cone:
    qubits: set[cirq.Qid] = {*one.qubits, *other.qubits}
    return Cone(tuple(sorted({*one.gates, *other.gates})), tuple(sorted(qubits)))
