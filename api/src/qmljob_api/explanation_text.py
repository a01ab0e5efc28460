"""An explanation as a person reads it."""

from collections.abc import Sequence

from qmljob_api.explanation import CircuitExplanation, EngineEstimate, Explanation, ReadoutGroup, ScaleOut

_METHODS = {"heisenberg": "observables moved back: {} contraction(s)", "state": "state vectors: {} fused block(s)"}
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_LISTED = 12


def as_text(explanation: Explanation) -> str:
    """Returns the explanation in lines."""
    told = explanation
    lines = [
        f"{told.workload}, {told.qubits} qubits: {told.train_examples} training and {told.test_examples} test "
        f"examples, {told.epochs} epoch(s) of {told.steps} step(s)",
        f"{told.workers} worker(s), {told.batch_size} examples a step each (global batch {told.global_batch_size}), "
        f"{told.threads} thread(s) each; {told.cores} core(s) here",
    ]
    for circuit in told.circuits:
        lines += _circuit(circuit)
    lines.append(f"engine {told.engine}: {told.reason}")
    lines += [f"  {_engine(each)}" for each in told.engines]
    if told.step_seconds is not None and told.epoch_seconds is not None and told.compile_seconds is not None:
        lines.append(
            f"time: {duration(told.step_seconds)} a step, {duration(told.epoch_seconds)} an epoch, and "
            f"{duration(told.compile_seconds)} for compiling, once; on one thread ({told.calibration})"
        )
    else:
        lines.append(f"time: unknown: there is no cost model for {told.engine} with this workload")
    if told.scale_out is not None:
        lines.append(_scale_out(told.scale_out))
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Returns a time with a unit that suits it (`1.2 ms`, `3.4 s`); estimates have two digits at most."""
    factor, unit = next(((size, name) for size, name in _UNITS if seconds >= size), _UNITS[-1])
    return f"{_two_digits(seconds / factor)} {unit}"


def size(count: int) -> str:
    """Returns bytes with a unit that suits them (`3.4 MiB`)."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{_two_digits(amount)} {unit}"


def _two_digits(value: float) -> str:
    if value >= 10:
        return f"{float(f'{value:.2g}'):,.0f}"
    return f"{value:.2g}"


def _circuit(circuit: CircuitExplanation) -> list[str]:
    lines = [
        f"circuit: {circuit.qubits} qubits, {circuit.gates} gates, {circuit.symbols} symbols, "
        f"{circuit.features} features, {len(circuit.cones)} readout(s)"
    ]
    kinds: dict[str, list[int]] = {}
    for number, cone in enumerate(circuit.cones):
        text = f"light cone of {cone.qubits} of {circuit.qubits} qubits, {cone.gates} of {circuit.primitives} gates"
        kinds.setdefault(text, []).append(number)
    lines += [f"  readout {_numbers(numbers)}: {text}" for text, numbers in kinds.items()]
    return lines + [f"  computed together: {_group(group)}" for group in circuit.groups]


def _group(group: ReadoutGroup) -> str:
    method = _METHODS[group.method].format(group.steps)
    return f"readout {_numbers(group.readouts)}, {group.qubits} qubits, {method}"


def _numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:_LISTED])
    return shown if len(numbers) <= _LISTED else f"{shown} and {len(numbers) - _LISTED} more"


def _engine(found: EngineEstimate) -> str:
    if found.refusal is not None:
        return f"{found.engine}: not possible: {found.refusal}"
    return (
        f"{found.engine}: {found.multiplications:.2g} multiplications a step, {duration(found.seconds)}; memory "
        f"{size(found.example_bytes)} an example, {size(found.batch_bytes)} the batch"
    )


def _scale_out(found: ScaleOut) -> str:
    verdict = "helps" if found.helps else "does not help"
    return (
        f"a second worker {verdict}: a step of the same global batch takes {duration(found.one_seconds)} on one, "
        f"{duration(found.two_seconds)} on two, of which {duration(found.all_reduce_seconds)} go to summing "
        f"{found.parameters} numbers: {found.speedup:.2g} times as fast"
    )
