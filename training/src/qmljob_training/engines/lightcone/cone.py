"""Past light cones: which primitives can influence an observable.

Walking back from the observable O, a gate on qubits on which O, moved back this far, is the identity cancels against
its inverse in U^dagger O U (Evenbly and Vidal 2009, arXiv:0707.1454). So does a gate which, like O, commutes with Z on
each of its qubits where O is not the identity: for each of their basis states it is a unitary on the others, on which O
does not act. Without this rule a ring of CZ gates would lead from every readout to every qubit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import cirq
import numpy as np

from qmljob_training.engines.lightcone.lowering import Primitive


@dataclass(frozen=True)
class Cone:
    """What a readout depends on.

    Attributes:
        gates: positions of primitives in the circuit, ascending.
        qubits: that those primitives and the observable act on, sorted.
    """

    gates: tuple[int, ...]
    qubits: tuple[cirq.Qid, ...]


def past_cone(primitives: Sequence[Primitive], terms: Iterable[cirq.PauliString]) -> Cone:
    """Returns the light cone of a sum of Pauli strings before `primitives`."""
    strings = tuple(terms)
    reached = {qubit for string in strings for qubit in string.qubits}
    # Where the observable, moved back this far, commutes with Z.
    diagonal = {qubit for qubit in reached if all(string.get(qubit, cirq.Z) == cirq.Z for string in strings)}
    kept: list[int] = []
    for position in range(len(primitives) - 1, -1, -1):
        touched = set(primitives[position].qubits)
        commuting = commutes_with_z(primitives[position])
        if touched & reached <= diagonal & commuting:
            continue
        diagonal = (diagonal - (touched - commuting)) | (commuting - reached)
        reached |= touched
        kept.append(position)
    return Cone(tuple(reversed(kept)), tuple(sorted(reached)))


def commutes_with_z(primitive: Primitive) -> set[cirq.Qid]:
    """Returns the qubits on which the primitive commutes with Z, for every exponent: all, where it is diagonal."""
    count = len(primitive.qubits)
    axes = primitive.matrices.reshape(-1, *(2,) * (2 * count))
    return {
        qubit
        for index, qubit in enumerate(primitive.qubits)
        if not np.any(np.moveaxis(axes, (1 + index, 1 + count + index), (0, 1))[[0, 1], [1, 0]])
    }
