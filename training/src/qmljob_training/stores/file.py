"""A folder as a store.

An object is a plain file, so that people can look at it, and every write makes a new one:

1. The data goes to a temporary file in the object's own folder and is fsynced.
2. Under the folder's lock (flock, so a killed holder frees it) the precondition is compared and the temporary file
   gets its generation: its modification time in nanoseconds, at least one more than any before in this folder.
3. os.replace makes it the object; the folder is fsynced.

The generation travels with the bytes in the one step that is atomic, os.replace. A counter beside the object could not:
whichever of the two was written first, a crash between them would leave a pair that never belonged together. A reader
needs no lock: the file that it has opened is one version for ever. A file put there by other means (cp, an editor) has
a generation too, and one of its own.

Temporary files are flocked by their writer. One that can be locked has lost its writer: the next write in that folder
removes it. The store adds no checksum of its own: the data's sha256 stands in the manifest or pointer that names it.
"""

import errno
import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import ObjectNotFound, PreconditionFailed, StoreError, StoreMisconfigured, StoreUnavailable
from .protocol import RESERVED_PREFIX, Generation, StoredObject, check_name

_LOCK_NAME = f"{RESERVED_PREFIX}lock"
_TEMPORARY_PREFIX = f"{RESERVED_PREFIX}tmp-"
_TIME_STEPS = (0, 10**2, 10**3, 10**6, 10**9, 2 * 10**9)
"""Nanoseconds between two times that a file system can tell apart: 1 (ext4, xfs, tmpfs) up to 2 s (FAT)."""
_FULL = {errno.ENOSPC, errno.EDQUOT}
_MISCONFIGURED = {
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.EROFS: "the file system is read-only",
    errno.ENOENT: "no folder can be made there",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "a part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder, not a file",
    errno.ENAMETOOLONG: "the path is too long",
    errno.ELOOP: "the path is a loop of links",
    errno.ENOLCK: "the file system has no file locks (flock)",
    errno.EOPNOTSUPP: "the file system has no file locks (flock)",
}


class FileStore:
    """Objects as files under a folder, which is made at the first write. See `Store` for the methods' contract."""

    def __init__(self, folder: Path, *, location: str | None = None, lock_seconds: float = 60.0) -> None:
        """Names the folder; nothing is touched yet.

        Args:
            folder: an absolute path.
            location: how the user calls it; None takes `file://<folder>`.
            lock_seconds: how long a write waits for other writers of the same folder.
        """
        self._folder = folder
        self._location = location or f"file://{folder}"
        self._lock_seconds = lock_seconds

    @property
    def location(self) -> str:
        """The location as the user gave it."""
        return self._location

    def put(self, name: str, data: bytes, *, content_type: str = "application/octet-stream") -> Generation:
        """Writes an object, whatever was there before. A file has no content type: it is ignored."""
        return self._write(name, data, None)

    def put_if(
        self, name: str, data: bytes, *, generation: Generation, content_type: str = "application/octet-stream"
    ) -> Generation:
        """Writes an object if its generation is `generation`; raises PreconditionFailed if not."""
        return self._write(name, data, generation)

    def get(self, name: str) -> StoredObject:
        """Reads an object whole."""
        path = self._path(name)
        with _advice(path):
            try:
                with _opened(path, os.O_RDONLY) as descriptor:
                    before = os.fstat(descriptor)
                    data = _read(descriptor, before.st_size)
                    after = os.fstat(descriptor)
            except FileNotFoundError:
                raise ObjectNotFound(f"{self._location}/{name} does not exist") from None
        if len(data) != before.st_size or after.st_mtime_ns != before.st_mtime_ns:
            raise StoreUnavailable(f"{path} is being changed in place by another program: end that program first")
        return StoredObject(data, before.st_mtime_ns)

    def list(self, prefix: str = "") -> tuple[str, ...]:
        """Returns the names that begin with `prefix`, sorted."""
        start = check_name(prefix.rpartition("/")[0]) if "/" in prefix else ""
        with _advice(self._folder):
            names = _names(self._folder / start, f"{start}/" if start else "")
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def delete(self, name: str) -> None:
        """Removes an object; one that does not exist is fine."""
        path = self._path(name)
        # Under the lock, because a conditional writer may have compared the generation and not yet replaced the file.
        with _advice(path), suppress(FileNotFoundError):
            os.lstat(path)
            with self._locked(path.parent):
                path.unlink()
                _sync_folder(path.parent)

    def check_writable(self) -> None:
        """Writes and removes a small temporary file."""
        with _advice(self._folder):
            _make_folders(self._folder)
            with self._locked(self._folder), _temporary(self._folder) as (descriptor, _):
                _write_all(descriptor, b"qmljob")
                os.fsync(descriptor)

    def _path(self, name: str) -> Path:
        return self._folder / check_name(name)

    def _write(self, name: str, data: bytes, expected: Generation | None) -> Generation:
        path = self._path(name)
        with _advice(path):
            _make_folders(path.parent)
            with _temporary(path.parent) as (descriptor, temporary):
                _write_all(descriptor, data)
                os.fsync(descriptor)  # the long part, before the lock
                with self._locked(path.parent) as lock:
                    found = _generation(path)
                    if expected is not None and found != expected:
                        raise PreconditionFailed(
                            f"{self._location}/{name} no longer has generation {expected}: read it again"
                        )
                    generation = _stamp(descriptor, after=max(found, _last_issued(lock)))
                    os.pwrite(lock, b"%020d" % generation, 0)
                    os.fsync(descriptor)
                    os.replace(temporary, path)
                    _sync_folder(path.parent)
        return generation

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[int]:
        """Holds the folder's lock, and sweeps up behind killed writers; yields the lock's descriptor."""
        path = folder / _LOCK_NAME
        deadline = time.monotonic() + self._lock_seconds
        while True:
            with _opened(path, os.O_RDWR | os.O_CREAT) as lock:
                if not _try_lock(lock):
                    if time.monotonic() > deadline:
                        raise StoreUnavailable(
                            f"{path} has been locked by another process for {self._lock_seconds:g} s: "
                            "find it (fuser) and end it, or try again"
                        )
                    time.sleep(0.005)
                    continue
                if os.fstat(lock).st_nlink == 0:  # the folder was removed and made anew
                    continue
                _sweep(folder)
                yield lock
                return


@contextmanager
def _advice(path: Path) -> Iterator[None]:
    """Turns the system's errors into a store's."""
    try:
        yield
    except OSError as error:
        raise _translated(error, path) from error


def _translated(error: OSError, path: Path) -> StoreError:
    if error.errno in _FULL:
        return StoreUnavailable(
            f"disk full at {path.parent}: free space or choose another --checkpoint-location; "
            "the last checkpoint is intact"
        )
    reason = _MISCONFIGURED.get(error.errno or 0)
    if reason is not None:
        return StoreMisconfigured(f"{path}: {reason}; choose a folder that this program may write to")
    return StoreUnavailable(f"{path}: {error.strerror or error}; check the disk or the network share, then try again")


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _temporary(folder: Path) -> Iterator[tuple[int, Path]]:
    """Makes a locked temporary file; removes it, unless it has become an object."""
    while True:
        path = folder / f"{_TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        with _opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink == 0:  # swept up in the instant before it was locked
                continue
            try:
                yield descriptor, path
            finally:
                path.unlink(missing_ok=True)
            return


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sweep(folder: Path) -> None:
    """Removes temporary files whose writers are gone. Another user's may have to stay."""
    with os.scandir(folder) as entries:
        leftovers = [Path(entry.path) for entry in entries if entry.name.startswith(_TEMPORARY_PREFIX)]
    for path in leftovers:
        with suppress(OSError), _opened(path, os.O_RDWR) as descriptor:
            if _try_lock(descriptor):
                path.unlink()


def _stamp(descriptor: int, *, after: Generation) -> Generation:
    """Sets a file's modification time to now, or to the next later one than `after` that the file system can keep."""
    wanted = max(time.time_ns(), after + 1)
    for step in _TIME_STEPS:
        os.utime(descriptor, ns=(wanted + step, wanted + step))
        kept = os.fstat(descriptor).st_mtime_ns
        if kept > after:
            return kept
    raise StoreMisconfigured("the file system keeps no modification times: choose a folder on another one")


def _generation(path: Path) -> Generation:
    # Opened, not only looked up: on NFS it is open() that asks the server instead of a cache.
    try:
        with _opened(path, os.O_RDONLY) as descriptor:
            return os.fstat(descriptor).st_mtime_ns
    except FileNotFoundError:
        return 0


def _last_issued(lock: int) -> Generation:
    """The last generation given in this folder: an object deleted and written again must not get an old one."""
    text = os.pread(lock, 20, 0)
    return int(text) if text.isdigit() else 0


def _read(descriptor: int, size: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(size + 1)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _make_folders(folder: Path) -> None:
    """Makes a folder and its parents, each entered durably into the one above."""
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    with _opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:  # some network shares sync folders by themselves
                raise


def _names(folder: Path, prefix: str) -> Iterator[str]:
    """Yields the names of objects at and below a folder; a folder that is not there holds none."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name.startswith(RESERVED_PREFIX):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _names(Path(entry.path), f"{prefix}{entry.name}/")
        elif entry.is_file():
            yield f"{prefix}{entry.name}"
