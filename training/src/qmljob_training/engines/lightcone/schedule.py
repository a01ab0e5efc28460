"""In which order the native loops apply blocks, and which amplitudes they take to a cache together.

An amplitude's number is made of bits, one a qubit. The lowest are *lanes*: their amplitudes lie in one vector of the
processor, where no gate reaches them; the others number *rows*. A sweep takes rows that differ in a few local bits to
a cache and applies all blocks there that it can; to reach a qubit in a lane it exchanges the lanes with local bits.
So state vectors larger than a cache pass through memory a few times, not once a block (Häner and Steiger 2017,
arXiv:1704.01127, section 3.3 has the idea).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

LOCAL_BITS = 10
"""Bits of the rows in a sweep: state and costate are 256 KiB then, of a second-level cache."""


@dataclass(frozen=True)
class Step:
    """A block on local bits; `block` None exchanges the lanes' bits, the lowest first, with local ones."""

    block: int | None
    places: tuple[int, ...]


@dataclass(frozen=True)
class Sweep:
    """Steps on rows that differ in `locals`, bits of the row's number, ascending; places count in `locals`."""

    locals: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Schedule:
    """Sweeps, and each qubit's bit of the amplitude's number when they are done."""

    sweeps: tuple[Sweep, ...]
    bits: tuple[int, ...]


def schedule(
    blocks: Sequence[tuple[int, tuple[int, ...]]], bits: Sequence[int], lanes: int, local_bits: int = LOCAL_BITS
) -> Schedule:
    """Returns sweeps that apply blocks, each a number and its qubits, in an order that leaves the circuit the same.

    Args:
        bits: each qubit's bit at the start.
        lanes: how many bits are lanes; 0 where the lanes are examples.
        local_bits: of the rows, in a sweep.
    """
    widest = max((len(qubits) for _, qubits in blocks), default=1)
    if min(len(bits) - lanes, local_bits) < _needed(lanes, widest):
        raise ValueError(f"blocks of {widest} of {len(bits)} qubits with {local_bits} local bits beside {lanes} lanes")
    state = _State(list(bits), lanes)
    left = list(blocks)
    sweeps = []
    while left:
        reached = _reached(left, state.in_lanes(), min(len(bits), local_bits + lanes))
        reached = _filled(reached, state.bits, min(len(bits), local_bits + lanes))
        sweep, left = _sweep(left, reached, state)
        sweeps.append(sweep)
    return Schedule(tuple(sweeps), tuple(state.bits))


def local_bits_for(qubits: int, lanes: int, widest: int) -> int | None:
    """Returns the local bits that the widest block needs beside the lanes; None where there are too few qubits."""
    rows, needed = qubits - lanes, _needed(lanes, widest)
    return None if rows < needed else min(rows, max(LOCAL_BITS, needed))


def _needed(lanes: int, widest: int) -> int:
    # A block that waits for a lane's qubit has its other qubits in the rows, and the lanes need as many others.
    return widest - 1 + lanes if lanes else widest


@dataclass
class _State:
    bits: list[int]
    lanes: int
    steps: list[Step] = field(default_factory=list)

    def in_lanes(self) -> set[int]:
        return {qubit for qubit, bit in enumerate(self.bits) if bit < self.lanes}


Placed = list[tuple[int, tuple[int, ...]]]


def _reached(left: Placed, start: set[int], limit: int) -> set[int]:
    """Returns the qubits of as many blocks as can come next on at most `limit` qubits."""
    reached, blocked = set(start), set[int]()
    for _, qubits in left:
        if blocked.isdisjoint(qubits) and len(reached | set(qubits)) <= limit:
            reached |= set(qubits)
        else:
            blocked |= set(qubits)
    return reached


def _filled(reached: set[int], bits: Sequence[int], limit: int) -> set[int]:
    """Adds the qubits of the lowest bits: neighbouring rows are copied together."""
    others = sorted((bit, qubit) for qubit, bit in enumerate(bits) if qubit not in reached)
    return reached | {qubit for _, qubit in others[: limit - len(reached)]}


def _sweep(left: Placed, reached: set[int], state: _State) -> tuple[Sweep, Placed]:
    rows = tuple(sorted(state.bits[qubit] - state.lanes for qubit in reached if state.bits[qubit] >= state.lanes))
    place = {bit: index for index, bit in enumerate(rows)}
    steps: list[Step] = []
    while True:
        run, left = _runnable(left, reached, state.in_lanes())
        for number, qubits in run:
            steps.append(Step(number, tuple(place[state.bits[qubit] - state.lanes] for qubit in qubits)))
        waiting = _runnable(left, reached, set())[0]
        if not waiting:
            return Sweep(rows, tuple(steps)), left
        partners = _next_lanes(waiting, reached - state.in_lanes(), state.lanes)
        order = sorted(state.in_lanes(), key=lambda qubit: state.bits[qubit])
        steps.append(Step(None, tuple(place[state.bits[qubit] - state.lanes] for qubit in partners)))
        for one, other in zip(order, partners, strict=True):
            state.bits[one], state.bits[other] = state.bits[other], state.bits[one]


def _runnable(left: Placed, reached: set[int], lanes: set[int]) -> tuple[Placed, Placed]:
    """Splits off the blocks that can be applied now: all their qubits are reached, none of them is in a lane."""
    run: Placed = []
    rest: Placed = []
    blocked: set[int] = set()
    for block in left:
        qubits = set(block[1])
        if blocked.isdisjoint(qubits) and qubits <= reached and lanes.isdisjoint(qubits):
            run.append(block)
        else:
            rest.append(block)
            blocked |= qubits
    return run, rest


def _next_lanes(waiting: Placed, candidates: set[int], lanes: int) -> list[int]:
    """Returns the qubits that are not used for longest; never one of the first block that waits."""
    next_use = {qubit: len(waiting) for qubit in candidates}
    for index in range(len(waiting) - 1, -1, -1):
        next_use.update({qubit: index for qubit in waiting[index][1] if qubit in candidates})
    return sorted(candidates, key=lambda qubit: (-next_use[qubit], qubit))[:lanes]
