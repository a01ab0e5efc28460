"""Compares this project's training with the public tutorial's own model, over the same number of seeds.

    python benchmarks/tutorial_parity/compare.py --seeds 0-9 --output parity.json

Exit status: 0 where the means of training and validation loss lie within the limit (2 standard errors of their
difference), 1 where one does not, 2 where a run failed or the options make no sense.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ours
import tutorial
from differences import Difference, compare

METRICS = {"loss": "loss", "val_loss": "validation loss", "fresh_mse": "inference MSE"}
JUDGED = ("loss", "val_loss")
LIMIT = 2.0
PASSED, DIFFERS, FAILED = 0, 1, 2
Record = dict[str, Any]


class ComparisonError(Exception):
    """The comparison cannot be made; the message says why and what to do."""


@dataclass(frozen=True)
class Runs:
    """The records of one program, and the settings that all of them share."""

    name: str
    records: tuple[Record, ...]

    def values(self, metric: str) -> list[float]:
        """Returns a metric of every run, in the order of the seeds."""
        return [float(record[metric]) for record in self.records]


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=tutorial.parse_seeds, default=tutorial.parse_seeds("0-9"))
    parser.add_argument("--workers", type=int, default=1, help="ours: 1 process, or as many workers of `qmljob run`")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--paired", action="store_true", help="train the tutorial's model on our data, seed by seed")
    parser.add_argument(
        "--tutorial-results", type=Path, help="take the tutorial's runs from this file of JSON lines, all of them"
    )
    parser.add_argument("--our-results", type=Path, help="take our runs from this file of JSON lines, all of them")
    parser.add_argument("--work-folder", type=Path, help="keep logs, artifacts and JSON lines here")
    parser.add_argument("--output", type=Path, help="write the comparison to this file as JSON")
    parser.add_argument("--report-only", action="store_true", help="exit 0 whatever the difference")
    options = parser.parse_args(arguments)
    if len(options.seeds) < 2:
        parser.error("--seeds: one seed gives no standard deviation; name at least 2, for example 0-9")
    if options.workers < 1:
        parser.error(f"--workers {options.workers}: use 1 or more")
    return options


def read_results(path: Path) -> tuple[Record, ...]:
    """Reads JSON lines; a later record of a seed replaces an earlier one.

    Raises:
        ComparisonError: the file cannot be read or a line is no record.
    """
    records: dict[int, Record] = {}
    try:
        for line in path.read_text().splitlines():
            if line.strip():
                record = json.loads(line)
                records[int(record["seed"])] = record
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ComparisonError(f"{path}: not a file of this benchmark's JSON lines ({error})") from None
    return tuple(records[seed] for seed in sorted(records))


def check(runs: Runs, options: argparse.Namespace) -> Runs:
    """Returns the runs if they are those that the options ask for, all made alike.

    Raises:
        ComparisonError: a metric is missing, or a setting differs.
    """
    wanted = {
        "epochs": options.epochs,
        "learning_rate": options.learning_rate,
        "global_batch_size": tutorial.GLOBAL_BATCH_SIZE,
    }
    for record in runs.records:
        missing = [metric for metric in METRICS if metric not in record]
        if missing:
            raise ComparisonError(f"{runs.name}: seed {record['seed']} has no {', '.join(missing)}; make the run again")
        for setting, value in wanted.items():
            if record.get(setting) != value:
                raise ComparisonError(
                    f"{runs.name}: seed {record['seed']} ran with {setting} {record.get(setting)}, not {value}"
                )
    return runs


def tutorial_runs(options: argparse.Namespace, folder: Path) -> Runs:
    """Makes or reads the runs of the tutorial's model.

    Raises:
        ComparisonError: the program failed.
    """
    if options.tutorial_results:
        runs = check(Runs("tutorial", read_results(options.tutorial_results)), options)
        if options.paired and any(record.get("data") != "file" for record in runs.records):
            raise ComparisonError(
                f"{options.tutorial_results}: --paired needs runs made on our data (tutorial.py --data)"
            )
        return runs
    results = folder / "tutorial.jsonl"
    program = Path(__file__).with_name("tutorial.py")
    command = [sys.executable, str(program), "--seeds", ",".join(map(str, options.seeds))]
    command += [f"--epochs={options.epochs}", f"--threads={options.threads}", f"--output={results}"]
    command += [f"--learning-rate={options.learning_rate}"]
    if options.paired:
        command.append(f"--data={write_our_data(options.seeds, folder / 'data')}")
    environment = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
    status = subprocess.run(command, stdout=subprocess.DEVNULL, check=False, env=environment).returncode
    if status:
        raise ComparisonError(f"the tutorial's model did not train (exit code {status}); its messages are above")
    return check(Runs("tutorial", read_results(results)), options)


def write_our_data(seeds: Sequence[int], folder: Path) -> Path:
    """Writes the data set of our program for each seed; returns the path with {seed} in it."""
    import numpy as np

    from qmljob_training.workloads import cluster_excitation

    folder.mkdir(parents=True)
    for seed in seeds:
        data = cluster_excitation.draw(ours.QUBITS, ours.EXAMPLES, seed)
        np.savez(folder / f"{seed}.npz", features=data.features, labels=data.labels)
    return folder / "{seed}.npz"


def our_runs(options: argparse.Namespace, folder: Path) -> Runs:
    """Makes or reads our own runs.

    Raises:
        ComparisonError: a run failed.
    """
    name = f"ours, {options.workers} worker{'s' if options.workers > 1 else ''}"
    if options.our_results:
        return check(Runs(name, read_results(options.our_results)), options)
    common = ours.Options(
        options.workers,
        options.epochs,
        tutorial.GLOBAL_BATCH_SIZE,
        options.learning_rate,
        options.threads,
        tutorial.FRESH_SEED_OFFSET,
    )
    records = []
    for seed in options.seeds:
        try:
            record = ours.run(common, seed, folder / f"ours-{options.workers}" / f"seed-{seed}")
        except ours.RunFailedError as error:
            raise ComparisonError(f"seed {seed}: {error}") from None
        records.append(record)
        with (folder / f"ours-{options.workers}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(f"{name}: seed {seed}: loss {record['loss']:.4f}", file=sys.stderr, flush=True)
    return check(Runs(name, tuple(records)), options)


def differences(first: Runs, second: Runs, *, paired: bool) -> list[Difference]:
    """Compares every metric.

    Raises:
        ComparisonError: runs are too few, not finite, or (paired) not of the same seeds.
    """
    if paired and [r["seed"] for r in first.records] != [r["seed"] for r in second.records]:
        raise ComparisonError("paired runs need the same seeds on both sides; make both sides again")
    try:
        return [compare(metric, first.values(metric), second.values(metric), paired=paired) for metric in METRICS]
    except ValueError as error:
        raise ComparisonError(str(error)) from None


def table(first: Runs, second: Runs, found: Sequence[Difference]) -> str:
    """Returns the comparison as a Markdown table."""
    rows = [
        f"| | {first.name}: mean ± sd (n) | {second.name}: mean ± sd (n) | difference | standard error | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for each in found:
        sides = (f"{side.mean:.4f} ± {side.sd:.4f} ({side.n})" for side in (each.first, each.second))
        numbers = f"{each.difference:+.4f} | {each.standard_error:.4f} | {each.ratio:.2f}"
        rows.append(f"| {METRICS[each.metric]} | {' | '.join(sides)} | {numbers} |")
    return "\n".join(rows)


def beyond_limit(found: Sequence[Difference]) -> list[Difference]:
    """Returns the differences of training and validation loss that exceed the limit."""
    return [each for each in found if each.metric in JUDGED and each.ratio > LIMIT]


def document(options: argparse.Namespace, sides: Sequence[Runs], found: Sequence[Difference]) -> dict[str, Any]:
    """Returns everything that the comparison rests on."""
    return {
        "limit_standard_errors": LIMIT,
        "within_limit": not beyond_limit(found),
        "paired": options.paired,
        "differences": [each.as_dict() for each in found],
        "runs": {side.name: list(side.records) for side in sides},
        "threads": options.threads,
        "cpus": os.cpu_count(),
        "versions": tutorial.versions(),
    }


def compare_runs(options: argparse.Namespace, folder: Path) -> int:
    """Makes all runs, prints the table and returns the exit status."""
    first, second = tutorial_runs(options, folder), our_runs(options, folder)
    found = differences(first, second, paired=options.paired)
    print(table(first, second, found))
    used = " ".join(f"{package} {version}" for package, version in tutorial.versions().items())
    print(f"\n{used}; {options.threads} thread(s) a process, {os.cpu_count()} CPUs")
    if options.output:
        options.output.write_text(json.dumps(document(options, (first, second), found), indent=2) + "\n")
    outside = beyond_limit(found)
    for each in outside:
        print(f"{METRICS[each.metric]}: {each.ratio:.2f} standard errors apart, limit {LIMIT:g}", file=sys.stderr)
    return DIFFERS if outside and not options.report_only else PASSED


def main(arguments: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit status."""
    options = parse_arguments(arguments)
    try:
        if options.work_folder:
            options.work_folder.mkdir(parents=True, exist_ok=True)
            # A folder of its own for each comparison: records and logs of two are never mixed.
            return compare_runs(options, Path(tempfile.mkdtemp(prefix="run-", dir=options.work_folder)))
        with tempfile.TemporaryDirectory() as folder:
            return compare_runs(options, Path(folder))
    except ComparisonError as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
