"""Manifests by number: valid ones, nearly valid ones and hostile ones. A number always gives the same manifest.

    hostile_job(4711)     # what the API server and the parser are to judge alike

A valid one has values in bounds for fields that the CRD's schema names. A nearly valid one has one or two mistakes at
places that were drawn from all that it holds. A hostile one is huge, deep, or not what it looks like.
"""

import copy
import json
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from qmljob_api.crd import build_schema
from qmljob_api.testing import TEMPLATE, manifest

Document = dict[str, Any]
Path = tuple[str | int, ...]

SPEC: Document = build_schema()["properties"]["spec"]
LOOK_ALIKES = {"a": "\u0430", "e": "\u0435", "o": "\u043e", "p": "\u0440", "c": "\u0441", "i": "\u0456", "s": "\u0455"}
"""Letters, and Cyrillic ones that look the same."""
INVISIBLE = ("\u200b", "\u202e", "\ufeff", "\u00ad", "\u0301", "\x00", "\x7f", "\u2028", "\n")
ODD_NUMBERS = (
    -1,
    0,
    1,
    2**15,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**64,
    10**30,
    0.5,
    -0.0,
    1e308,
    1e-320,
)
ODD_TEXTS = (
    "",
    " ",
    "0",
    "null",
    "true",
    "~",
    "{{7*7}}",
    "../../etc/passwd",
    "$(QMLJOB_NAME)",
    "-",
    "A",
    "x" * 64,
    "x" * 300,
)
ODD_VALUES: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": ""}, *ODD_NUMBERS, *ODD_TEXTS)
DEPTHS = (32, 63, 64, 65, 66, 200, 400)
LENGTHS = (17, 129, 600, 20_000)


def hostile_job(number: int) -> Document:
    """Returns the manifest of a number."""
    chance = random.Random(number)
    document = valid_job(chance)
    share = chance.random()
    if share < 0.15:
        return document
    if share < 0.75:
        for _ in range(chance.choice((1, 1, 1, 2))):
            chance.choice(MISTAKES)(document, chance)
        return document
    chance.choice(ATTACKS)(document, chance)
    return document


def valid_job(chance: random.Random) -> Document:
    """Returns a manifest that is right in all or nearly all cases: rules across fields may still refuse one."""
    spec = {}
    for name, node in SPEC["properties"].items():
        if name != "replicaSpecs" and chance.random() < 0.4:
            spec[name] = _value(node, chance)
    roles = ["worker", *chance.sample(["chief", "ps", "evaluator"], chance.randrange(3))]
    limits = {"worker": 40, "chief": 1, "ps": 10, "evaluator": 1}
    spec["replicaSpecs"] = {
        role: {"replicas": chance.randint(1, limits[role]), "template": copy.deepcopy(TEMPLATE)} for role in roles
    }
    name = "".join(chance.choice("abcxyz019-") for _ in range(chance.randint(0, 30)))
    return manifest({"name": f"q{name}x"}, **spec)


def _value(node: Document, chance: random.Random) -> Any:
    value: Any = f"a{chance.randrange(1000)}"
    if "enum" in node:
        value = chance.choice(node["enum"])
    elif node["type"] == "object":
        value = _mapping(node, chance)
    elif node["type"] == "array":
        least = node.get("minItems", 0)
        value = [_value(node["items"], chance) for _ in range(chance.randint(least, max(least, 2)))]
    elif node["type"] == "integer":
        value = chance.randint(node.get("minimum", 1), min(node.get("maximum", 255), 70_000))
    elif node["type"] == "boolean":
        value = chance.random() < 0.5
    return value


def _mapping(node: Document, chance: random.Random) -> Document:
    required = node.get("required", ())
    present = [name for name in node.get("properties", {}) if name in required or chance.random() < 0.5]
    return {
        name: copy.deepcopy(TEMPLATE) if name == "template" else _value(node["properties"][name], chance)
        for name in present
    }


# Mistakes


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yields the place of every value within another one, deepest last."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def _pick(document: Document, chance: random.Random) -> tuple[Any, str | int]:
    """Returns a place, as what holds it and its key there. Three of four are outside of templates."""
    found = list(places(document))
    outside = [path for path in found if "template" not in path]
    *parents, key = chance.choice(outside if chance.random() < 0.75 else found)
    holder: Any = document
    for part in parents:
        holder = holder[part]
    return holder, key


def wrong_value(document: Document, chance: random.Random) -> None:
    """A value is of another type, or beyond all bounds."""
    holder, key = _pick(document, chance)
    holder[key] = copy.deepcopy(chance.choice(ODD_VALUES))


def nearly_right(document: Document, chance: random.Random) -> None:
    """A value is nearly what it should be: one more or less, as text, in a list, in another case."""
    holder, key = _pick(document, chance)
    value = holder[key]
    if isinstance(value, bool) or value is None:
        holder[key] = str(value).lower()
    elif isinstance(value, int):
        holder[key] = chance.choice(
            (value + 1, value - 1, -value, str(value), float(value), value + 0.5, value * 10**6)
        )
    elif isinstance(value, str):
        holder[key] = chance.choice(
            (value.upper(), f" {value}", f"{value}\n", f"{value}-", value * 30, [value], _disguised(value, chance))
        )
    else:
        holder[key] = chance.choice(([value], {"value": value}, str(value)))


def missing(document: Document, chance: random.Random) -> None:
    """A value is not there."""
    holder, key = _pick(document, chance)
    del holder[key]


def twice(document: Document, chance: random.Random) -> None:
    """An item of a list is there twice."""
    lists = [path for path in places(document) if isinstance(path[-1], int)]
    if not lists:
        return wrong_value(document, chance)
    *parents, index = chance.choice(lists)
    holder: Any = document
    for part in parents:
        holder = holder[part]
    holder.insert(index, copy.deepcopy(holder[index]))
    return None


def unknown_field(document: Document, chance: random.Random) -> None:
    """A field has another name: misspelt, in another case, or with letters that only look right."""
    holder, key = _pick(document, chance)
    if not isinstance(holder, dict):
        return wrong_value(document, chance)
    name = str(key)
    other = chance.choice((name.lower(), name.upper(), f"{name}s", name[:-1], f"{name} ", _disguised(name, chance), ""))
    holder[other] = holder.pop(key)
    return None


def _disguised(text: str, chance: random.Random) -> str:
    """Returns a text that looks nearly the same."""
    known = [letter for letter in text if letter in LOOK_ALIKES]
    if known and chance.random() < 0.5:
        letter = chance.choice(known)
        return text.replace(letter, LOOK_ALIKES[letter], 1)
    at = chance.randint(0, len(text))
    return text[:at] + chance.choice(INVISIBLE) + text[at:]


MISTAKES: tuple[Callable[[Document, random.Random], None], ...] = (
    wrong_value,
    wrong_value,
    nearly_right,
    nearly_right,
    missing,
    twice,
    unknown_field,
    unknown_field,
)

# Attacks


def deep(document: Document, chance: random.Random) -> None:
    """A value is a tree that goes down and down."""
    holder, key = _pick(document, chance)
    tree: Any = chance.choice(ODD_VALUES)
    for _ in range(chance.choice(DEPTHS)):
        tree = [tree] if chance.random() < 0.5 else {"a": tree}
    holder[key] = tree


def long_list(document: Document, chance: random.Random) -> None:
    """A list has more items than anybody needs, or a value is one."""
    holder, key = _pick(document, chance)
    value = holder[key]
    item = value[0] if isinstance(value, list) and value else value
    holder[key] = [copy.deepcopy(item)] * min(chance.choice(LENGTHS), 600 if isinstance(item, dict | list) else 20_000)


def long_text(document: Document, chance: random.Random) -> None:
    """A text is as long as a book."""
    holder, key = _pick(document, chance)
    holder[key] = chance.choice(("a", "a-", "\u00e4", "\U0001f300", "a" * 64 + ".")) * chance.choice(LENGTHS)


def many_fields(document: Document, chance: random.Random) -> None:
    """A mapping has fields without number."""
    holder, key = _pick(document, chance)
    prefix = chance.choice(("x", "worker", "\u0430", "__", "x/"))
    holder[key] = {f"{prefix}{number}": number for number in range(min(chance.choice(LENGTHS), 2000))}


def odd_root(document: Document, chance: random.Random) -> None:
    """A part of the root is not what it should be."""
    holder = chance.choice((document, document["metadata"], document["spec"], document["spec"]["replicaSpecs"]))
    holder[chance.choice(list(holder))] = copy.deepcopy(chance.choice(ODD_VALUES))


def other_name(document: Document, chance: random.Random) -> None:
    """The job's name is none, or one of somebody else."""
    names = (
        *ODD_TEXTS,
        "qcnn.worker",
        "QCNN",
        "q" * 50,
        "q" * 63,
        "q_1",
        "kube-system/qcnn",
        _disguised("qcnn", chance),
    )
    document["metadata"]["name"] = chance.choice(names)


def every_role_is_huge(document: Document, chance: random.Random) -> None:
    """More replicas than there are, in every way to write it."""
    for role in document["spec"]["replicaSpecs"].values():
        role["replicas"] = chance.choice((511, 512, 513, 10**6, 2**31 - 1, 2**31, 10**30, "512", 1e3, -512))


def foreign_keys(document: Document, chance: random.Random) -> None:
    """Keys that mean something to some program, at some place."""
    keys = ("__proto__", "constructor", "$ref", "<<", "!!python/object", "\u202ekind", "x-kubernetes-validations", "")
    holder, key = _pick(document, chance)
    target = holder[key] if isinstance(holder[key], dict) else document["spec"]
    target[chance.choice(keys)] = copy.deepcopy(chance.choice(ODD_VALUES))


ATTACKS: tuple[Callable[[Document, random.Random], None], ...] = (
    deep,
    long_list,
    long_text,
    many_fields,
    odd_root,
    other_name,
    every_role_is_huge,
    foreign_keys,
)


if __name__ == "__main__":
    print(json.dumps(hostile_job(int(sys.argv[1])), indent=1))
