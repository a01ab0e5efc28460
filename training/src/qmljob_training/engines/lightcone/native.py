"""State vectors by the native loops (native/source): the plan that they take, and their part of a TensorFlow graph.

XLA still makes the matrices of all blocks, and takes their gradient back to the symbols; between the two stand the ops.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qmljob_training.engines.lightcone.fusion import Block, Kind
from qmljob_training.engines.lightcone.matrices import matrix_table
from qmljob_training.engines.lightcone.schedule import Schedule, local_bits_for, schedule
from qmljob_training.engines.lightcone.statevector import StateProgram

if TYPE_CHECKING:
    import tensorflow as tf

VERSION = 1
LANE_BITS = {4: 4, 8: 3}
"""By the bytes of a real number: a row has 64 bytes of real parts."""
BY_EXAMPLE_BELOW = 11
"""Qubits below which a lane is an example: the state vectors of all lanes fit a second-level cache."""
MAX_BY_EXAMPLE = 16
"""Qubits above which it is an amplitude whatever the gates."""
KEPT_BYTES = 2**26
"""State vectors of a batch that are kept from the values to the gradient; more are computed anew."""
MAX_WIDTH = 10


@dataclass(frozen=True)
class NativePlan:
    """What the ops take as constants.

    Attributes:
        numbers: see native/source/plan.cc, which reads them.
        coefficients: of the Pauli strings.
        sweeps: how often state vectors pass through memory, forward.
    """

    numbers: tuple[int, ...]
    coefficients: tuple[float, ...]
    sweeps: int


class Matrices:
    """The distinct matrices of a program's blocks, one after the other: shared by all, and an example's own."""

    def __init__(self, blocks: Sequence[Block], features: Sequence[str], weights: Sequence[str]) -> None:
        distinct: dict[object, Block] = {}
        for block in blocks:
            distinct.setdefault(block.key(), block)
        self._tables = []
        self.offsets: dict[object, int] = {}
        self.sizes = [0, 0]
        for own, width in sorted({(b.kind is Kind.FEATURES, len(b.qubits)) for b in distinct.values()}):
            members = [b for b in distinct.values() if (b.kind is Kind.FEATURES, len(b.qubits)) == (own, width)]
            self._tables.append((own, matrix_table(members, features if own else weights)))
            for block in members:
                self.offsets[block.key()] = self.sizes[own]
                self.sizes[own] += 4**width

    def shared(self, weights: "tf.Tensor") -> "tf.Tensor":
        """Returns the matrices of weights and constants, real [entries, 2]: real and imaginary parts."""
        import tensorflow as tf

        made = [tf.reshape(table.unitaries(weights), (-1,)) for own, table in self._tables if not own]
        if not made:
            return tf.zeros((0, 2), weights.dtype)
        entries = tf.concat(made, axis=0)
        return tf.stack([tf.math.real(entries), tf.math.imag(entries)], axis=-1)

    def own(self, features: "tf.Tensor") -> "tf.Tensor":
        """Returns the matrices of features, real [batch, entries, 2]."""
        import tensorflow as tf

        count = tf.shape(features)[0]
        made = [
            tf.reshape(table.unitaries(features), (count, table.scales.shape[0] * table.components.shape[-1] ** 2))
            for own, table in self._tables
            if own
        ]
        if not made:
            return tf.zeros((count, 0, 2), features.dtype)
        entries = tf.concat(made, axis=1)
        return tf.stack([tf.math.real(entries), tf.math.imag(entries)], axis=-1)


def native_plan(program: StateProgram, matrices: Matrices, real_bytes: int) -> NativePlan:
    """Returns the plan of a program; the ops check it again."""
    count = program.qubits
    widest = max((len(places) for _, places in program.blocks), default=1)
    lanes = LANE_BITS[real_bytes]
    local_bits = local_bits_for(count, lanes, widest) if count >= BY_EXAMPLE_BELOW else None
    if local_bits is None:
        lanes, local_bits = 0, MAX_BY_EXAMPLE
    placed = [(number, places) for number, (_, places) in enumerate(program.blocks)]
    first = [] if program.initial is not None else _first_on_their_qubit(placed)
    start = tuple(count - 1 - qubit for qubit in range(count))
    before = schedule(first, start, lanes, local_bits)
    prepared = {number for number, _ in first}
    after = schedule([each for each in placed if each[0] not in prepared], before.bits, lanes, local_bits)
    strings = sorted(_strings(program, after.bits))
    numbers = [VERSION, lanes, count, matrices.sizes[0], matrices.sizes[1], len(program.observables)]
    numbers += [len(program.blocks)]
    for block, places in program.blocks:
        numbers += [len(places), block.kind.value, matrices.offsets[block.key()]]
    numbers += [len(before.sweeps) + len(after.sweeps), *_encoded(before), *_encoded(after), len(before.sweeps)]
    numbers += [len(first), *(each for number, (qubit,) in first for each in (before.bits[qubit], number))]
    numbers += [len(strings)]
    for flips, odd, signs, readout, _ in strings:
        numbers += [readout, flips, signs, odd]
    return NativePlan(tuple(numbers), tuple(string[-1] for string in strings), len(after.sweeps))


def _first_on_their_qubit(placed: Sequence[tuple[int, tuple[int, ...]]]) -> list[tuple[int, tuple[int, ...]]]:
    used: set[int] = set()
    found: list[tuple[int, tuple[int, ...]]] = []
    for number, places in placed:
        if len(places) == 1 and places[0] not in used:
            found.append((number, places))
        used |= set(places)
    return found


def _encoded(made: Schedule) -> list[int]:
    numbers = []
    for sweep in made.sweeps:
        numbers += [len(sweep.locals), *sweep.locals, len(sweep.steps)]
        for step in sweep.steps:
            numbers += [-1 if step.block is None else step.block, *step.places]
    return numbers


def _strings(program: StateProgram, bits: Sequence[int]) -> list[tuple[int, int, int, int, float]]:
    """Returns flips, parity of Y, signs, readout and coefficient of each Pauli string.

    Y = -i (-1)**bit on the amplitude that it writes, so a string with y of them has the factor (-i)**y: 1, -i, -1, i.
    """
    found = []
    for readout, terms in enumerate(program.observables):
        for coefficient, letters in terms:
            flips = sum(1 << bits[qubit] for qubit, letter in letters if letter in "XY")
            signs = sum(1 << bits[qubit] for qubit, letter in letters if letter in "YZ")
            count = sum(letter == "Y" for _, letter in letters)
            found.append((flips, count % 2, signs, readout, -coefficient if count % 4 >= 2 else coefficient))
    return found


class NativeSimulator:
    """Computes the values of a program and their gradients; what `StateSimulator` does, by the native ops."""

    def __init__(
        self, program: StateProgram, features: Sequence[str], weights: Sequence[str], real_bytes: int, ops: Any
    ) -> None:
        self._matrices = Matrices([block for block, _ in program.blocks], features, weights)
        self._plan = native_plan(program, self._matrices, real_bytes)
        self._ops = ops
        initial = np.zeros(0) if program.initial is None else program.initial
        self._initial = np.stack([initial.real, initial.imag], axis=-1)

    def matrices(self, features: "tf.Tensor", weights: "tf.Tensor") -> "tuple[tf.Tensor, tf.Tensor]":
        """Returns what `values` and `gradient` take, for XLA to compile."""
        return self._matrices.shared(weights), self._matrices.own(features)

    def values(self, shared: "tf.Tensor", own: "tf.Tensor") -> "tuple[tf.Tensor, tf.Tensor]":
        """Returns the values [batch, readouts], and state vectors that `gradient` takes."""
        values, states = self._ops.qmljob_values(*self._given(shared, own), plan=self._plan.numbers, keep=KEPT_BYTES)
        return values, states

    def gradient(
        self, shared: "tf.Tensor", own: "tf.Tensor", upstream: "tf.Tensor", states: "tf.Tensor", *, of_features: bool
    ) -> "tf.Tensor":
        """Returns the gradient of sum(upstream * values) in own or shared."""
        given = (*self._given(shared, own), upstream, states)
        return self._ops.qmljob_gradient(*given, plan=self._plan.numbers, of_features=of_features)

    def _given(self, shared: "tf.Tensor", own: "tf.Tensor") -> "tuple[tf.Tensor, ...]":
        import tensorflow as tf

        return shared, own, tf.constant(self._initial, shared.dtype), tf.constant(self._plan.coefficients, tf.float64)
