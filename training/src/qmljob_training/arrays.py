"""Named arrays as one .npz archive, without pickle; the same arrays give the same bytes.

An archive may come from anybody. It is read in memory only, and never takes more of it than the archive has bytes:
nothing in one is compressed, and an array's shape must be that of the bytes that are there.
"""

import io
import math
import struct
import tokenize
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SUFFIX = ".npy"
_NUMBERS = "biufc"
"""numpy's kinds of numbers: no text, no records, no objects."""
_UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OSError,
    EOFError,
    OverflowError,
    MemoryError,
    RuntimeError,  # the zip module takes a flipped bit for encryption or for a compression that it does not know
    SyntaxError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
)


def pack(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Returns the archive."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def unpack(data: bytes) -> dict[str, NDArray[Any]]:
    """Returns the arrays of an archive; raises ValueError where it is none, damaged, or made to harm."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ValueError("a part of it is compressed")
            if sum(member.file_size for member in members) > len(data):
                raise ValueError("its parts overlap")
            return {member.filename.removesuffix(_SUFFIX): _array(archive.read(member)) for member in members}
    except _UNREADABLE as error:
        raise ValueError(f"no readable .npz archive ({type(error).__name__})") from error


def _array(data: bytes) -> NDArray[Any]:
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, by_columns, dtype = read_header(file)
    if dtype.kind not in _NUMBERS:
        raise ValueError(f"an array of it holds {dtype}")
    if math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError("an array of it has another shape than its data")
    flat = np.frombuffer(data, dtype, offset=file.tell())
    return flat.reshape(shape, order="F" if by_columns else "C").copy(order="K")
