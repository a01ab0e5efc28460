"""Reading documents that may be damaged: what is wrong is left out, and the rest is kept."""

from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from qmljob_api.tree import Location

_M = TypeVar("_M", bound=BaseModel)
_KEY = ("[key]",)
"""How pydantic's locations end that mean the key of an entry, not its value."""


def read(model: type[_M], document: object) -> _M | None:
    """Returns a model of a document without its damaged parts, or None where nothing is left. Nothing raises.

    A part that lacks what it must have goes as a whole.
    """
    # A pass may uncover a part that now lacks something, so there are as many passes as parts are nested.
    while isinstance(document, dict):
        try:
            return model.model_validate(document, by_alias=True, by_name=False)
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False, include_input=False)
        document = _without(document, [_damaged(detail["type"], detail["loc"]) for detail in details])
    return None


def dense(value: Any) -> Any:
    """Returns a copy of a JSON value without the entries that are empty. Zeros and False are not."""
    if isinstance(value, dict):
        return {key: dense(item) for key, item in value.items() if item is not None and item not in ("", [], {})}
    return [dense(item) for item in value] if isinstance(value, list) else value


def _damaged(kind: str, location: Location) -> Location:
    return location[:-1] if kind == "missing" or location[-1:] == _KEY else location


def _without(value: object, locations: Iterable[Location]) -> object:
    """Returns a copy of a document without what is at the locations; None where that is all of it."""
    inside: dict[str | int, list[Location]] = {}
    for location in locations:
        if not location:
            return None
        inside.setdefault(location[0], []).append(location[1:])
    if isinstance(value, dict) and inside.keys() <= value.keys():
        entries = {key: _without(item, inside[key]) if key in inside else item for key, item in value.items()}
        return {key: item for key, item in entries.items() if key not in inside or item is not None}
    if isinstance(value, list | tuple):
        items = [
            (index, _without(item, inside[index]) if index in inside else item) for index, item in enumerate(value)
        ]
        return [item for index, item in items if index not in inside or item is not None]
    return None
