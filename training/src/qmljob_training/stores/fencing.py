"""Fencing by attempt: what keeps a zombie harmless.

A pod that the cluster has given up may run on, behind a network partition, and write once more. Nothing can stop it,
so the store's documents carry the attempt that wrote them, and a write is refused where a later attempt has written.
The comparison and the write are one step, by the generation precondition: between them nobody gets in unseen.
"""

from collections.abc import Callable
from typing import Protocol

from .errors import Fenced, ObjectNotFound, PreconditionFailed, StoreError, StoreUnavailable
from .protocol import Store

_TRIES = 64
"""Each lost try means that another writer's succeeded: many in a row are no race but a misuse."""


class Attempted(Protocol):
    """A document that knows which attempt of the job wrote it. Any pydantic model with the field `attempt` fits."""

    @property
    def attempt(self) -> int:
        """The attempt, counting from 0."""
        ...


class AttemptedDocument(Attempted, Protocol):
    """An `Attempted` that can be written as JSON."""

    def model_dump_json(self) -> str:
        """Returns the document as JSON."""
        ...


def put_fenced(
    store: Store, name: str, document: AttemptedDocument, parse: Callable[[bytes], Attempted | None]
) -> None:
    """Replaces a document unless a later attempt has written it. An equal attempt may replace its own.

    Args:
        store: where the document is.
        name: the document's name.
        document: what to write.
        parse: reads what is there now; returns None or raises ValueError where it is no such document.

    Raises:
        Fenced: the document there is of a higher attempt. Nothing was written.
        StoreError: what is there is no such document (it is left as it is), or the store failed.
    """
    data = document.model_dump_json().encode()
    for _ in range(_TRIES):
        found, generation = _read(store, name, parse)
        if found is not None and found.attempt > document.attempt:
            raise Fenced(
                f"{store.location}/{name} belongs to attempt {found.attempt}: attempt {document.attempt} was replaced "
                "and must not write any more; end this process"
            )
        try:
            store.put_if(name, data, generation=generation, content_type="application/json")
        except PreconditionFailed:
            continue
        return
    raise StoreUnavailable(
        f"{store.location}/{name} was changed by others {_TRIES} times in a row: give each job a location of its own"
    )


def _read(store: Store, name: str, parse: Callable[[bytes], Attempted | None]) -> tuple[Attempted | None, int]:
    try:
        stored = store.get(name)
    except ObjectNotFound:
        return None, 0
    try:
        found = parse(stored.data)
    except ValueError as error:  # pydantic's ValidationError is one
        raise _unreadable(store, name) from error
    if found is None:
        raise _unreadable(store, name)
    return found, stored.generation


def _unreadable(store: Store, name: str) -> StoreError:
    return StoreError(
        f"{store.location}/{name} is not a document of this program, so it is not overwritten: "
        "delete it or choose another location"
    )
