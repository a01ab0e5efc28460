"""Where each qubit's axis stands in a tensor of amplitudes, and how gates are applied without needless moves.

A gate on the leading axes is one matrix product whose result has these axes last: the order turns round, and a layer
of gates on neighbours needs no transposition at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

EXAMPLES = -1
"""The name of the axis of examples in an order; qubits are named by their positions 0..n-1."""


@dataclass(frozen=True)
class Amplitudes:
    """State vectors of a batch: a tensor whose axes, in row-major order, are `order`."""

    tensor: "tf.Tensor"
    order: tuple[int, ...]

    def moved(self, order: Sequence[int]) -> "Amplitudes":
        """Returns the same state vectors with their axes in another order."""
        import tensorflow as tf

        new = tuple(order)
        if new == self.order:
            return self
        runs = _runs(self.order, new)
        positions = sorted(range(len(runs)), key=lambda index: self.order.index(runs[index][0]))
        shape = [_extent(runs[index]) for index in positions]
        permutation = [positions.index(index) for index in range(len(runs))]
        return Amplitudes(tf.transpose(tf.reshape(self.tensor, shape), permutation), new)

    def matrix(self, leading: int) -> "tf.Tensor":
        """Returns the tensor as a matrix; its rows are the first `leading` axes, none of which is the examples'."""
        import tensorflow as tf

        return tf.reshape(self.tensor, (2**leading, -1))

    def rows(self, leading: int = 0) -> "tf.Tensor":
        """Returns the tensor [examples, 2**leading, rest]; the axis of examples must come first."""
        import tensorflow as tf

        return tf.reshape(self.tensor, (-1, 2**leading, 2 ** (len(self.order) - 1 - leading)))


def leading(order: Sequence[int], qubits: Sequence[int]) -> tuple[int, ...]:
    """Returns the order with `qubits` first and the rest turned round, so that what followed them still does."""
    start = order.index(qubits[-1]) + 1
    turned = (*order[start:], *order[:start])
    return (*qubits, *(axis for axis in turned if axis not in qubits))


def examples_first(order: Sequence[int], qubits: Sequence[int] = ()) -> tuple[int, ...]:
    """Returns the order with the axis of examples first, then `qubits`."""
    return (EXAMPLES, *qubits, *(axis for axis in order if axis != EXAMPLES and axis not in qubits))


def _runs(old: Sequence[int], new: Sequence[int]) -> list[list[int]]:
    """Returns the axes of `new`, those that are neighbours in `old` too together."""
    runs: list[list[int]] = []
    for axis in new:
        if runs and old.index(axis) == old.index(runs[-1][-1]) + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs


def _extent(run: Sequence[int]) -> int:
    return -1 if EXAMPLES in run else int(2 ** len(run))
