"""Manifests and pointers: JSON documents with a format number, read with a reason where they can't be."""

import json
from typing import TypeVar

from pydantic import BaseModel, ValidationError

_D = TypeVar("_D", bound=BaseModel)


class DocumentError(Exception):
    """Says what is wrong with a document, as the end of a sentence about it."""


class NewerFormatError(DocumentError):
    """The document is whole, but this version can't read it."""


def read_document(data: bytes, kind: type[_D], newest: int) -> _D:
    """Reads a document whose format this version knows.

    The format comes first: a newer document may lack what this version expects, and is not damaged for that.

    Raises:
        NewerFormatError: it is of a newer format.
        DocumentError: it is damaged.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DocumentError("is damaged (not JSON)") from error
    number = found.get("format") if isinstance(found, dict) else None
    if isinstance(number, int) and number > newest:
        raise NewerFormatError(f"has format {number}, which is newer than this version reads ({newest}); upgrade")
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"]) or "its top"
        raise DocumentError(f"is damaged at {where} ({problem['msg']})") from error
