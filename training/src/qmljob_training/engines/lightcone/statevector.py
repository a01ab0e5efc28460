"""Values by moving state vectors forward, gradients by the adjoint method.

The adjoint method (Jones and Gacon 2020, arXiv:2009.02823) walks back from the final state, undoing one block after
the other on the state and on its derivative: two state vectors an example, however deep the circuit is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cirq
import numpy as np
from numpy.typing import NDArray

from qmljob_training.engines.lightcone import layout
from qmljob_training.engines.lightcone.fusion import Block, Kind
from qmljob_training.engines.lightcone.layout import EXAMPLES, Amplitudes
from qmljob_training.engines.lightcone.matrices import constant_matrix, matrix_table

if TYPE_CHECKING:
    import tensorflow as tf

MAX_FOLDED_QUBITS = 14
"""Up to here, what comes before the first symbol is simulated once, when the function is built."""
ONE_BY_ONE = 14
"""From here on examples are simulated one after the other: the caches hold one state vector, not a batch of them."""


@dataclass(frozen=True)
class StateProgram:
    """What a group of readouts needs, on qubits 0..n-1.

    Attributes:
        qubits: n.
        initial: complex128 [2**n], or None for |0...0>.
        blocks: those that are applied, in order, with the positions of their qubits.
        observables: for each readout its Pauli strings: coefficient and letters by qubit.
    """

    qubits: int
    initial: NDArray[np.complex128] | None
    blocks: tuple[tuple[Block, tuple[int, ...]], ...]
    observables: tuple[tuple[tuple[float, tuple[tuple[int, str], ...]], ...], ...]


def state_program(
    blocks: Sequence[Block], qubits: Sequence[cirq.Qid], observables: Sequence[Sequence[cirq.PauliString]]
) -> StateProgram:
    """Returns the program for blocks and observables on `qubits`."""
    place = {qubit: index for index, qubit in enumerate(qubits)}
    placed = [(block, tuple(place[qubit] for qubit in block.qubits)) for block in blocks]
    initial = None
    if len(qubits) <= MAX_FOLDED_QUBITS:
        folded, placed = _leading_constants(placed)
        initial = _folded(folded, len(qubits)) if folded else None
    strings = tuple(
        tuple((term.coefficient.real, tuple((place[q], str(pauli)) for q, pauli in term.items())) for term in terms)
        for terms in observables
    )
    return StateProgram(len(qubits), initial, tuple(placed), strings)


class StateSimulator:
    """Computes the values of a program and their gradients, as TensorFlow ops for XLA."""

    def __init__(self, program: StateProgram, features: Sequence[str], weights: Sequence[str]) -> None:
        self._program = program
        self._matrices = _Matrices([block for block, _ in program.blocks], features, weights)

    def values(self, features: "tf.Tensor", weights: "tf.Tensor") -> "tf.Tensor":
        """Returns the values [batch, readouts]."""
        import tensorflow as tf

        matrices = self._matrices.evaluate(features, weights)
        if self._program.qubits < ONE_BY_ONE:
            return observed(self._forward(features, matrices), self._program)

        def one(index: tf.Tensor) -> tf.Tensor:
            own = tf.gather(features, [index])
            return observed(self._forward(own, self._matrices.of_example(matrices, index)), self._program)[0]

        return tf.map_fn(one, tf.range(tf.shape(features)[0]), fn_output_signature=features.dtype)

    def gradients(
        self, features: "tf.Tensor", weights: "tf.Tensor", upstream: "tf.Tensor", *, of_features: bool
    ) -> "tf.Tensor":
        """Returns the gradient of sum(upstream * values), in the features [batch, features] or the weights."""
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(features if of_features else weights)
            matrices = self._matrices.evaluate(features, weights)
        kind = Kind.FEATURES if of_features else Kind.WEIGHTS
        used = [number for number, each in enumerate(self._matrices.kinds) if each is kind]
        source = features if of_features else weights
        if not used:
            return tf.zeros_like(source)
        if self._program.qubits < ONE_BY_ONE:
            cotangents = self._backward(self._forward(features, matrices), upstream, matrices, kind)
        else:
            cotangents = self._one_by_one(features, upstream, matrices, kind, used)
        gradient = tape.gradient([matrices[index] for index in used], source, [cotangents[index] for index in used])
        return tf.zeros_like(source) if gradient is None else gradient

    def _one_by_one(
        self, features: "tf.Tensor", upstream: "tf.Tensor", matrices: "list[tf.Tensor]", kind: Kind, used: list[int]
    ) -> "dict[int, tf.Tensor]":
        """Does what `_backward` does, with the state vectors of one example in memory at a time."""
        import tensorflow as tf

        def one(index: tf.Tensor) -> list[tf.Tensor]:
            own = self._matrices.of_example(matrices, index)
            state = self._forward(tf.gather(features, [index]), own)
            found = self._backward(state, tf.gather(upstream, [index]), own, kind)
            return [found[number][0] if kind is Kind.FEATURES else found[number] for number in used]

        stacked = tf.map_fn(
            one, tf.range(tf.shape(features)[0]), fn_output_signature=[matrices[number].dtype for number in used]
        )
        if kind is Kind.WEIGHTS:
            stacked = [tf.reduce_sum(each, axis=0) for each in stacked]
        return dict(zip(used, stacked, strict=True))

    def _forward(self, features: "tf.Tensor", matrices: "list[tf.Tensor]") -> Amplitudes:
        import tensorflow as tf

        count, dtype = self._program.qubits, _complex(features)
        if self._program.initial is None:
            vector = tf.one_hot(0, 2**count, dtype=dtype)
        else:
            vector = tf.constant(self._program.initial, dtype)
        tensor = tf.broadcast_to(vector, (tf.shape(features)[0], 2**count))
        state = Amplitudes(tensor, (EXAMPLES, *range(count)))
        for index, (block, places) in enumerate(self._program.blocks):
            matrix = matrices[self._matrices.numbers[index]]
            prepared = _prepared(state, places, block.kind)
            state = _apply(prepared, matrix, len(places), block.kind)
        return state

    def _backward(
        self, state: Amplitudes, upstream: "tf.Tensor", matrices: "list[tf.Tensor]", kind: Kind
    ) -> "dict[int, tf.Tensor]":
        """Returns the cotangent of each distinct matrix of a kind, by its number."""
        import tensorflow as tf

        costate = weighted(state, self._program, upstream)
        found: dict[int, tf.Tensor] = {}
        stop = next(index for index, (block, _) in enumerate(self._program.blocks) if block.kind is kind)
        for index in range(len(self._program.blocks) - 1, stop - 1, -1):
            block, places = self._program.blocks[index]
            number = self._matrices.numbers[index]
            inverse = tf.linalg.adjoint(matrices[number])
            before, after = _prepared(state, places, block.kind), _prepared(costate, places, block.kind)
            state = _apply(before, inverse, len(places), block.kind)
            if block.kind is kind:
                part = _outer(after, state, len(places), block.kind)
                found[number] = found[number] + part if number in found else part
            costate = _apply(after, inverse, len(places), block.kind)
        return found


class _Matrices:
    """The distinct matrices of a program's blocks; those that depend on features have an axis of examples first."""

    def __init__(self, blocks: Sequence[Block], features: Sequence[str], weights: Sequence[str]) -> None:
        distinct: dict[object, int] = {}
        self.numbers = [distinct.setdefault(block.key(), len(distinct)) for block in blocks]
        first = {number: block for block, number in reversed(list(zip(blocks, self.numbers, strict=True)))}
        self.kinds = [first[number].kind for number in range(len(distinct))]
        self._tables = []
        for kind, width in sorted({(b.kind.value, len(b.qubits)) for b in first.values()}):
            members = [n for n in range(len(distinct)) if (first[n].kind.value, len(first[n].qubits)) == (kind, width)]
            symbols = features if Kind(kind) is Kind.FEATURES else weights
            self._tables.append((Kind(kind), members, matrix_table([first[n] for n in members], symbols)))

    def evaluate(self, features: "tf.Tensor", weights: "tf.Tensor") -> "list[tf.Tensor]":
        """Returns the matrices by number."""
        import tensorflow as tf

        found: dict[int, tf.Tensor] = {}
        for kind, members, table in self._tables:
            if kind is Kind.FEATURES:
                made = tf.unstack(table.unitaries(features), axis=1)
            else:
                made = tf.unstack(table.unitaries(weights), axis=0)
            found.update(zip(members, made, strict=True))
        return [found[number] for number in range(len(found))]

    def of_example(self, matrices: "list[tf.Tensor]", index: "tf.Tensor") -> "list[tf.Tensor]":
        """Returns the matrices for a batch of one example."""
        import tensorflow as tf

        pairs = zip(matrices, self.kinds, strict=True)
        return [tf.gather(matrix, [index]) if kind is Kind.FEATURES else matrix for matrix, kind in pairs]


def observed(state: Amplitudes, program: StateProgram) -> "tf.Tensor":
    """Returns the values [batch, readouts] of state vectors."""
    import tensorflow as tf

    state = state.moved(layout.examples_first(state.order, range(program.qubits)))
    rows = state.rows()[:, 0, :]
    values = []
    for strings in program.observables:
        total = tf.zeros_like(tf.math.real(rows[:, 0]))
        for coefficient, letters in strings:
            moved = _pauli(rows, letters, program.qubits)
            total += coefficient * tf.reduce_sum(tf.math.real(tf.math.conj(rows) * moved), axis=1)
        values.append(total)
    return tf.stack(values, axis=1)


def weighted(state: Amplitudes, program: StateProgram, upstream: "tf.Tensor") -> Amplitudes:
    """Returns 2 sum_r upstream[:, r] O_r |state>, the gradient in the state, in the state's order of axes."""
    import tensorflow as tf

    first = state.moved(layout.examples_first(state.order, range(program.qubits)))
    rows = first.rows()[:, 0, :]
    total = tf.zeros_like(rows)
    for index, strings in enumerate(program.observables):
        for coefficient, letters in strings:
            factor = tf.cast(2.0 * coefficient * upstream[:, index], rows.dtype)[:, tf.newaxis]
            total += factor * _pauli(rows, letters, program.qubits)
    return Amplitudes(total, first.order).moved(state.order)


def _pauli(rows: "tf.Tensor", letters: Sequence[tuple[int, str]], qubits: int) -> "tf.Tensor":
    """Applies a Pauli string to state vectors [batch, 2**qubits] whose axes are in the order of qubits."""
    import tensorflow as tf

    for place, letter in letters:
        split = tf.reshape(rows, (-1, 2**place, 2, 2 ** (qubits - place - 1)))
        if letter in "XY":
            split = tf.reverse(split, [2])
        if letter in "YZ":
            signs = np.array([-1j, 1j]) if letter == "Y" else np.array([1.0, -1.0])
            split *= tf.constant(signs.reshape(1, 1, 2, 1), rows.dtype)
        rows = tf.reshape(split, (-1, 2**qubits))
    return rows


def _prepared(state: Amplitudes, places: tuple[int, ...], kind: Kind) -> Amplitudes:
    if kind is Kind.FEATURES:
        return state.moved(layout.examples_first(state.order, places))
    return state.moved(layout.leading(state.order, places))


def _apply(state: Amplitudes, matrix: "tf.Tensor", count: int, kind: Kind) -> Amplitudes:
    """Applies a matrix to the leading qubits of a prepared state."""
    import tensorflow as tf

    if kind is Kind.FEATURES:
        # Sums of products, which XLA makes one loop of: products of many tiny matrices are slow on a CPU.
        product = matrix[:, :, :, tf.newaxis] * state.rows(count)[:, tf.newaxis, :, :]
        return Amplitudes(tf.reduce_sum(product, axis=2), state.order)
    product = tf.tensordot(state.matrix(count), matrix, [[0], [1]])
    return Amplitudes(product, (*state.order[count:], *state.order[:count]))


def _outer(after: Amplitudes, before: Amplitudes, count: int, kind: Kind) -> "tf.Tensor":
    """Returns sum |after><before| over all but the block's qubits: leading in `after`, and where `_apply` left them."""
    import tensorflow as tf

    if kind is Kind.FEATURES:
        return tf.linalg.matmul(after.rows(count), before.rows(count), adjoint_b=True)
    return tf.linalg.matmul(after.matrix(count), tf.math.conj(tf.reshape(before.tensor, (-1, 2**count))))


def _leading_constants(
    placed: list[tuple[Block, tuple[int, ...]]],
) -> tuple[list[tuple[Block, tuple[int, ...]]], list[tuple[Block, tuple[int, ...]]]]:
    """Splits off constant blocks before which nothing else acts on their qubits."""
    folded, rest = [], []
    used: set[int] = set()
    for block, places in placed:
        if block.kind is Kind.CONSTANT and not used & set(places):
            folded.append((block, places))
        else:
            rest.append((block, places))
            used |= set(places)
    return folded, rest


def _folded(folded: list[tuple[Block, tuple[int, ...]]], count: int) -> NDArray[np.complex128]:
    state = np.zeros((2,) * count, np.complex128)
    state[(0,) * count] = 1.0
    for block, places in folded:
        state = _applied(constant_matrix(block), state, places)
    return state.reshape(-1)


def _applied(matrix: NDArray[np.complex128], state: NDArray[np.complex128], places: Sequence[int]) -> NDArray:
    count = len(places)
    moved = np.moveaxis(state, places, range(count))
    shape = moved.shape
    return np.moveaxis((matrix @ moved.reshape(2**count, -1)).reshape(shape), range(count), places)


def _complex(like: "tf.Tensor") -> "tf.DType":
    import tensorflow as tf

    return tf.complex64 if like.dtype == tf.float32 else tf.complex128
