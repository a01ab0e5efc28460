"""Named arrays as one .npz archive, without pickle; the same arrays give the same bytes."""

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pack(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Returns the archive."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def unpack(data: bytes) -> dict[str, NDArray[Any]]:
    """Returns the arrays of an archive; raises ValueError where it is none, or damaged."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, KeyError, AttributeError, OSError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
        # RuntimeError: the zip module takes a flipped bit for encryption or for a compression that it does not know.
        raise ValueError(f"no readable .npz archive ({type(error).__name__})") from error
