"""Trains the public multi-worker tutorial's own model with plain Keras and prints one JSON line a seed.

    python benchmarks/tutorial_parity/tutorial.py --seeds 0-9

One process with the global batch of 64 stands for the tutorial's two workers with 32 each: synchronous data
parallelism averages the same 64 gradients. `--workers 2` runs the real thing, two processes under
`MultiWorkerMirroredStrategy`; with `--worker-data own` each process draws data of its own, as the tutorial's do.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import excitations
import numpy as np

FRESH_SEED_OFFSET = 1_000_000
"""Fresh data for inference come from this much above the run's seed, so no training set is ever drawn again."""
WORKER_SEED_OFFSET = 10_000_000
BATCH_SIZE_PER_WORKER = 32
GLOBAL_BATCH_SIZE = 64
PACKAGES = ("tensorflow-cpu", "tensorflow-quantum", "tf-keras", "cirq-core", "numpy", "sympy")


def parse_seeds(text: str) -> tuple[int, ...]:
    """Returns the seeds that a text such as `0-9` or `1,3,7-8` names."""
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            seeds.extend(range(int(first), int(last or first) + 1))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} names no seeds; write for example 0-9 or 1,3,5") from None
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} names no seeds; write for example 0-9")
    return tuple(seeds)


def versions() -> dict[str, str]:
    """Returns the versions that the numbers depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("0-9"), help="for example 0-9 (the default)")
    parser.add_argument("--data-seed", type=int, help="draw every run's data from this seed instead of the run's own")
    parser.add_argument(
        "--data", help="train on `features` [n, 8] and `labels` [n] of this .npz file; {seed} in it is replaced"
    )
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--threads", type=int, default=1, help="TensorFlow's threads inside and between operations")
    parser.add_argument("--workers", type=int, choices=(1, 2), default=1)
    parser.add_argument(
        "--worker-data",
        choices=("own", "shared"),
        default="own",
        help="with --workers 2: each process draws data and order of its own (as published), or both share them",
    )
    parser.add_argument("--output", type=Path, help="append the JSON lines to this file too")
    return parser.parse_args(arguments)


def run_seed(tutorial: ModuleType, options: argparse.Namespace, seed: int, strategy: Any, index: int) -> dict[str, Any]:
    """Trains and evaluates once; returns the record of the run.

    `loss` and `val_loss` are the last values of Keras's history. Keras's `loss` is the running mean over the last
    epoch's batches while the weights still move; `train_mse` is the training split's error at the end.
    """
    import tensorflow as tf

    shift = index * WORKER_SEED_OFFSET if options.worker_data == "own" else 0
    data_seed = seed if options.data_seed is None else options.data_seed
    tf.keras.backend.clear_session()
    # Seeds Python's, NumPy's and TensorFlow's generators: initial weights and Keras's shuffling each epoch.
    tf.keras.utils.set_random_seed(seed + shift)
    if options.data:
        features, labels = excitations.read_features(Path(options.data.format(seed=seed)))
    else:
        features, labels = excitations.draw_features(np.random.RandomState(data_seed + shift))
    data = tutorial.make_data(features, labels)
    fresh = tutorial.make_data(*excitations.draw_features(np.random.RandomState(seed + FRESH_SEED_OFFSET)))
    started = time.monotonic()
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = tutorial.build_model(options.learning_rate)
    history = model.fit(
        x=data.train.circuits,
        y=data.train.labels,
        batch_size=GLOBAL_BATCH_SIZE,
        epochs=options.epochs,
        verbose=0,
        validation_data=(data.test.circuits, data.test.labels),
    ).history
    seconds = time.monotonic() - started
    test_mse = tutorial.mean_squared_error(model, fresh.test)
    train_mse = tutorial.mean_squared_error(model, fresh.train)
    tests, trains = len(fresh.test.labels), len(fresh.train.labels)
    return {
        "program": "tutorial",
        "seed": seed,
        "data": "file" if options.data else str(data_seed),
        "workers": options.workers,
        "worker_data": options.worker_data if options.workers > 1 else None,
        "epochs": options.epochs,
        "global_batch_size": GLOBAL_BATCH_SIZE,
        "learning_rate": options.learning_rate,
        "parameters": int(model.count_params()),
        "loss": history["loss"][-1],
        "val_loss": history["val_loss"][-1],
        "inference_mse": test_mse,
        "inference_examples": tests,
        "fresh_mse": (test_mse * tests + train_mse * trains) / (tests + trains),
        "fresh_examples": tests + trains,
        "train_mse": tutorial.mean_squared_error(model, data.train),
        "test_mse": tutorial.mean_squared_error(model, data.test),
        "test_sign_accuracy": tutorial.sign_accuracy(model, data.test),
        "history": {name: [round(value, 6) for value in values] for name, values in history.items()},
        "seconds": round(seconds, 2),
        "threads": options.threads,
        "versions": versions(),
    }


def train(options: argparse.Namespace) -> None:
    """Runs every seed in this process, as one of the workers where TF_CONFIG is set, and prints the chief's records."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf  # reads the environment that was just set

    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    strategy, index = None, 0
    if "TF_CONFIG" in os.environ:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        index = strategy.cluster_resolver.task_id
    import tutorial_model  # loads TensorFlow Quantum: only after the strategy

    for seed in options.seeds:
        record = run_seed(tutorial_model, options, seed, strategy, index)
        if index == 0:
            write_record(record, options.output)


def write_record(record: dict[str, Any], output: Path | None) -> None:
    """Prints a record as a line of JSON, and appends it to the file where one was named."""
    line = json.dumps(record)
    print(line, flush=True)
    if output:
        with output.open("a") as file:
            file.write(line + "\n")


def free_ports(count: int) -> list[int]:
    """Returns loopback ports that were free a moment ago (all are held until the last is known)."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def workers(arguments: list[str], count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Starts the workers of one cluster and ends whatever is left of them."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    processes = []
    for index in range(count):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config)}
        processes.append(subprocess.Popen([sys.executable, __file__, *arguments], env=environment))
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit status."""
    options = parse_arguments(arguments)
    if options.workers == 1 or "TF_CONFIG" in os.environ:
        try:
            train(options)
        except excitations.DataFileError as error:
            print(f"tutorial.py: {error}", file=sys.stderr)
            return 2
        return 0
    with workers(arguments, options.workers) as processes:
        return max(abs(process.wait()) for process in processes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
