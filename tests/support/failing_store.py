"""A store that fails at a chosen write, before it has an effect or after it: a process or a network that dies there."""

from qmljob_training.stores import Generation, Store, StoredObject, StoreUnavailable


class FailingStore:
    """Passes everything on, but for one write.

    Args:
        inner: the store that keeps the objects.
        fail_at: the number of the write that fails, from 0; None: none does.
        after: whether the write takes effect before it fails.
    """

    def __init__(self, inner: Store, fail_at: int | None = None, *, after: bool = False) -> None:
        self.location = inner.location
        self.writes: list[str] = []
        self.deleted: list[str] = []
        self._inner = inner
        self._fail_at = fail_at
        self._after = after

    def put(self, name: str, data: bytes, *, content_type: str = "application/octet-stream") -> Generation:
        """Writes, or fails."""
        self._begin(name)
        generation = self._inner.put(name, data, content_type=content_type)
        self._end()
        return generation

    def put_if(
        self, name: str, data: bytes, *, generation: Generation, content_type: str = "application/octet-stream"
    ) -> Generation:
        """Writes conditionally, or fails."""
        self._begin(name)
        written = self._inner.put_if(name, data, generation=generation, content_type=content_type)
        self._end()
        return written

    def delete(self, name: str) -> None:
        """Deletes, or fails."""
        self._begin(name)
        self._inner.delete(name)
        self.deleted.append(name)
        self._end()

    def get(self, name: str) -> StoredObject:
        """Reads."""
        return self._inner.get(name)

    def list(self, prefix: str = "") -> tuple[str, ...]:
        """Lists."""
        return self._inner.list(prefix)

    def check_writable(self) -> None:
        """Checks."""
        self._inner.check_writable()

    def _begin(self, name: str) -> None:
        self.writes.append(name)
        if not self._after:
            self._fail()

    def _end(self) -> None:
        if self._after:
            self._fail()

    def _fail(self) -> None:
        if len(self.writes) - 1 == self._fail_at:
            raise StoreUnavailable("the store is away: try again")
