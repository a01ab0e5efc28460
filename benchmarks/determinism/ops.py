"""Which op is not deterministic by itself? Each op of a training step alone, many times, in several processes.

An op is given the same seeded inputs each time. Counted are the different results: in one process, over processes of
the same settings, and over thread counts. The last op is the negative control: a sum whose order is left to chance,
which must be found. The collective ops run in gangs of two and three processes.

Exit status 1 where an op besides the control gave two results under one and the same settings.
"""

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gang
import settings
from settings import Settings

CONTROL = "control: concurrent assign_add"
BATCH = 32
Op = Callable[[], Any]
Counts = dict[str, dict[str, int]]
"""Of each op, how often each result (a digest) was seen."""


def quantum_ops(tf: Any, qubits: int, examples: int, batch: int) -> Iterator[tuple[str, Op]]:
    """Yields engine tfq's two ops, and their gradient summed over the batch as the layer does it.

    TensorFlow Quantum splits a batch over threads by example, but a batch of one by amplitude: hence both.
    """
    import cirq
    import numpy as np
    import tensorflow_quantum as tfq

    from qmljob_training.workloads import cluster_excitation, qcnn_circuits

    bits = cluster_excitation.register(qubits)
    circuit = cluster_excitation.encoding(bits) + qcnn_circuits.multi_readout(bits)
    symbols = sorted(cirq.parameter_names(circuit))
    names = tf.constant(symbols)
    readouts = bits[len(bits) // 2 :]
    op = tfq.differentiators.Adjoint().generate_differentiable_op(analytic_op=tfq.get_expectation_op())
    draw = np.random.default_rng(qubits)
    programs = tfq.convert_to_tensor([circuit] * examples)
    sums = tfq.convert_to_tensor([[cirq.Z(bit) for bit in readouts]] * examples)
    one = tf.constant(draw.uniform(0, 2, (1, len(symbols))).astype(np.float32))
    jitter = tf.constant(draw.uniform(0, 1, (examples, len(symbols))).astype(np.float32))
    upstream = tf.constant(draw.normal(size=(examples, len(readouts))).astype(np.float32))

    def values(weights: Any) -> Any:
        return tf.tile(weights, [examples, 1]) + jitter

    def expectation(each: Any) -> Any:
        parts = [slice(first, first + batch) for first in range(0, examples, batch)]
        return tf.concat([op(programs[part], names, each[part], sums[part]) for part in parts], 0)

    @tf.function
    def forward() -> Any:
        return expectation(values(one))

    @tf.function
    def gradient() -> Any:
        each = values(one)
        with tf.GradientTape() as tape:
            tape.watch(each)
            answer = expectation(each)
        return tape.gradient(answer, each, upstream)

    @tf.function
    def summed_gradient() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(one)
            answer = expectation(values(one))
        return tape.gradient(answer, one, upstream)

    where = f"{qubits} qubits, batch {batch}"
    yield f"tfq expectation, {where}", forward
    yield f"tfq adjoint gradient, {where}", gradient
    yield f"tfq adjoint gradient summed over the batch, {where}", summed_gradient


def classical_ops(tf: Any) -> Iterator[tuple[str, Op]]:
    """Yields the other ops of a step in its shapes, and large ones, which TensorFlow splits over threads."""
    import numpy as np
    import tf_keras

    draw = np.random.default_rng(0)

    def numbers(*shape: int) -> Any:
        return tf.constant(draw.normal(size=shape).astype(np.float32))

    for rows, inner, columns in ((BATCH, 4, 8), (8, BATCH, 4), (BATCH, 8, 1), (64, 65536, 64)):
        left, right = numbers(rows, inner), numbers(inner, columns)
        yield f"matmul {rows} x {inner} x {columns}", tf.function(lambda left=left, right=right: tf.matmul(left, right))
    for shape in ((BATCH,), (BATCH, 29), (1 << 21,), (2048, 1024)):
        full = numbers(*shape)
        name = " x ".join(str(length) for length in shape)
        yield f"reduce_sum {name}, first axis", tf.function(lambda full=full: tf.reduce_sum(full, axis=0))
    table, rows = numbers(112, 8), tf.constant(draw.integers(0, 112, BATCH).astype(np.int32))
    yield "gather", tf.function(lambda: tf.gather(table, rows))

    start = [numbers(21), numbers(4, 8), numbers(8), numbers(1 << 20)]
    gradients = [[numbers(*value.shape) for value in start] for _ in range(3)]
    variables = [tf.Variable(value) for value in start]
    optimizer = tf_keras.optimizers.Adam(0.02)
    optimizer.build(variables)

    @tf.function
    def adam() -> Any:
        for variable, value in zip(variables, start, strict=True):
            variable.assign(value)
        for slot in optimizer.variables:
            if "learning_rate" not in slot.name:
                slot.assign(tf.zeros_like(slot))
        for each in gradients:
            optimizer.apply_gradients(zip(each, variables, strict=True))
        return [tf.identity(variable) for variable in variables]

    yield "Adam, 3 steps", adam


def control(tf: Any) -> Op:
    """Returns a sum whose order is left to chance: additions to one variable that nothing puts in order."""
    import numpy as np

    terms = (10.0 ** np.random.default_rng(0).uniform(-3, 3, (64, 512))).astype(np.float32)
    graph = tf.Graph()
    with graph.as_default():
        total = tf.compat.v1.get_variable("total", 512, tf.float32, tf.zeros_initializer(), use_resource=True)
        fed = tf.compat.v1.placeholder(tf.float32, terms.shape)
        additions = [total.assign_add(fed[row], read_value=False) for row in range(len(terms))]
    session = tf.compat.v1.Session(
        graph=graph,
        config=tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=tf.config.threading.get_intra_op_parallelism_threads(),
            inter_op_parallelism_threads=tf.config.threading.get_inter_op_parallelism_threads(),
        ),
    )

    def run() -> Any:
        session.run(total.initializer)
        session.run(additions, {fed: terms})
        return session.run(total)

    return run


def collectives(tf: Any, strategy: Any, rank: int, workers: int) -> Iterator[tuple[str, Op]]:
    """Yields the ring all-reduce, of a gradient's size and of a large one."""
    import numpy as np

    draw = np.random.default_rng([7, rank])
    for size in (69, 1 << 18):
        value = tf.constant((10.0 ** draw.uniform(-3, 3, size)).astype(np.float32))

        @tf.function
        def reduce(value: Any = value) -> Any:
            return strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None)

        yield f"ring all-reduce of {size}, {workers} workers", reduce


def count(op: Op, repeat: int) -> dict[str, int]:
    """Returns how often each result was seen."""
    import numpy as np
    import tensorflow as tf

    seen: dict[str, int] = defaultdict(int)
    for _ in range(repeat):
        digest = hashlib.sha256()
        for part in tf.nest.flatten(op()):
            digest.update(np.asarray(part).tobytes())
        seen[digest.hexdigest()[:12]] += 1
    return dict(seen)


def child(options: argparse.Namespace) -> None:
    """Runs every op in this process and writes the counts."""
    from qmljob_training import runtime

    runtime.prepare_environment()
    import tensorflow as tf

    settings.from_environment().apply()
    found: Counts = {}
    if options.workers > 1:
        ring = tf.distribute.experimental.CommunicationImplementation.RING
        hints = tf.distribute.experimental.CommunicationOptions(implementation=ring)
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=hints)
        rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        for name, op in collectives(tf, strategy, rank, options.workers):
            found[name] = count(op, options.repeat)
    else:
        for qubits, (examples, batch) in itertools.product(options.qubits, ((BATCH, BATCH), (8, 1))):
            for name, op in quantum_ops(tf, qubits, examples, batch):
                found[name] = count(op, options.repeat)
        for name, op in classical_ops(tf):
            found[name] = count(op, options.repeat)
        found[CONTROL] = count(control(tf), options.repeat)
    options.child.write_text(json.dumps(found))


def measure(job: gang.Job, options: argparse.Namespace) -> list[Counts]:
    """Runs one gang of child processes and returns the counts of each."""
    command = [sys.executable, __file__, f"--repeat={options.repeat}", f"--workers={job.workers}"]
    command += [f"--qubits={','.join(map(str, options.qubits))}"]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / str(rank) for rank in range(job.workers)]
        processes = [
            subprocess.Popen([*command, f"--child={file}"], env={"TF_CPP_MIN_LOG_LEVEL": "2", **environment})
            for environment, file in zip(gang.environments(job), files, strict=True)
        ]
        try:
            codes = [process.wait(gang.LIMIT_SECONDS) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if any(codes):
            raise gang.GangFailedError(f"{job}: exit codes {codes}")
        return [json.loads(file.read_text()) for file in files]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=_numbers, default="1,2,4")
    parser.add_argument("--inter-op", type=_numbers, default="2")
    parser.add_argument("--determinism", type=_numbers, default="0,1", help="1 is on, 0 is off")
    parser.add_argument("--qubits", type=_numbers, default="4,8,12")
    parser.add_argument(
        "--gangs", type=_numbers, default="1,2,3", help="numbers of processes; 1 is all ops but collectives"
    )
    parser.add_argument("--processes", type=int, default=3, help="gangs of the same settings")
    parser.add_argument("--repeat", type=int, default=100, help="in each process")
    parser.add_argument("--environment", action="append", default=[], metavar="NAME=VALUE", help="of one more variant")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Measures everything and prints a table; returns the exit status."""
    options = parse_arguments(arguments)
    if options.child:
        child(options)
        return 0
    seen: dict[str, dict[gang.Job, list[dict[str, int]]]] = defaultdict(lambda: defaultdict(list))
    environments = [(), *((tuple(text.split("=", 1)),) for text in options.environment)]
    axes = (options.gangs, options.determinism, options.inter_op, options.threads, environments)
    for _, parts in itertools.product(range(options.processes), itertools.product(*axes)):
        workers, on, inter_op, threads, environment = parts
        job = gang.Job(Settings(threads, inter_op, bool(on)), workers, environment=environment)
        for counts in measure(job, options):
            for name, results in counts.items():
                seen[name][job].append(results)
    return report(seen)


def report(seen: dict[str, dict[gang.Job, list[dict[str, int]]]]) -> int:
    """Prints a table of how many different results each op gave; returns the exit status."""
    print("| op | times | results in a process | over processes | over all settings |\n| --- | --- | --- | --- | --- |")
    unstable = False
    for name, by_job in seen.items():
        processes = [results for found in by_job.values() for results in found]
        inside = max(len(results) for results in processes)
        across = max(len(set().union(*found)) for found in by_job.values())
        total = len(set().union(*processes))
        times = sum(sum(results.values()) for results in processes)
        print(f"| {name} | {times} | {inside} | {across} | {total} |")
        unstable |= name != CONTROL and across > 1
    return int(unstable)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
