"""The one parser of a QMLJob: from what YAML or an API server gives to types, or to ALL that is wrong with it.

In strict mode an unknown field is an error, as with the API server's `fieldValidation=Strict`. In tolerant mode it is
reported apart and ignored, so that an operator reads a job that was stored with a newer version's fields.
"""

import copy
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from qmljob_api import names
from qmljob_api.messages import UNKNOWN_FIELD, issue_of
from qmljob_api.rules import check_rules
from qmljob_api.tree import Issue, Location, format_location, kind_of, plain_tree, shown
from qmljob_api.types import QMLJob

_OBJECT_META = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
)
"""Fields of Kubernetes' ObjectMeta that a stored object has and QMLJob does not read."""


class Mode(StrEnum):
    """What an unknown field is."""

    STRICT = "strict"
    TOLERANT = "tolerant"


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with a field, and what would be right. `path` is empty where it is the whole manifest."""

    path: str
    message: str
    hint: str

    def __str__(self) -> str:
        """Returns one line: `spec.port: 0 is less than 1; set it to 1 or more`."""
        return f"{self.path or 'manifest'}: {self.message}; {self.hint}"


@dataclass(frozen=True, slots=True)
class ParseResult:
    """A job, or why there is none.

    Attributes:
        job: None exactly when there are errors.
        errors: all that is wrong, in the order of their paths.
        unknown: the unknown fields that tolerant mode left out; always empty in strict mode.
    """

    job: QMLJob | None
    errors: tuple[FieldError, ...] = ()
    unknown: tuple[FieldError, ...] = ()


def parse_job(document: object, mode: Mode = Mode.STRICT) -> ParseResult:
    """Returns the job that a document describes. The document is neither changed nor kept.

    `document` is what a YAML or JSON parser returned; anything is allowed, and nothing raises. `status` is ignored.
    """
    if not isinstance(document, dict):
        issue = Issue((), f"is {kind_of(document)}, not a mapping", f"begin with 'apiVersion: {names.API_VERSION}'")
        return _refused([issue])
    tree = plain_tree(
        {key: value for key, value in document.items() if key != "status"}, report_empty=mode is Mode.STRICT
    )
    if tree.too_large:
        return _refused(tree.issues)
    plain: dict[str, Any] = tree.value
    if plain.get("kind", names.KIND) != names.KIND:
        # All other fields are another kind's: nothing can be said about them.
        return _refused([_wrong_kind(plain["kind"])])
    _reduce_metadata(plain)
    issues = [*tree.issues, *check_rules(plain)]
    job, wrong, unknown = _validate(plain)
    issues += wrong
    if mode is Mode.STRICT:
        issues += unknown
        unknown = []
    elif unknown and not issues:
        job, wrong, _ = _validate(_without(plain, [issue.location for issue in unknown]))
        issues += wrong
    if issues or job is None:
        return ParseResult(None, _field_errors(issues), _field_errors(unknown))
    return ParseResult(job, (), _field_errors(unknown))


def _refused(issues: list[Issue]) -> ParseResult:
    return ParseResult(None, _field_errors(issues))


def _wrong_kind(kind: Any) -> Issue:
    return Issue(("kind",), f"{shown(kind)} is not {names.KIND}", f"write 'kind: {names.KIND}'")


def _reduce_metadata(plain: dict[str, Any]) -> None:
    """Leaves what QMLJob reads of the metadata. Kubernetes takes an empty field of it for an absent one."""
    metadata = plain.get("metadata")
    if isinstance(metadata, dict):
        plain["metadata"] = {
            key: value
            for key, value in metadata.items()
            if key not in _OBJECT_META and value is not None and (key, value) != ("namespace", "")
        }


def _validate(plain: dict[str, Any]) -> tuple[QMLJob | None, list[Issue], list[Issue]]:
    """Returns the job, what is wrong with single fields, and the unknown fields."""
    required = [
        Issue((key,), "is missing", f"write '{key}: {value}'")
        for key, value in (("apiVersion", names.API_VERSION), ("kind", names.KIND))
        if key not in plain
    ]
    try:
        # From JSON, since strict types then mean JSON's: a list is a tuple, and text is an enum's value. By alias only:
        # a manifest must not spell a field as Python does.
        job = QMLJob.model_validate_json(json.dumps(plain), by_alias=True, by_name=False)
    except ValidationError as error:
        # Pydantic also calls a list too short whose items are all wrong: the items' own errors say it.
        details = [
            detail
            for detail in error.errors(include_url=False)
            if not (detail["type"] == "too_short" and detail["input"])
        ]
    else:
        return (None if required else job), required, []
    wrong = [issue_of(detail) for detail in details if detail["type"] != UNKNOWN_FIELD]
    unknown = [issue_of(detail) for detail in details if detail["type"] == UNKNOWN_FIELD]
    return None, required + wrong, unknown


def _without(plain: dict[str, Any], locations: list[Location]) -> dict[str, Any]:
    result = copy.deepcopy(plain)
    for *parents, key in locations:
        target: Any = result
        for part in parents:
            target = target[part]
        del target[key]
    return result


def _field_errors(issues: list[Issue]) -> tuple[FieldError, ...]:
    """Returns one error a place, in the order of places. Of several at one place the first found says most."""
    errors: dict[str, FieldError] = {}
    for issue in issues:
        path = format_location(issue.location)
        errors.setdefault(path, FieldError(path, issue.message, issue.hint))
    return tuple(sorted(errors.values(), key=lambda error: _order(error.path)))


def _order(path: str) -> tuple[tuple[int, str], ...]:
    parts = re.findall(r"\d+|\D+", path)
    return tuple((int(part), "") if part.isascii() and part.isdigit() else (0, part) for part in parts)
