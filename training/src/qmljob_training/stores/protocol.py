"""The store: a flat set of named, immutable-once-read objects with generation preconditions.

The model is a bucket's, kept as small as training needs it:

- An object is replaced whole. A reader sees the old bytes or the new ones, never a mixture.
- Every write gives the object a new *generation*, a positive number that grows. Generation 0 means "no such object".
- `put_if` writes only over the generation that the writer has seen: a read-modify-write cycle loses no update.

Names are relative, with `/` between segments, and never leave the store's location.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from .errors import StoreMisconfigured

Generation: TypeAlias = int
"""Grows with every write of an object; 0 stands for an object that does not exist."""

RESERVED_PREFIX = ".qmljob-"
"""No segment of an object's name begins like this: stores keep locks, temporary files and probes under such names."""

_NAME_LIMIT = 900  # bytes; a bucket allows 1024 with the prefix
_SEGMENT_LIMIT = 200  # bytes; file systems allow 255


@dataclass(frozen=True)
class StoredObject:
    """An object's whole content (bytes) and the generation that holds it."""

    data: bytes
    generation: Generation


@dataclass(frozen=True)
class RetrySettings:
    """How long a bucket's failures are borne. Times are in seconds."""

    deadline: float = 120.0
    """From the first try of a call to the last."""
    initial_delay: float = 1.0
    """Before the second try; doubles from try to try, with the library's jitter."""
    maximum_delay: float = 30.0
    connect_timeout: float = 10.0
    read_timeout: float = 60.0


class Store(Protocol):
    """Named objects under one location. Safe to use from several processes and machines at once.

    Every method raises `StoreUnavailable` (worth another attempt) or `StoreMisconfigured` (a person must act), and
    `StoreMisconfigured` for a name that is not valid.
    """

    @property
    def location(self) -> str:
        """The location as it was given, without a trailing slash."""
        ...

    def put(self, name: str, data: bytes, *, content_type: str = "application/octet-stream") -> Generation:
        """Writes an object, whatever was there before; returns its new generation.

        The call may be repeated by the store after a lost answer, so it fits objects named by their content. For an
        object whose writers compete use `put_if`.
        """
        ...

    def put_if(
        self, name: str, data: bytes, *, generation: Generation, content_type: str = "application/octet-stream"
    ) -> Generation:
        """Writes an object if its generation is `generation` (0: if it does not exist); returns the new generation.

        Raises:
            PreconditionFailed: the object's generation is another one. The object may hold an earlier outcome of this
                very call that somebody else has since replaced.
        """
        ...

    def get(self, name: str) -> StoredObject:
        """Reads an object whole; bytes damaged on the way are detected, never returned.

        Raises:
            ObjectNotFound: there is no such object.
        """
        ...

    def list(self, prefix: str = "") -> tuple[str, ...]:
        """Returns the names that begin with `prefix`, sorted."""
        ...

    def delete(self, name: str) -> None:
        """Removes an object; one that does not exist is fine."""
        ...

    def check_writable(self) -> None:
        """Raises a StoreError that says what to do if an object could not be written here now."""
        ...


def check_name(name: str) -> str:
    """Returns the name of an object if it is valid in every store.

    Raises:
        StoreMisconfigured: it is empty, absolute, leaves the location (`..`), or could not exist in some store.
    """
    segments = name.split("/")
    if any(segment in {"", ".", ".."} for segment in segments):
        raise StoreMisconfigured(f"object name {name!r}: use a relative path without empty, '.' or '..' segments")
    if any(segment.startswith(RESERVED_PREFIX) for segment in segments):
        raise StoreMisconfigured(f"object name {name!r}: names that begin with {RESERVED_PREFIX!r} are reserved")
    if not name.isprintable() or "\\" in name:
        raise StoreMisconfigured(f"object name {name!r}: use printable characters and no backslash")
    if len(name.encode()) > _NAME_LIMIT or any(len(segment.encode()) > _SEGMENT_LIMIT for segment in segments):
        raise StoreMisconfigured(
            f"object name {name[:40]!r}…: use at most {_NAME_LIMIT} bytes, {_SEGMENT_LIMIT} between slashes"
        )
    return name
