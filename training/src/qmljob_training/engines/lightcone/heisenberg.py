"""Values by moving observables back: contracts the networks of all readouts, equal ones together.

What depends on weights alone is computed once a call, whatever the batch; an example then costs a few small products.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from qmljob_training.engines.lightcone.contraction import Contraction, Plan, fold_constants, plan
from qmljob_training.engines.lightcone.fusion import Block, Kind
from qmljob_training.engines.lightcone.matrices import MatrixTable, matrix_table
from qmljob_training.engines.lightcone.network import Network, Node
from qmljob_training.engines.lightcone.transfer import transfer_matrices

if TYPE_CHECKING:
    import tensorflow as tf

ASSUMED_BATCH = 32
"""Examples for each call that the order of contraction is chosen for."""


@dataclass(frozen=True)
class Group:
    """Networks that are one computation on different features."""

    members: tuple[Network, ...]
    plan: Plan


@dataclass(frozen=True)
class Program:
    """All networks of a model: groups, and the distinct blocks of weights that they use."""

    groups: tuple[Group, ...]
    order: tuple[int, ...]
    blocks: tuple[Block, ...]
    features: tuple[str, ...]
    weights: tuple[str, ...]


def group_networks(
    networks: Sequence[Network],
    blocks: Sequence[Block],
    features: Sequence[str],
    weights: Sequence[str],
    limit: float = inf,
) -> Program | None:
    """Returns the program of networks; `order[i]` is where network i's value stands among all groups' members."""
    folded = [replace(network, nodes=tuple(fold_constants(network.nodes))) for network in networks]
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, network in enumerate(folded):
        groups.setdefault(network.key(), []).append(index)
    listed = [index for members in groups.values() for index in members]
    planned = []
    for members in groups.values():
        examples = ASSUMED_BATCH * len(members)
        found = plan(folded[members[0]].nodes, examples, limit)
        if found is None:
            return None
        limit -= found.cost(examples)
        planned.append(Group(tuple(networks[index] for index in members), found))
    order = tuple(int(place) for place in np.argsort(listed))
    return Program(tuple(planned), order, tuple(blocks), tuple(features), tuple(weights))


def values_function(program: Program) -> Callable[["tf.Tensor", "tf.Tensor"], "tf.Tensor"]:
    """Returns (features [batch, features], weights [symbols]) -> values [batch, networks], for XLA."""
    import tensorflow as tf

    widths = sorted({len(block.qubits) for block in program.blocks})
    numbers = {width: [n for n, block in enumerate(program.blocks) if len(block.qubits) == width] for width in widths}
    tables = {width: matrix_table([program.blocks[n] for n in numbers[width]], program.weights) for width in widths}

    def values(features: "tf.Tensor", weights: "tf.Tensor") -> "tf.Tensor":
        made = _leaves(tables, numbers, weights)
        columns = [_group_values(group, features, program.features, made) for group in program.groups]
        return tf.gather(tf.concat(columns, axis=1), program.order, axis=1)

    return values


def _leaves(
    tables: dict[int, MatrixTable], numbers: dict[int, list[int]], weights: "tf.Tensor"
) -> dict[tuple[Any, ...], "tf.Tensor"]:
    import tensorflow as tf

    leaves = {}
    for width, table in tables.items():
        stack = tf.unstack(transfer_matrices(table.unitaries(weights)), axis=0)
        for number, matrix in zip(numbers[width], stack, strict=True):
            leaves[("block", number)] = tf.reshape(matrix, (4,) * (2 * width))
    return leaves


def _group_values(
    group: Group, features: "tf.Tensor", names: tuple[str, ...], made: dict[tuple[Any, ...], "tf.Tensor"]
) -> "tf.Tensor":
    """Returns the values [batch, members]; what depends on weights alone is kept in `made` for other groups."""
    import tensorflow as tf

    own = _slot_leaves(group, features, names)

    def evaluate(node: Node) -> "tf.Tensor":
        store = own if node.kind is Kind.FEATURES else made
        if node.key not in store:
            store[node.key] = (
                _contracted(node, evaluate)
                if isinstance(node, Contraction)
                else tf.constant(node.value, features.dtype)
            )
        return store[node.key]

    count, batch = len(group.members), tf.shape(features)[0]
    result = evaluate(group.plan.root)
    if group.plan.root.kind is Kind.FEATURES:
        return tf.reshape(result, (batch, count))
    return tf.broadcast_to(tf.reshape(result, (1, 1)), (batch, count))


def _contracted(node: Contraction, evaluate: Callable[[Node], "tf.Tensor"]) -> "tf.Tensor":
    import tensorflow as tf

    assert node.left is not None
    assert node.right is not None
    sides = (node.left, node.right)
    marks = [("Z" if side.kind is Kind.FEATURES else "") for side in (*sides, node)]
    terms = [mark + letters for mark, letters in zip(marks, node.pattern, strict=True)]
    return tf.einsum(f"{terms[0]},{terms[1]}->{terms[2]}", *(evaluate(side) for side in sides))


def _slot_leaves(group: Group, features: "tf.Tensor", names: tuple[str, ...]) -> dict[tuple[Any, ...], "tf.Tensor"]:
    """Returns the trigonometric terms of each slot, real [batch * members, terms]."""
    import tensorflow as tf

    leaves: dict[tuple[Any, ...], tf.Tensor] = {}
    place = {name: index for index, name in enumerate(names)}
    for number, slot in enumerate(group.members[0].slots):
        scales = np.zeros((len(names), len(group.members)))
        constants = np.zeros(len(group.members))
        for column, member in enumerate(group.members):
            exponent = member.slots[number].exponent
            constants[column] = exponent.constant
            for name, scale in exponent.terms:
                scales[place[name], column] = scale
        exponents = features @ tf.constant(scales, features.dtype) + tf.constant(constants, features.dtype)
        angles = tf.reshape(exponents, (-1, 1)) * tf.constant(np.pi * np.array(slot.frequencies), features.dtype)
        leaves[("slot", number)] = tf.where(np.array(slot.sines, bool), tf.sin(angles), tf.cos(angles))
    return leaves
