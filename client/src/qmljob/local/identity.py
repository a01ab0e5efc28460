"""Who a local job is: a store remembers the job's uid and attempt, so that an interrupted run goes on where it was.

The attempt is written before the attempt starts, and only grows: what an older attempt left running (a supervisor that
was killed on another terminal) can't replace what a newer one wrote.
"""

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_FOLDER = ".qmljob"


class StoreInUseError(Exception):
    """Another run works with this job in this store."""


class IdentityError(Exception):
    """The store can't be written, or its record of the job is damaged."""


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    uid: str = Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9-]+$")
    attempt: int = Field(ge=0, description="the attempt that started last")
    finished: bool = False


@dataclass(frozen=True)
class Identity:
    """A job in a store. `next_attempt` is above every attempt that the store has seen under `uid`."""

    path: Path
    uid: str
    next_attempt: int

    @property
    def resumed(self) -> bool:
        """Whether an earlier run of the same job was interrupted."""
        return self.next_attempt > 0

    def starting(self, attempt: int) -> None:
        """Notes that an attempt starts; call it before its first process starts. Raises OSError (a full disk)."""
        _write(self.path, _Stored(uid=self.uid, attempt=attempt))

    def finished(self, attempt: int) -> None:
        """Notes that the job succeeded: the next run under its name is a new job. Raises OSError."""
        _write(self.path, _Stored(uid=self.uid, attempt=attempt, finished=True))


@contextlib.contextmanager
def open_identity(store: Path, namespace: str, name: str) -> Iterator[Identity]:
    """Yields the job's identity, held against other runs until the end of the context.

    Raises:
        StoreInUseError: another run holds it.
        IdentityError: the folder can't be written, or the record in it is damaged.
    """
    path = store / _FOLDER / namespace / f"{name}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(".lock").open("a+")
    except OSError as error:
        raise IdentityError(f"{store}: can't be written: {error.strerror}; choose another folder by --store") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreInUseError(
                f"{store}: another qmljob run works on {namespace}/{name} here; wait for it, or choose another --store"
            ) from None
        stored = _read(path)
        if stored is None or stored.finished:
            yield Identity(path, str(uuid.uuid4()), 0)
        else:
            yield Identity(path, stored.uid, stored.attempt + 1)


def _read(path: Path) -> _Stored | None:
    try:
        return _Stored.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        raise IdentityError(f"{path}: damaged; delete it to start the job anew, without its checkpoints") from None


def _write(path: Path, stored: _Stored) -> None:
    temporary = path.with_suffix(".new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(stored.model_dump_json() + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
