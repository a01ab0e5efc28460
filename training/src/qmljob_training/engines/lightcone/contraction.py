"""In which order a network of tensors is contracted: greedily, by a score, the best of several (Gray and Kourtis 2021,
arXiv:2002.01935, section 4.2), with what constants, weights and examples cost told apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import inf

import numpy as np

from qmljob_training.engines.lightcone.fusion import Kind
from qmljob_training.engines.lightcone.network import Node, constant_node

MAX_CONSTANT = 2**16
"""Entries of a constant that is folded when the function is built."""
MAX_FEATURES = 3**2
"""Entries of a product of features, for each example: pairs were twice as fast as products of four (measured)."""
STEP_COST = 5_000
"""What an op costs under XLA however small it is, in multiplications."""


@dataclass(frozen=True, eq=False)
class Contraction(Node):
    """A node made from two others; `pattern` is the einsum, without the axis of examples."""

    left: Node | None = None
    right: Node | None = None
    pattern: tuple[str, str, str] = ("", "", "")


@dataclass(frozen=True)
class Plan:
    """How a network becomes a number.

    Attributes:
        root: a node without legs.
        weight_operations: multiplications for each call.
        example_operations: multiplications for each example.
        steps: contractions that are left for the call.
        largest: entries of the largest tensor that depends on weights, and of the largest that depends on features.
    """

    root: Node
    weight_operations: int
    example_operations: int
    steps: int
    largest: tuple[int, int]

    def cost(self, examples: int) -> int:
        """Returns the estimated cost of a call, in multiplications."""
        return self.weight_operations + examples * self.example_operations + STEP_COST * self.steps


def plan(nodes: Sequence[Node], examples: int, limit: float = inf) -> Plan | None:
    """Returns the cheapest contraction found of a network whose constants are folded; None where all cost too much.

    Args:
        nodes: all that is left after `fold_constants`.
        examples: that share the weights; what depends on features is computed for each.
        limit: of `Plan.cost`; planning ends where it is passed.
    """
    merged = _merge_features(list(nodes))
    best: Plan | None = None
    for start, growth, shrink in product((list(nodes), merged), (1, 4, None), (0.0, 1.0)):
        found = _greedy(start, examples, growth, shrink, limit)
        if found is not None:
            best, limit = found, found.cost(examples)
    return best


def fold_constants(nodes: Sequence[Node]) -> list[Node]:
    """Contracts constants that share a leg, as long as no large tensor comes of it; sorts by legs."""
    left = list(nodes)
    while True:
        pairs = [pair for pair in _neighbours(left) if pair[0].kind is pair[1].kind is Kind.CONSTANT]
        sizes = {(id(one), id(other)): _entries(_result(one, other)[1]) for one, other in pairs}
        pairs = [pair for pair in pairs if sizes[id(pair[0]), id(pair[1])] <= MAX_CONSTANT]
        if not pairs:
            return sorted(left, key=lambda node: node.legs)
        one, other = min(pairs, key=lambda pair: sizes[id(pair[0]), id(pair[1])] - _size(pair[0]) - _size(pair[1]))
        left = [node for node in left if node is not one and node is not other] + [_contract(one, other)]


def _merge_features(nodes: list[Node]) -> list[Node]:
    """Multiplies the features at each constant: then what depends on weights meets them in one matrix product."""
    for constant in [node for node in nodes if node.kind is Kind.CONSTANT]:
        at = [node for node in nodes if node.kind is Kind.FEATURES and set(node.legs) & set(constant.legs)]
        while len(at) > 1 and _size(at[0]) * _size(at[1]) <= MAX_FEATURES:
            made = _contract(at[0], at[1])
            nodes = [node for node in nodes if node is not at[0] and node is not at[1]] + [made]
            at = [made, *at[2:]]
    return nodes


def _greedy(nodes: list[Node], examples: int, growth: int | None, shrink: float, limit: float) -> Plan | None:
    """Contracts what depends on no features first where the result is at most `growth` times the larger factor."""
    weight, example, steps = 0, 0, 0
    largest = {Kind.CONSTANT: 1, Kind.WEIGHTS: 1, Kind.FEATURES: 1}
    while len(nodes) > 1:
        pairs = _neighbours(nodes) or list(combinations(nodes, 2))
        first = [pair for pair in pairs if growth is not None and _shared(pair, growth)]
        left, right = min(first or pairs, key=lambda pair: _score(pair[0], pair[1], examples, shrink))
        made = _contract(left, right)
        operations = _entries(tuple(_extents(left, right).values()))
        nodes = [node for node in nodes if node is not left and node is not right] + [made]
        steps += made.kind is not Kind.CONSTANT
        weight += operations if made.kind is Kind.WEIGHTS else 0
        example += operations if made.kind is Kind.FEATURES else 0
        largest[made.kind] = max(largest[made.kind], _size(made))
        if weight + examples * example + STEP_COST * (steps + len(nodes) // 2) >= limit:
            return None
    return Plan(nodes[0], weight, example, steps, (largest[Kind.WEIGHTS], largest[Kind.FEATURES]))


def _shared(pair: tuple[Node, Node], growth: int) -> bool:
    kind, shape, _, _ = _result(*pair)
    return kind is not Kind.FEATURES and _entries(shape) <= growth * max(_size(pair[0]), _size(pair[1]))


def _score(left: Node, right: Node, examples: int, shrink: float) -> float:
    kind, shape, _, _ = _result(left, right)
    factor = {Kind.CONSTANT: 1, Kind.WEIGHTS: 1, Kind.FEATURES: examples}
    return factor[kind] * _entries(shape) - shrink * sum(factor[node.kind] * _size(node) for node in (left, right))


def _neighbours(nodes: list[Node]) -> list[tuple[Node, Node]]:
    owners: dict[int, list[Node]] = {}
    for node in nodes:
        for leg in node.legs:
            owners.setdefault(leg, []).append(node)
    pairs = {(id(own[0]), id(own[1])): (own[0], own[1]) for own in owners.values() if len(own) == 2}
    return list(pairs.values())


def _contract(left: Node, right: Node) -> Node:
    kind, shape, legs, pattern = _result(left, right)
    if left.value is not None and right.value is not None:
        value = np.einsum(f"{pattern[0]},{pattern[1]}->{pattern[2]}", left.value, right.value)
        return constant_node(np.asarray(value), legs)
    key = ("product", left.key, right.key, pattern)
    return Contraction(kind, legs, shape, key, None, left, right, pattern)


def _result(left: Node, right: Node) -> tuple[Kind, tuple[int, ...], tuple[int, ...], tuple[str, str, str]]:
    """Returns kind, shape, legs and einsum pattern of the contraction over all common legs."""
    common = set(left.legs) & set(right.legs)
    legs = tuple(leg for leg in (*left.legs, *right.legs) if leg not in common)
    extents = _extents(left, right)
    letters = {leg: chr(ord("a") + index) for index, leg in enumerate(extents)}
    pattern = tuple("".join(letters[leg] for leg in group) for group in (left.legs, right.legs, legs))
    kind = max(left.kind, right.kind, key=lambda each: each.value)
    return kind, tuple(extents[leg] for leg in legs), legs, (pattern[0], pattern[1], pattern[2])


def _extents(left: Node, right: Node) -> dict[int, int]:
    return dict(zip(left.legs, left.shape, strict=True)) | dict(zip(right.legs, right.shape, strict=True))


def _entries(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=object)) if shape else 1


def _size(node: Node) -> int:
    return _entries(node.shape)
