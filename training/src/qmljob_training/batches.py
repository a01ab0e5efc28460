"""Which example goes where: one order for all workers, from the seed alone.

pi(seed, epoch) permutes the whole training set; global batch b is pi[b*B:(b+1)*B]; a worker takes its contiguous slice
of each batch. The last batch is padded with index 0 at weight 0, so that every worker runs the same number of steps.
One worker and two therefore see the same global batches.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Shard:
    """What one worker runs of an epoch.

    Attributes:
        indices: int32 [steps, slice], examples of the training set.
        weights: float32 [steps, slice], 1 for an example and 0 for padding.
        batch_sizes: float32 [steps], the number of examples in each global batch (all workers together).
    """

    indices: NDArray[np.int32]
    weights: NDArray[np.float32]
    batch_sizes: NDArray[np.float32]

    @property
    def steps(self) -> int:
        return int(self.indices.shape[0])

    def between(self, first: int, last: int) -> "Shard":
        """Returns the steps first..last-1."""
        return Shard(self.indices[first:last], self.weights[first:last], self.batch_sizes[first:last])


def epoch_order(seed: int, epoch: int, examples: int) -> NDArray[np.int64]:
    """Returns pi(seed, epoch): a permutation of range(examples)."""
    return np.random.default_rng([seed, epoch, _ORDER_STREAM]).permutation(examples)


def slice_size(global_batch_size: int, workers: int) -> int:
    """Returns the length of a worker's slice of each global batch (the same for all workers)."""
    return -(-global_batch_size // workers)


def shard(order: NDArray[np.int64], global_batch_size: int, workers: int, rank: int, *, done: int = 0) -> Shard:
    """Splits what is left of an epoch into steps and returns one worker's part.

    Args:
        order: the epoch's permutation.
        global_batch_size: examples a step, over all workers.
        workers: number of workers; rank: this worker's position among them, from 0.
        done: examples of this epoch that an earlier run has trained on.
    """
    width = slice_size(global_batch_size, workers)
    left = order[done:]
    steps = -(-len(left) // global_batch_size)
    indices = np.zeros((steps, workers * width), np.int32)
    weights = np.zeros((steps, workers * width), np.float32)
    sizes = np.zeros(steps, np.float32)
    for step in range(steps):
        batch = left[step * global_batch_size : (step + 1) * global_batch_size]
        indices[step, : len(batch)] = batch
        weights[step, : len(batch)] = 1.0
        sizes[step] = len(batch)
    mine = slice(rank * width, (rank + 1) * width)
    return Shard(indices[:, mine], weights[:, mine], sizes)


_ORDER_STREAM = 1
