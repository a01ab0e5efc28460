"""What do the pinned settings cost? Epoch times of the worker program under them and under others, run in turns.

In each round every variant runs once, in an order that turns around from round to round, so that a change of the
machine's load falls on all of them. A round gives each variant one ratio to the baseline (what the program pins);
shown are the median of the ratios and their quartiles. Processor time counts what the job itself did, all workers
together, whatever else the machine was doing; wall time is what a user waits for.
"""

import argparse
import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import gang
from settings import Settings

BASELINE = "pinned"
VARIANTS: dict[str, Settings] = {
    BASELINE: Settings(),
    "determinism off": Settings(deterministic=False),
    "threads 2": Settings(threads=2),
    "threads 4": Settings(threads=4),
    "inter-op 1": Settings(inter_op=1),
    "inter-op 4": Settings(inter_op=4),
    "TensorFlow's choice": Settings(threads=0, inter_op=0, deterministic=False),
}
ONEDNN = "oneDNN on"
MEASURES: dict[str, Callable[[gang.Outcome], float]] = {
    "wall": lambda outcome: outcome.epoch_seconds,
    "user": lambda outcome: outcome.user_seconds,
    "user + system": lambda outcome: outcome.user_seconds + outcome.system_seconds,
}


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qubits", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--variants", default=",".join([*VARIANTS, ONEDNN]), help="separated by commas (default: all)")
    parser.add_argument(
        "--flags", default="--global-batch-size=64 --epochs=32", help="of the worker program, as --flags='…'"
    )
    parser.add_argument("--output", type=Path, help="a JSON line for each run is appended here")
    options = parser.parse_args(arguments)
    options.names = [BASELINE, *(name for name in options.variants.split(",") if name != BASELINE)]
    if unknown := set(options.names) - {*VARIANTS, ONEDNN}:
        parser.error(f"--variants: {', '.join(sorted(unknown))}; known: {', '.join([*VARIANTS, ONEDNN])}")
    return options


def job(name: str, options: argparse.Namespace) -> gang.Job:
    """Returns the job of one variant."""
    environment = (("TF_ENABLE_ONEDNN_OPTS", "1"),) if name == ONEDNN else ()
    chosen = VARIANTS.get(name, Settings())
    return gang.Job(chosen, options.workers, options.qubits, tuple(options.flags.split()), environment)


def quartiles(values: Sequence[float], digits: int) -> str:
    """Returns `median (first to third quartile)`."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    first, middle, third = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.{digits}f} ({first:.{digits}f} to {third:.{digits}f})"


def main(arguments: Sequence[str]) -> int:
    """Measures and prints a table; returns the exit status."""
    options = parse_arguments(arguments)
    outcomes: dict[str, list[gang.Outcome]] = defaultdict(list)
    for number in range(options.rounds):
        for name in options.names if number % 2 == 0 else reversed(options.names):
            outcome = gang.run(job(name, options))
            outcomes[name].append(outcome)
            if options.output:
                record = {"variant": name, "qubits": options.qubits, "workers": options.workers}
                record |= {"round": number, "load": os.getloadavg()[0], **vars(outcome)}
                with options.output.open("a") as file:
                    file.write(json.dumps(record) + "\n")
    print(f"{options.qubits} qubits, {options.workers} worker(s), {options.flags}, {options.rounds} round(s)")
    print("| variant | epoch, s | " + " | ".join(f"{measure}, ratio" for measure in MEASURES) + " |")
    print("| --- | --- |" + " --- |" * len(MEASURES))
    for name, found in outcomes.items():
        cells = [name, quartiles([outcome.epoch_seconds for outcome in found], 3)]
        for measure in MEASURES.values():
            pairs = zip(found, outcomes[BASELINE], strict=True)
            cells.append(quartiles([measure(own) / measure(pinned) for own, pinned in pairs], 2))
        print(f"| {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
