"""Are the final weights the same, bit for bit, when the same job runs again? And under other settings?

Runs the worker program several times under each combination of settings, in turns, and compares the sha256 of the last
checkpoint (weights, optimizer slots, metrics). Exit status 1 where one and the same combination gave two digests.
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import gang
from settings import Settings


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qubits", type=_numbers, default="4,8,12")
    parser.add_argument("--workers", type=_numbers, default="1,2")
    parser.add_argument("--threads", type=_numbers, default="1,2,4", help="intra-op; 0 is TensorFlow's choice")
    parser.add_argument("--inter-op", type=_numbers, default="2", help="0 is TensorFlow's choice")
    parser.add_argument("--determinism", type=_numbers, default="1", help="1 is on, 0 is off, 0,1 is both")
    parser.add_argument("--environment", action="append", default=[], metavar="NAME=VALUE", help="of one more variant")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--flags", default="--epochs=4", help="of the worker program, as --flags='…'")
    parser.add_argument("--output", type=Path, help="a JSON line for each run is appended here")
    return parser.parse_args(arguments)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def jobs(options: argparse.Namespace) -> list[gang.Job]:
    """Returns every combination, and each with every additional environment."""
    environments = [(), *((tuple(text.split("=", 1)),) for text in options.environment)]
    axes = (options.qubits, options.workers, options.threads, options.inter_op, options.determinism, environments)
    return [
        gang.Job(Settings(threads, inter_op, bool(on)), workers, qubits, tuple(options.flags.split()), environment)
        for qubits, workers, threads, inter_op, on, environment in itertools.product(*axes)
    ]


def main(arguments: Sequence[str]) -> int:
    """Runs everything; returns the exit status."""
    options = parse_arguments(arguments)
    digests: dict[gang.Job, list[str]] = defaultdict(list)
    for _, job in itertools.product(range(options.repeat), jobs(options)):
        with tempfile.TemporaryDirectory() as folder:
            outcome = gang.run(job, Path(folder))
        digests[job].append(outcome.digest)
        if options.output:
            record = {"job": str(job), "load": os.getloadavg()[0], **vars(outcome)}
            with options.output.open("a") as file:
                file.write(json.dumps(record) + "\n")
    for job, found in digests.items():
        print(f"{job}: {len(found)} run(s), {len(set(found))} digest(s): {' '.join(sorted({d[:8] for d in found}))}")
    return 1 if any(len(set(found)) > 1 for found in digests.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
