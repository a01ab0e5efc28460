"""Forward and gradient of two models, engine `lightcone` beside engine `tfq`, in one process: see README.md."""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

from qmljob_training import runtime

runtime.prepare_environment()

import cirq  # noqa: E402
import numpy as np  # noqa: E402
import sympy  # noqa: E402
import tensorflow as tf  # noqa: E402

from qmljob_training.engines.lightcone.engine import LightconeEngine  # noqa: E402
from qmljob_training.engines.protocol import CircuitModel, Engine  # noqa: E402
from qmljob_training.engines.tfq import TfqEngine  # noqa: E402
from qmljob_training.quantum_layer import circuit_model  # noqa: E402
from qmljob_training.workloads import cluster_excitation, qcnn_circuits  # noqa: E402

ENGINES = {"lightcone": LightconeEngine, "tfq": TfqEngine}


def tutorial(qubits: int) -> CircuitModel:
    """The tutorial's network with several readouts."""
    bits = cluster_excitation.register(qubits)
    return circuit_model(
        cluster_excitation.encoding(bits),
        qcnn_circuits.multi_readout(bits),
        [cirq.Z(bit) for bit in bits[qubits // 2 :]],
        cluster_excitation.feature_symbols(qubits),
    )


def full_cone(qubits: int, layers: int = 4) -> CircuitModel:
    """Hardware-efficient ansatz: layers of rotations and a ladder of CX, every qubit read."""
    bits = cirq.LineQubit.range(qubits)
    encoding = cirq.Circuit(cirq.rx(sympy.Symbol(f"x{bit.x:02}"))(bit) for bit in bits)
    ansatz = cirq.Circuit()
    for layer in range(layers):
        ansatz.append(cirq.ry(sympy.Symbol(f"y{layer}_{bit.x:02}"))(bit) for bit in bits)
        ansatz.append(cirq.rz(sympy.Symbol(f"z{layer}_{bit.x:02}"))(bit) for bit in bits)
        # CZ gates between neighbours would reach one qubit a layer; these reach the other end.
        ansatz.append(cirq.CX(*pair) for pair in pairwise(bits))
    return circuit_model(encoding, ansatz, [cirq.Z(bit) for bit in bits])


def step(engine: Engine, model: CircuitModel, batch: int) -> Callable[[], object]:
    """Returns a call of values and weight gradient in one graph."""
    numbers = np.random.default_rng(1)
    features = tf.constant(numbers.uniform(-3, 3, (batch, len(model.feature_symbols))), tf.float32)
    weights = tf.constant(numbers.uniform(0, 2, len(model.weight_symbols)), tf.float32)
    expectation = engine.expectation(model)

    @tf.function
    def both() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            values = expectation(features, weights)
        return values, tape.gradient(values, weights)

    def call() -> object:
        return both()[1].numpy()

    return call


def measure(call: Callable[[], object], seconds: float) -> dict[str, float]:
    """Returns times in milliseconds; the first call, which compiles, apart."""
    start = time.perf_counter()
    call()
    compiled = time.perf_counter() - start
    times: list[float] = []
    while len(times) < 3 or (sum(times) < seconds and len(times) < 500):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    low, high = np.percentile(times, (10, 90))
    return {
        "first_call_s": round(compiled, 2),
        "min_ms": round(1e3 * min(times), 3),
        "median_ms": round(1e3 * statistics.median(times), 3),
        "p10_ms": round(1e3 * float(low), 3),
        "p90_ms": round(1e3 * float(high), 3),
        "runs": len(times),
    }


def cases(full: list[int], tfq_full: int) -> Iterator[tuple[str, str, int, int]]:
    """Yields model, engine, qubits and batch."""
    yield ("tutorial", "tfq", 8, 32)
    for qubits in (8, 12, 16, 20, 22, 23):
        yield ("tutorial", "lightcone", qubits, 32)
    for qubits in full:
        batch = 32 if qubits < 14 else 2
        yield ("full cone", "lightcone", qubits, batch)
        if qubits <= tfq_full:
            yield ("full cone", "tfq", qubits, batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    parser.add_argument("--full", default="8,12,16,20", help="qubits of the full cone; empty for none")
    parser.add_argument("--tfq-full", type=int, default=20, help="the largest full cone for engine tfq")
    given = parser.parse_args()
    runtime.configure(given.threads)
    print(
        json.dumps(
            {
                "versions": runtime.versions(),
                "threads": given.threads,
                "cores": os.cpu_count(),
                "machine": platform.machine(),
                "load": os.getloadavg()[0],
            }
        ),
        flush=True,
    )
    models = {"tutorial": tutorial, "full cone": full_cone}
    base: dict[tuple[str, int], float] = {}
    for name, engine, qubits, batch in cases([int(n) for n in given.full.split(",") if n], given.tfq_full):
        found = measure(step(ENGINES[engine](), models[name](qubits), batch), given.seconds)
        base[f"{name} {engine}", qubits] = found["median_ms"]
        record = {"model": name, "engine": engine, "qubits": qubits, "batch": batch, **found}
        if name == "tutorial":
            record["times_faster_than_tfq_at_8"] = round(base["tutorial tfq", 8] / found["median_ms"], 1)
        elif (ours := base.get(("full cone lightcone", qubits))) and engine == "tfq":
            record["lightcone_times_faster"] = round(found["median_ms"] / ours, 1)
        print(json.dumps(record | {"load": round(os.getloadavg()[0], 1)}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
