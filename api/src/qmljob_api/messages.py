"""Pydantic's errors in words that a person can act on: what is wrong with a field, and what would be right."""

import difflib
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from qmljob_api import types
from qmljob_api.tree import Issue, Location, kind_of, shown

UNKNOWN_FIELD = "extra_forbidden"

_MOVED = {
    "restartPolicy": "there is no restart policy of a replica, the gang restarts as one; use spec.failurePolicy",
    "tfReplicaSpecs": "write 'replicaSpecs', with the roles in lower case",
}
"""Fields that people bring along from TFJob."""

_EXAMPLES = {
    "name": "name the job, for example 'qcnn'",
    "containers": "list at least one container",
    "template": "add a pod template with spec.containers",
    "replicaSpecs": "add the roles, for example a 'worker' with 'replicas' and a 'template'",
    "apiVersion": "write 'apiVersion: qml.dev/v1alpha1'",
    "kind": "write 'kind: QMLJob'",
    "values": "list the exit codes, for example [1]",
    "action": "write FailJob, RestartGang or Ignore",
    "port": "add the port's number",
    "onExitCodes": "add the exit codes that the rule is about",
}

_PATTERNS = {
    types.DNS_1035: "use lower-case letters, digits and '-', from a letter to a letter or digit",
    types.DNS_1123: "use lower-case letters, digits and '-', from a letter or digit to a letter or digit",
    types.PORT_NAME: "use lower-case letters, digits and single '-' between them",
}


def issue_of(error: ErrorDetails) -> Issue:
    """Returns the issue behind one of the errors that pydantic has with a QMLJob."""
    location: Location = tuple(error["loc"])
    context: Mapping[str, Any] = error.get("ctx", {})
    kind = error["type"]
    if kind == "missing":
        name = str(location[-1])
        return Issue(location, "is missing", _EXAMPLES.get(name, f"add {name!r}"))
    if kind == UNKNOWN_FIELD:
        return Issue(location, "is an unknown field", suggestion(str(location[-1]), fields_at(location[:-1])))
    message, hint = _SENTENCES.get(kind, _fallback)(error["input"], context)
    return Issue(location, message, hint)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Returns a hint for a word that is not one of the known ones: the nearest of them, else all of them."""
    if word in _MOVED:
        return _MOVED[word]
    choices = {choice.casefold(): choice for choice in known}
    near = difflib.get_close_matches(word.replace("_", "").casefold(), choices, n=1)
    if near:
        return f"did you mean {choices[near[0]]!r}?"
    return f"remove it; known here: {', '.join(choices.values())}" if choices else "remove it"


def fields_at(location: Location) -> tuple[str, ...]:
    """Returns the fields, as a manifest spells them, of the model that a location of a QMLJob leads to."""
    model: type[BaseModel] | None = types.QMLJob
    for part in location:
        if model is None:
            return ()
        if isinstance(part, str):
            model = next(
                (_model_in(info.annotation) for info in model.model_fields.values() if info.alias == part), None
            )
    return tuple(info.alias or name for name, info in model.model_fields.items()) if model is not None else ()


def dns_label(text: str) -> str:
    """Returns a DNS-1035 label near to the text, for a hint; empty where nothing is left of it."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).lstrip("-0123456789")[:63].rstrip("-")


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in typing.get_args(annotation) if (found := _model_in(part)) is not None), None)


def _not_a(wanted: str, hint: str) -> Callable[[Any, Mapping[str, Any]], tuple[str, str]]:
    def sentence(value: Any, _context: Mapping[str, Any]) -> tuple[str, str]:
        what = kind_of(value)
        text = f"is {what}, not {wanted}" if shown(value) == what else f"{shown(value)} is {what}, not {wanted}"
        return text, hint

    return sentence


def _integer(value: Any, _context: Mapping[str, Any]) -> tuple[str, str]:
    if isinstance(value, str) and value.strip().isdecimal():
        return f"{shown(value)} is text, not a whole number", "remove the quotes"
    text = kind_of(value) if isinstance(value, dict | list) else shown(value)
    return f"{text} is not a whole number", "write digits only, for example 2"


def _boolean(value: Any, _context: Mapping[str, Any]) -> tuple[str, str]:
    return f"{shown(value)} is not true or false", "write true or false, without quotes"


def _text(value: Any, _context: Mapping[str, Any]) -> tuple[str, str]:
    if isinstance(value, bool | int | float):
        return f"{shown(value)} is {kind_of(value)}, not text", "put it in quotes"
    return f"is {kind_of(value)}, not text", "write text"


def _choice(value: Any, context: Mapping[str, Any]) -> tuple[str, str]:
    choices = re.findall(r"'([^']*)'", str(context.get("expected", "")))
    if len(choices) == 1:
        return f"{shown(value)} is not {choices[0]}", f"write {choices[0]}"
    near = difflib.get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    message = f"{shown(value)} is not one of {', '.join(choices)}"
    return message, f"did you mean {near[0]!r}?" if near else "write one of them"


def _pattern(value: Any, context: Mapping[str, Any]) -> tuple[str, str]:
    pattern = str(context.get("pattern"))
    near = dns_label(value)[: 15 if pattern == types.PORT_NAME else 63].strip("-")
    example = f", for example {near!r}" if near else ""
    return f"{shown(value)} is not a valid name", f"{_PATTERNS.get(pattern, 'choose another name')}{example}"


def _too_long_text(value: Any, context: Mapping[str, Any]) -> tuple[str, str]:
    limit = context["max_length"]
    return f"has {len(value)} characters, {limit} at most", f"cut {len(value) - limit} of them"


def _fallback(value: Any, _context: Mapping[str, Any]) -> tuple[str, str]:
    return f"{shown(value)} is not allowed here", "see the field's description in the API reference"


_SENTENCES: dict[str, Callable[[Any, Mapping[str, Any]], tuple[str, str]]] = {
    "int_type": _integer,
    "int_from_float": _integer,
    "bool_type": _boolean,
    "string_type": _text,
    "dict_type": _not_a("a mapping", "write 'key: value' lines below it"),
    "model_type": _not_a("a mapping", "write 'key: value' lines below it"),
    "model_attributes_type": _not_a("a mapping", "write 'key: value' lines below it"),
    "tuple_type": _not_a("a list", "begin each item with '- '"),
    "list_type": _not_a("a list", "begin each item with '- '"),
    "enum": _choice,
    "literal_error": _choice,
    "string_pattern_mismatch": _pattern,
    "string_too_long": _too_long_text,
    "string_too_short": lambda _value, _context: ("is empty", "write a name"),
    "too_short": lambda _value, _context: ("is an empty list", "list at least one item, or remove it"),
    "too_long": lambda _value, context: (
        f"has {context['actual_length']} items, {context['max_length']} at most",
        f"remove {context['actual_length'] - context['max_length']} of them",
    ),
    "greater_than_equal": lambda value, context: (
        f"{shown(value)} is less than {context['ge']}",
        f"set it to {context['ge']} or more",
    ),
    "less_than_equal": lambda value, context: (
        f"{shown(value)} is more than {context['le']}",
        f"set it to {context['le']} or less",
    ),
}
