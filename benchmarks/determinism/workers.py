"""One worker against two: how far do the weights drift apart for the same global batches?

Both see the same examples in the same order; what differs is the order of sums, so the last bits. For each variable the
largest difference between the two runs is shown, and for the symbols each one that drifted more than the losses did.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import gang
import numpy as np

from qmljob_training.strategies.protocol import State
from qmljob_training.workloads.protocol import WorkloadOptions
from qmljob_training.workloads.qcnn import Qcnn


def train(workers: int, options: argparse.Namespace) -> tuple[State, gang.Outcome]:
    """Returns the weights and optimizer slots after training, and the losses on the way."""
    flags = (f"--global-batch-size={options.global_batch_size}", f"--epochs={options.epochs}", f"--seed={options.seed}")
    job = gang.Job(workers=workers, qubits=options.qubits, flags=flags)
    with tempfile.TemporaryDirectory() as folder:
        outcome = gang.run(job, Path(folder))
        return gang.last_checkpoint(Path(folder))[1].state, outcome


def main(arguments: Sequence[str]) -> int:
    """Trains both and prints the differences; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qubits", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--global-batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=float, default=1e-3, help="name each symbol that drifted further than this")
    options = parser.parse_args(arguments)
    (one, first), (two, second) = train(1, options), train(2, options)
    losses = np.abs(np.subtract(first.losses, second.losses))
    print(f"losses: {losses.max():.1e} apart at most, {losses[-1]:.1e} in the last epoch")
    names = Qcnn().symbols(WorkloadOptions(qubits=options.qubits, examples=2, seed=0))
    for name, value in one.items():
        apart = np.abs(value - two[name])
        print(f"{name}: {apart.max():.1e} apart at most")
        if name.startswith("model/") and apart.shape == (len(names),):
            for symbol, alone, together, far in zip(names, value, two[name], apart, strict=True):
                if far > options.show:
                    print(f"  {symbol}: {alone:.6f} with one worker, {together:.6f} with two")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
