"""Writers of one store, one operation at a time in an order that the test chooses.

Each writer runs in a thread of its own and waits before every store operation until it is given the turn, so the same
schedule gives the same history. A writer that is killed stops before an operation or right after it, like a process
that loses its power: it raises no store error and does nothing more.
"""

import threading
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias, TypeVar

from qmljob_training.stores import Generation, Store, StoredObject

Body: TypeAlias = Callable[[Store], None]
_T = TypeVar("_T")
_WAIT_SECONDS = 60.0


class Killed(BaseException):
    """Ends a writer's thread where its process would have died."""


class TurnTaking:
    """A store whose `get` and `put_if` wait for the writer's turn. `writes` keeps what `put_if` wrote, in order."""

    def __init__(self, store: Store, writes: list[bytes]) -> None:
        """Wraps a handle of one writer."""
        self.location = store.location
        self._store = store
        self._writes = writes
        self._turn = threading.Semaphore(0)
        self.idle = threading.Semaphore(0)
        self.ended = False
        self._kill = ""
        self.killed = False

    def run(self, body: Body) -> None:
        """Runs a writer to its end."""
        try:
            body(self)
        except Killed:
            pass
        finally:
            self.ended = True
            self.idle.release()

    def give_turn(self, *, kill: str = "") -> None:
        """Lets the writer do its next operation; `kill` ends it `before` that, or `after`."""
        self._kill = kill
        self._turn.release()
        assert self.idle.acquire(timeout=_WAIT_SECONDS)

    def get(self, name: str) -> StoredObject:
        """Reads in turn."""
        return self._in_turn(lambda: self._store.get(name))

    def put_if(
        self, name: str, data: bytes, *, generation: Generation, content_type: str = "application/octet-stream"
    ) -> Generation:
        """Writes in turn."""

        def write() -> Generation:
            written = self._store.put_if(name, data, generation=generation, content_type=content_type)
            self._writes.append(data)
            return written

        return self._in_turn(write)

    def put(self, name: str, data: bytes, *, content_type: str = "application/octet-stream") -> Generation:
        """Not in turn: fenced documents are never written so."""
        raise AssertionError("an unconditional write of a fenced document")

    def list(self, prefix: str = "") -> tuple[str, ...]:
        """Not in turn."""
        return self._store.list(prefix)

    def delete(self, name: str) -> None:
        """Not in turn."""
        self._store.delete(name)

    def check_writable(self) -> None:
        """Not in turn."""
        self._store.check_writable()

    def _in_turn(self, operation: Callable[[], _T]) -> _T:
        self.idle.release()
        assert self._turn.acquire(timeout=_WAIT_SECONDS)
        if self._kill == "before":
            self._die()
        try:
            return operation()
        finally:
            if self._kill == "after":
                self._die()

    def _die(self) -> NoReturn:
        self.killed = True
        raise Killed


def run_interleaved(stores: Sequence[TurnTaking], bodies: Sequence[Body], schedule: Sequence[tuple[int, str]]) -> None:
    """Runs writers to their ends, one operation at a time.

    Args:
        stores: one a writer.
        bodies: what each writer does with its store.
        schedule: for each turn the number that selects among the writers still running, and `before`, `after` or ``
            (see `TurnTaking.give_turn`). When it is used up, the first running writer goes on.
    """
    threads = [
        threading.Thread(target=store.run, args=(body,), daemon=True)
        for store, body in zip(stores, bodies, strict=True)
    ]
    for thread, store in zip(threads, stores, strict=True):
        thread.start()
        assert store.idle.acquire(timeout=_WAIT_SECONDS)
    turns = iter(schedule)
    while running := [store for store in stores if not store.ended]:
        number, kill = next(turns, (0, ""))
        running[number % len(running)].give_turn(kill=kill)
    for thread in threads:
        thread.join(_WAIT_SECONDS)
