"""Two models on engine `lightcone`, by native loops and by XLA, beside engine `tfq`, in one process: see README.md."""

import argparse
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from qmljob_training import runtime

runtime.prepare_environment()

import cirq  # noqa: E402
import numpy as np  # noqa: E402
import sympy  # noqa: E402
import tensorflow as tf  # noqa: E402

from qmljob_training.engines.lightcone.engine import LightconeEngine  # noqa: E402
from qmljob_training.engines.lightcone.formulation import formulate  # noqa: E402
from qmljob_training.engines.lightcone.native import Matrices, native_plan  # noqa: E402
from qmljob_training.engines.protocol import CircuitModel, Engine  # noqa: E402
from qmljob_training.engines.tfq import TfqEngine  # noqa: E402
from qmljob_training.native import ops  # noqa: E402
from qmljob_training.quantum_layer import circuit_model  # noqa: E402
from qmljob_training.workloads import cluster_excitation, qcnn_circuits  # noqa: E402

ENGINES: dict[str, Callable[[], Engine]] = {
    "native": partial(LightconeEngine, native=True),
    "xla": partial(LightconeEngine, native=False),
    "tfq": TfqEngine,
}


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


def step(engine: Engine, model: CircuitModel, batch: int, *, gradient: bool = True) -> Callable[[], object]:
    """Returns a call of values, and of the weights' gradient, in one graph."""
    numbers = np.random.default_rng(1)
    features = tf.constant(numbers.uniform(-3, 3, (batch, len(model.feature_symbols))), tf.float32)
    weights = tf.constant(numbers.uniform(0, 2, len(model.weight_symbols)), tf.float32)
    expectation = engine.expectation(model)

    @tf.function
    def forward() -> tf.Tensor:
        return expectation(features, weights)

    @tf.function
    def both() -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            values = expectation(features, weights)
        return tape.gradient(values, weights)

    def call() -> object:
        return (both if gradient else forward)().numpy()

    return call


@dataclass
class Case:
    """One engine on one model; `calls` are values alone, and values and gradient."""

    engine: str
    calls: dict[str, Callable[[], object]]
    first_call_s: float
    wall_ms: dict[str, list[float]] = field(default_factory=dict)
    processor_ms: dict[str, list[float]] = field(default_factory=dict)


def prepared(name: str, make: Callable[[], Engine], model: CircuitModel, batch: int) -> Case:
    start = time.perf_counter()
    calls = {kind: step(make(), model, batch, gradient=kind == "gradient") for kind in ("forward", "gradient")}
    for call in calls.values():
        call()
    return Case(name, calls, round(time.perf_counter() - start, 2))


def measure_in_turns(cases: Sequence[Case], seconds: float) -> None:
    """Fills in times in milliseconds: one engine after the other, again and again, so that all see the same machine."""
    start = time.perf_counter()
    rounds = 0
    while rounds < 3 or (time.perf_counter() - start < seconds * len(cases) and rounds < 300):
        rounds += 1
        for case in cases:
            for kind, call in case.calls.items():
                wall, processor = time.perf_counter(), time.process_time()
                call()
                case.wall_ms.setdefault(kind, []).append(1e3 * (time.perf_counter() - wall))
                case.processor_ms.setdefault(kind, []).append(1e3 * (time.process_time() - processor))


def told(times: Sequence[float]) -> dict[str, float]:
    low, high = np.percentile(times, (10, 90))
    found = {"min": min(times), "median": statistics.median(times), "p10": float(low), "p90": float(high)}
    return {name: round(value, 3) for name, value in found.items()}


def memory_bandwidth(amplitudes: int) -> float:
    """Returns bytes a second of a triad (McCalpin 1995) on arrays as large as a state vector in single precision."""
    one, other = np.ones(2 * amplitudes, np.float32), np.ones(2 * amplitudes, np.float32)
    times = []
    for _ in range(10):
        start = time.perf_counter()
        np.multiply(one, 1.0001, out=other)
        times.append(time.perf_counter() - start)
    return 2 * one.nbytes / min(times)


def bound(model: CircuitModel, batch: int) -> dict[str, float]:
    """Returns what memory alone would take, in ms: each pass reads and writes the vectors that it moves.

    `by_block`: a pass for each fused block of two qubits, forward on one vector, backward on two. `by_sweep`: the
    passes that the native plan makes, which a cache blocks.
    """
    (program,) = formulate(model, "state", native=True).states
    matrices = Matrices([block for block, _ in program.blocks], model.feature_symbols, model.weight_symbols)
    sweeps = native_plan(program, matrices, 4).sweeps
    speed = memory_bandwidth(2**program.qubits)
    once = 1e3 * 2 * 8 * 2**program.qubits / speed
    return {
        "bandwidth_gb_s": round(speed / 1e9, 1),
        "by_block_ms": round(3 * batch * len(program.blocks) * once, 2),
        "by_sweep_ms": round(3 * batch * sweeps * once, 2),
    }


def resident_mib() -> float:
    """Returns the most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def batch_of(qubits: int) -> int:
    """Returns the batch of a full register, the same for all engines: less where a call would take minutes."""
    return 32 if qubits < 14 else 4 if qubits < 18 else 1


def run_model(name: str, qubits: int, engines: Sequence[str], seconds: float) -> None:
    """Measures the engines on one model, in turns, and prints a record for each."""
    model = MODELS[name](qubits)
    batch = 32 if name == "tutorial" else batch_of(qubits)
    cases = [prepared(engine, ENGINES[engine], model, batch) for engine in engines]
    measure_in_turns(cases, seconds)
    for case in cases:
        record: dict[str, Any] = {"model": name, "engine": case.engine, "qubits": qubits, "batch": batch}
        record["first_call_s"] = case.first_call_s
        for kind in case.calls:
            record[kind] = {"wall_ms": told(case.wall_ms[kind]), "processor_ms": told(case.processor_ms[kind])}
            for other in cases:
                if other is not case:
                    ratio = statistics.median(other.processor_ms[kind]) / statistics.median(case.processor_ms[kind])
                    wall = statistics.median(other.wall_ms[kind]) / statistics.median(case.wall_ms[kind])
                    record[kind][f"times_faster_than_{other.engine}"] = {
                        "wall": round(wall, 1),
                        "processor": round(ratio, 1),
                    }
        if name == "full cone" and qubits >= 20 and case.engine == "native":
            record["memory_bound"] = bound(model, batch)
        record |= {"peak_mib": round(resident_mib()), "runs": len(case.wall_ms["forward"])}
        print(json.dumps(record | {"load": round(os.getloadavg()[0], 1)}), flush=True)


def peak_memory(qubits: int, threads: int) -> None:
    """Prints state vectors a circuit in flight: peak memory after 8 qubits and after `qubits`, a batch of `threads`."""
    engine = LightconeEngine(method="state", native=True)
    step(engine, full_cone(8), 32)()
    before = resident_mib()
    step(engine, full_cone(qubits), threads)()
    vectors = (resident_mib() - before) / (8 * 2**qubits / 2**20) / threads
    print(json.dumps({"qubits": qubits, "circuits": threads, "state_vectors_a_circuit": round(vectors, 2)}), flush=True)


MODELS = {"tutorial": tutorial, "full cone": full_cone}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each engine and model, at least three rounds")
    parser.add_argument("--qubits", default="8,12,16,20,22")
    parser.add_argument("--models", default="full cone,tutorial")
    parser.add_argument("--engines", default="native,xla,tfq")
    parser.add_argument("--largest-xla", type=int, default=16, help="full registers beyond this are left out for xla")
    parser.add_argument("--memory", action="store_true", help="only the peak memory, of one --qubits")
    given = parser.parse_args()
    runtime.configure(given.threads)
    sizes = [int(number) for number in given.qubits.split(",")]
    if given.memory:
        return peak_memory(sizes[0], given.threads)
    start = {"versions": runtime.versions(), "loops": ops.description(), "threads": given.threads}
    print(json.dumps(start | {"cores": os.cpu_count(), "load": os.getloadavg()[0]}), flush=True)
    for name in given.models.split(","):
        for qubits in sizes:
            engines = given.engines.split(",")
            if name == "full cone" and qubits > given.largest_xla:
                engines = [engine for engine in engines if engine != "xla"]
            if name == "tutorial" and qubits > 8:
                # TensorFlow Quantum takes minutes for the whole register: it is the measure at 8 qubits only.
                engines = [engine for engine in engines if engine != "tfq"]
            run_model(name, qubits, engines, given.seconds)
    return None


if __name__ == "__main__":
    sys.exit(main())
