"""From a location, as a user writes it, to a store."""

import os
import re
import warnings
from pathlib import Path

from qmljob_api.environment import STORE_ROOT

from .errors import StoreMisconfigured
from .file import FileStore
from .protocol import RetrySettings, Store, check_name

_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9_-]|\.(?!\.)){1,220}[a-z0-9]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def open_store(location: str, *, retry: RetrySettings | None = None) -> Store:
    """Returns the store at a location; touches neither disk nor network.

    Args:
        location: `gs://bucket/prefix`, `file:///absolute/folder`, or a plain path. Where the environment sets
            `QMLJOB_STORE_ROOT`, `gs://b/p` is the folder `$QMLJOB_STORE_ROOT/b/p`: a local run needs no bucket.
        retry: how long a bucket's answers are waited for; None takes the defaults.

    Raises:
        StoreMisconfigured: the location is not one of these.
    """
    scheme, rest = _split_scheme(location)
    if scheme == "file":
        return FileStore(_folder(location, rest), location=_trimmed(location))
    bucket, prefix = _split_bucket(location, rest)
    root = os.environ.get(STORE_ROOT)
    if root:
        return FileStore(Path(os.path.abspath(root), bucket, prefix), location=_trimmed(location))
    with (
        warnings.catch_warnings()
    ):  # the library's announcement of when it will drop this Python says nothing to a user
        warnings.simplefilter("ignore", FutureWarning)
        from .gcs import GcsStore  # slow to import, and a folder never needs it

    return GcsStore(bucket, prefix, retry=retry)


def split_location(location: str) -> tuple[str, str]:
    """Splits an object's location into its folder's and its name (`gs://b/p/x.h5` -> `gs://b/p`, `x.h5`).

    Raises:
        StoreMisconfigured: the location names a folder or a bucket, not an object in one.
    """
    scheme, rest = _split_scheme(location)
    folder, slash, name = rest.rpartition("/")
    if not name or (scheme == "gs" and not folder):
        raise StoreMisconfigured(f"{location!r} names no object: end it with a file name, as in {_example(scheme)}")
    if scheme == "file" and not location.startswith("file://"):
        return (folder or slash or "."), check_name(name)
    return f"{scheme}://{folder or slash}", check_name(name)


def _split_scheme(location: str) -> tuple[str, str]:
    if not location or not location.isprintable():
        raise StoreMisconfigured(f"location {location!r}: write gs://bucket/folder or file:///absolute/folder")
    match = _SCHEME.match(location)
    if match is None and location.startswith(("gs:", "file:")):
        raise StoreMisconfigured(f"location {location!r}: write two slashes after the colon, as in gs://bucket/folder")
    if match is None:
        return "file", location
    if match[1] not in {"gs", "file"}:
        raise StoreMisconfigured(f"location {location!r}: {match[1]}:// is not supported; use gs:// or file://")
    return match[1], location[match.end() :]


def _folder(location: str, rest: str) -> Path:
    if location.startswith("file://") and not rest.startswith("/"):
        raise StoreMisconfigured(f"location {location!r}: file:// needs an absolute folder, as in {_example('file')}")
    return Path(os.path.abspath(os.path.expanduser(rest)))


def _split_bucket(location: str, rest: str) -> tuple[str, str]:
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise StoreMisconfigured(
            f"location {location!r}: {bucket!r} is no bucket name: 3 or more lower-case letters, digits, '-', '_', '.'"
        )
    prefix = prefix.rstrip("/")
    return bucket, check_name(prefix) if prefix else ""


def _trimmed(location: str) -> str:
    trimmed = location.rstrip("/")
    return location if not trimmed or trimmed.endswith(":") else trimmed


def _example(scheme: str) -> str:
    return "gs://bucket/folder/weights.h5" if scheme == "gs" else "file:///data/weights.h5"
