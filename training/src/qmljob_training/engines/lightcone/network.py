"""An expectation value as a network of real tensors over Pauli indices.

The value of a Pauli string is the string, moved back by each block's transfer matrix, read off on |0...0>. Networks of
different readouts that are equal up to which feature stands where get the same tensors, and can share a computation.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cirq
import numpy as np
from numpy.typing import NDArray

from qmljob_training.engines.lightcone.fusion import Block, Kind, fuse
from qmljob_training.engines.lightcone.lowering import Affine, Primitive
from qmljob_training.engines.lightcone.matrices import constant_matrix
from qmljob_training.engines.lightcone.transfer import (
    TrigonometricTransfer,
    transfer_matrix,
    trigonometric_transfer,
)

MAX_BLOCK_QUBITS = 3
"""A transfer matrix has 16**k entries: circuits with larger gates are left to state vectors."""


@dataclass(frozen=True, eq=False)
class Node:
    """A tensor of the network.

    Attributes:
        kind: what its entries depend on.
        legs: a name for each axis; each is the leg of two nodes.
        shape: its axes' sizes.
        key: equal for nodes with equal entries.
        value: of a constant.
    """

    kind: Kind
    legs: tuple[int, ...]
    shape: tuple[int, ...]
    key: tuple[Any, ...]
    value: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Slot:
    """The trigonometric terms of a gate that depends on features: cos(pi frequencies e - pi/2 sines)."""

    exponent: Affine
    frequencies: tuple[float, ...]
    sines: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Network:
    """All nodes of one Pauli string's value.

    Attributes:
        nodes: a node of kind FEATURES has the key ("slot", its index in `slots`) and one leg.
        slots: in the order of their gates.
    """

    nodes: tuple[Node, ...]
    slots: tuple[Slot, ...]

    def key(self) -> tuple[Any, ...]:
        """Equal for networks that are the same computation on other features; for networks in `canonical` form."""
        nodes = tuple((node.key, node.legs) for node in self.nodes)
        return (nodes, tuple((len(slot.exponent.terms), slot.frequencies, slot.sines) for slot in self.slots))


def constant_node(value: NDArray[np.float64], legs: Sequence[int]) -> Node:
    """Returns a node with these entries, its axes in the order of their names."""
    order = np.argsort(legs)
    sorted_value = np.array(np.transpose(value, order), order="C")
    # Equal constants that came about in another order differ in the last digits; 0.0 is added to lose the sign of -0.
    digest = hashlib.sha256((np.round(sorted_value, 12) + 0.0).tobytes()).hexdigest()
    key = ("constant", sorted_value.shape, digest)
    return Node(Kind.CONSTANT, tuple(legs[axis] for axis in order), sorted_value.shape, key, sorted_value)


def renamed(nodes: Sequence[Node], slots: Sequence[Slot]) -> Network:
    """Returns the network with legs and slots numbered as a walk from the observable meets them.

    Nodes of the observable come first in `nodes`. Networks that are equal up to their qubits get the same names,
    wherever their circuits kept the order of gates, for what the walk follows is the order of each node's legs.
    """
    owners: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        for leg in node.legs:
            owners.setdefault(leg, []).append(index)
    names: dict[int, int] = {}
    visited: dict[int, None] = {}
    for start in range(len(nodes)):
        queue = [start]
        while queue:
            index = queue.pop(0)
            if index in visited:
                continue
            visited[index] = None
            for leg in nodes[index].legs:
                names.setdefault(leg, len(names))
                queue += [other for other in owners[leg] if other != index]
    order = [index for index in visited if nodes[index].kind is Kind.FEATURES]
    order.sort(key=lambda index: names[nodes[index].legs[0]])
    numbers = {nodes[index].key: ("slot", number) for number, index in enumerate(order)}
    moved = [
        constant_node(node.value, [names[leg] for leg in node.legs])
        if node.value is not None
        else Node(node.kind, tuple(names[leg] for leg in node.legs), node.shape, numbers.get(node.key, node.key))
        for node in nodes
    ]
    return Network(tuple(moved), tuple(slots[nodes[index].key[1]] for index in order))


class NetworkBuilder:
    """Makes networks whose weight blocks share one numbering: `blocks` collects each distinct one once."""

    def __init__(self, features: Collection[str]) -> None:
        self._features = features
        self._numbers: dict[tuple[Any, ...], int] = {}
        self.blocks: list[Block] = []

    def build(self, primitives: Sequence[Primitive], string: Mapping[cirq.Qid, cirq.Pauli]) -> Network | None:
        """Returns the network of a Pauli string (its coefficient left out) after the primitives of its light cone.

        Returns None where a block is too large.
        """
        blocks = fuse(primitives, self._features)
        if any(len(block.qubits) > MAX_BLOCK_QUBITS for block in blocks):
            return None
        qubits = sorted({qubit for block in blocks for qubit in block.qubits} | set(string))
        wires = _Wires(qubits)
        axis = {cirq.X: 1, cirq.Y: 2, cirq.Z: 3}
        # The string's own qubits first: the walk that names legs starts there.
        ends = [*(q for q in qubits if q in string), *(q for q in qubits if q not in string)]
        nodes = [constant_node(np.eye(4)[axis[string[q]] if q in string else 0], [wires.end[q]]) for q in ends]
        slots: list[Slot] = []
        for block in reversed(blocks):
            if block.kind is Kind.FEATURES:
                for primitive, places in reversed(block.members):
                    on = [block.qubits[place] for place in places]
                    nodes += self._feature_nodes(primitive, on, wires, slots)
            else:
                nodes.append(self._block_node(block, wires.back(block.qubits)))
        # <0| sigma |0> is 1 for I and Z.
        nodes += [constant_node(np.array([1.0, 0.0, 0.0, 1.0]), [wires.end[q]]) for q in qubits]
        return renamed(nodes, slots)

    def _block_node(self, block: Block, legs: tuple[int, ...]) -> Node:
        shape = (4,) * len(legs)
        if block.kind is Kind.CONSTANT:
            matrix = constant_matrix(block)
            return constant_node(transfer_matrix(matrix, matrix).real.reshape(shape), legs)
        number = self._numbers.setdefault(block.key(), len(self.blocks))
        if number == len(self.blocks):
            self.blocks.append(block)
        return Node(Kind.WEIGHTS, legs, shape, ("block", number))

    @staticmethod
    def _feature_nodes(
        primitive: Primitive, qubits: Sequence[cirq.Qid], wires: "_Wires", slots: list[Slot]
    ) -> list[Node]:
        shape = (4,) * (2 * len(qubits))
        if not primitive.symbols:
            matrix = primitive.unitary(primitive.exponent.constant)
            return [constant_node(transfer_matrix(matrix, matrix).real.reshape(shape), wires.back(qubits))]
        transfer: TrigonometricTransfer = trigonometric_transfer(primitive)
        legs, terms = wires.back(qubits), len(transfer.frequencies)
        leg = wires.fresh()
        slot = Slot(primitive.exponent, tuple(transfer.frequencies), tuple(transfer.sines))
        slots.append(slot)
        return [
            constant_node(transfer.matrices.reshape(terms, *shape), (leg, *legs)),
            Node(Kind.FEATURES, (leg,), (terms,), ("slot", len(slots) - 1)),
        ]


class _Wires:
    """Names of legs while a network is built from the observable back to the input."""

    def __init__(self, qubits: Sequence[cirq.Qid]) -> None:
        self.end = {qubit: index for index, qubit in enumerate(qubits)}
        self._next = len(qubits)

    def fresh(self) -> int:
        self._next += 1
        return self._next - 1

    def back(self, qubits: Sequence[cirq.Qid]) -> tuple[int, ...]:
        """Returns legs (nearer to the observable..., nearer to the input...) and moves the wires' ends there."""
        near = [self.end[qubit] for qubit in qubits]
        self.end.update({qubit: self.fresh() for qubit in qubits})
        return (*near, *(self.end[qubit] for qubit in qubits))
