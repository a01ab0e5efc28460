"""Content names: data objects are named by their own sha256, so that a name never changes its meaning."""

import hashlib

from qmljob_api.artifact import DataFile


def data_file(stem: str, suffix: str, data: bytes) -> DataFile:
    """Returns the description of `data` as an immutable object, `<stem>-<16 hex digits><suffix>`."""
    digest = hashlib.sha256(data).hexdigest()
    return DataFile(name=f"{stem}-{digest[:16]}{suffix}", sha256=digest, size=len(data))


def matches(file: DataFile, data: bytes) -> bool:
    """Whether `data` is what `file` describes."""
    return len(data) == file.size and hashlib.sha256(data).hexdigest() == file.sha256
