"""The first look at a manifest: is it a tree of plain JSON values, of a size that a job can have?

YAML gives more than JSON has (dates, bytes, sets, keys that are no text, anchors that make a tree of ten lines
unfold to billions of values, or contain itself), and Python's own objects more still. After this look the other checks
can rely on what they read.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Location = tuple[str | int, ...]
"""The keys and list indices that lead to a value."""

MAX_VALUES = 50_000
MAX_CHARACTERS = 1_000_000
"""Below the 1.5 MiB that etcd takes for one object."""
MAX_DEPTH = 64
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class Issue:
    """Something wrong at a place: what it is (`message`) and what would be right (`hint`), each half a sentence."""

    location: Location
    message: str
    hint: str


@dataclass(slots=True)
class PlainTree:
    """A copy of a document that holds JSON values only, and what had to be left out of it.

    `too_large` tells that the copy was given up; it is then of no use.
    """

    value: Any = None
    issues: list[Issue] = field(default_factory=list)
    too_large: bool = False


class _TooLargeError(Exception):
    pass


def format_location(location: Location) -> str:
    """Returns a location as a person writes it: `spec.ports[1].name`."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{shown(part)}]"
    return text


def shown(value: object) -> str:
    """Returns a value as a manifest spells it, on one line and not longer than 100 characters."""
    if isinstance(value, str | int | float | bool):
        text = (
            json.dumps(value, ensure_ascii=False) if not isinstance(value, int) or abs(value) < _INT64 else "a number"
        )
        text = text.encode("utf-8", "replace").decode()
        return text if len(text) <= 100 else f"{text[:98]}…{text[-1]}"
    return kind_of(value)


def kind_of(value: object) -> str:
    """Returns what a value is, in a person's words."""
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "true or false"),
        ((int, float), "a number"),
        (str, "text"),
        (Mapping, "a mapping"),
        ((list, tuple), "a list"),
        (type(None), "empty"),
    )
    return next((name for types, name in kinds if isinstance(value, types)), f"a {type(value).__name__}")


def plain_tree(document: Any, *, report_empty: bool) -> PlainTree:
    """Returns a copy of a document, and an issue for each value in it that JSON does not have.

    An empty value (`key:` with nothing behind it) is left out, with an issue where `report_empty` asks for it. Places
    that belong to Kubernetes keep theirs: metadata, and the inside of a pod template.
    """
    tree = PlainTree()
    copier = _Copier(tree.issues, report_empty)
    try:
        tree.value = copier.copy(document, (), 0)
    except _TooLargeError as error:
        tree.too_large = True
        tree.issues = [Issue((), str(error), "a job is one object of a few pages; look for a file or an alias in it")]
    return tree


class _Copier:
    def __init__(self, issues: list[Issue], report_empty: bool) -> None:
        self._issues = issues
        self._report_empty = report_empty
        self._values = 0
        self._characters = 0

    def copy(self, value: Any, location: Location, depth: int) -> Any:
        self._count(value, depth)
        if isinstance(value, dict):
            return {
                key: self.copy(item, (*location, key), depth + 1)
                for key, item in self._entries(value, location)
                if not self._is_hole(item, (*location, key))
            }
        if isinstance(value, list | tuple):
            # An empty item stays, so that those behind it keep their index; the types refuse it.
            return [self.copy(item, (*location, index), depth + 1) for index, item in enumerate(value)]
        return self._scalar(value, location)

    def _count(self, value: Any, depth: int) -> None:
        self._values += 1
        self._characters += len(value) if isinstance(value, str) else 0
        if self._values > MAX_VALUES:
            raise _TooLargeError(f"holds more than {MAX_VALUES} values")
        if self._characters > MAX_CHARACTERS:
            raise _TooLargeError(f"holds more than {MAX_CHARACTERS} characters")
        if depth > MAX_DEPTH:
            raise _TooLargeError(f"is nested deeper than {MAX_DEPTH} levels")

    def _entries(self, value: dict[Any, Any], location: Location) -> Iterator[tuple[str, Any]]:
        for key, item in value.items():
            if not isinstance(key, str):
                self._issues.append(Issue(location, f"has the key {shown(key)}, which is not text", "put it in quotes"))
            elif not _is_unicode(key):
                self._issues.append(Issue(location, "has a key that is not valid Unicode", "type the key again"))
            else:
                self._characters += len(key)
                yield key, item

    def _is_hole(self, value: Any, location: Location) -> bool:
        if value is not None or "template" in location[:-1] or location[0] == "metadata":
            return False
        if self._report_empty:
            self._issues.append(Issue(location, "is empty", "give it a value, or remove the line"))
        return True

    def _scalar(self, value: Any, location: Location) -> Any:
        if isinstance(value, str):
            if _is_unicode(value):
                return str(value)
            return self._refuse(location, "holds a character that is not valid Unicode", "type the text again")
        if isinstance(value, int) and abs(value) >= _INT64:
            return self._refuse(location, "is too large a number", "write one below 2^63, or put it in quotes")
        if isinstance(value, float) and not math.isfinite(value):
            return self._refuse(location, "is not a finite number", "write a number, or put the text in quotes")
        if value is None or isinstance(value, bool | int | float):
            return value
        return self._refuse(location, f"is {kind_of(value)}, which JSON does not have", "put it in quotes")

    def _refuse(self, location: Location, message: str, hint: str) -> str:
        self._issues.append(Issue(location, message, hint))
        return ""


def _is_unicode(text: str) -> bool:
    # Half of a surrogate pair is a Python string, but no text that can be stored or sent.
    return not any("\ud800" <= character <= "\udfff" for character in text)
