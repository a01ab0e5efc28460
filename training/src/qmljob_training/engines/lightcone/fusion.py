"""Fuses neighbouring primitives into blocks: one small matrix in the place of many."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import permutations
from typing import Any

import cirq

from qmljob_training.engines.lightcone.lowering import Primitive

MAX_ORDERED = 3
"""Larger blocks keep the order of qubits that they were built in."""


class Kind(Enum):
    """What a matrix depends on."""

    CONSTANT = 0
    WEIGHTS = 1
    FEATURES = 2


@dataclass(frozen=True)
class Block:
    """Primitives that are applied as one matrix.

    Attributes:
        qubits: the first is the most significant.
        members: in order; each with its qubits' positions in `qubits`.
        kind: what the matrix depends on.
    """

    qubits: tuple[cirq.Qid, ...]
    members: tuple[tuple[Primitive, tuple[int, ...]], ...]
    kind: Kind

    def key(self) -> tuple[Any, ...]:
        """Equal for blocks with the same matrix, whatever their qubits."""
        return (len(self.qubits), *((primitive.key(), places) for primitive, places in self.members))


def kind_of(primitive: Primitive, features: Collection[str]) -> Kind:
    """Returns what a primitive depends on."""
    if not primitive.symbols:
        return Kind.CONSTANT
    return Kind.FEATURES if primitive.symbols[0] in features else Kind.WEIGHTS


def fuse(primitives: Sequence[Primitive], features: Collection[str], width: int = 2) -> tuple[Block, ...]:
    """Returns blocks on up to `width` qubits (more for a gate that needs more) that make up the same circuit.

    A primitive joins the block that was the last to act on all of its qubits; else it starts a block and takes in
    those that are the last on all of their own qubits, as long as the width allows. Blocks that depend on features
    have a matrix for each example, so nothing but single qubits' constants joins them.
    """
    blocks: dict[int, _Open] = {}
    last: dict[cirq.Qid, int] = {}
    for number, primitive in enumerate(primitives):
        new = _Open(primitive.qubits, (primitive,), kind_of(primitive, features))
        earlier = sorted({last[qubit] for qubit in primitive.qubits if qubit in last})
        if len(earlier) == 1 and (joined := _joined([blocks[earlier[0]], new], width)):
            blocks[earlier[0]] = joined
            for qubit in primitive.qubits:
                last[qubit] = earlier[0]
            continue
        for index in reversed(earlier):
            free = all(last[qubit] == index for qubit in blocks[index].qubits)
            if free and (joined := _joined([blocks[index], new], width)):
                del blocks[index]
                new = joined
        blocks[number] = new
        last.update(dict.fromkeys(new.qubits, number))
    # A block that took in others stands where its newest member stood, so numbers are the order.
    return tuple(blocks[number].close() for number in sorted(blocks))


@dataclass(frozen=True)
class _Open:
    qubits: tuple[cirq.Qid, ...]
    members: tuple[Primitive, ...]
    kind: Kind

    def close(self) -> Block:
        """Returns the block in the order of qubits, and of members that commute, that equal blocks have in common."""
        if len(self.qubits) > MAX_ORDERED:
            return self._in_order(self.qubits)
        return min((self._in_order(order) for order in permutations(self.qubits)), key=_digest)

    def _in_order(self, qubits: tuple[cirq.Qid, ...]) -> Block:
        place = {qubit: index for index, qubit in enumerate(qubits)}
        waiting = [(member, tuple(place[qubit] for qubit in member.qubits)) for member in self.members]
        members = []
        while waiting:
            seen: set[int] = set()
            ready = []
            for each in waiting:
                if not seen & set(each[1]):
                    ready.append(each)
                seen |= set(each[1])
            first = min(ready, key=lambda each: min(each[1]))
            members.append(first)
            waiting = [each for each in waiting if each is not first]
        return Block(qubits, tuple(members), self.kind)


def _digest(block: Block) -> bytes:
    return hashlib.sha256(repr(block.key()).encode()).digest()


def _joined(parts: Sequence[_Open], width: int) -> _Open | None:
    qubits = tuple(dict.fromkeys(qubit for part in parts for qubit in part.qubits))
    kinds = {part.kind for part in parts} - {Kind.CONSTANT}
    if len(qubits) > max(width, *(len(part.qubits) for part in parts)) or len(kinds) > 1:
        return None
    kind = kinds.pop() if kinds else Kind.CONSTANT
    if kind is Kind.FEATURES and len(qubits) > 1 and any(part.kind is Kind.CONSTANT for part in parts):
        return None
    return _Open(qubits, tuple(member for part in parts for member in part.members), kind)
