"""Looks at an .h5 file of weights before Keras reads it: it may come from anybody.

HDF5 can do more than hold numbers: links to other files and to other places, data that lies outside of the file, data
that is computed from other data, filters that unfold a few bytes to gigabytes or load a library. Weights need none of
it, and Keras would follow it all.
"""

from pathlib import Path

import h5py

MAX_OBJECTS = 100_000
UNREADABLE = (
    ValueError,
    OSError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    MemoryError,
    RuntimeError,
)
"""What h5py and Keras raise at files that are no weights, or damaged."""


def check_weights_file(path: Path) -> None:
    """Raises ValueError, or another one of `UNREADABLE`, where a file is more than groups of numbers."""
    size = path.stat().st_size
    with h5py.File(path, "r") as file:
        groups: list[h5py.Group] = [file]
        objects = held = 0
        while groups:
            group = groups.pop()
            for name in group:
                objects += 1
                if objects > MAX_OBJECTS:  # or a group that holds itself
                    raise ValueError(f"it holds more than {MAX_OBJECTS} objects")
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    raise ValueError("it has a link to another place")
                found = group[name]
                if isinstance(found, h5py.Group):
                    groups.append(found)
                    continue
                held += _bytes_of(found)
                if held > size:
                    raise ValueError("it says that it holds more than it does")


def _bytes_of(found: object) -> int:
    """Returns the size of a data set of numbers that lies in the file as it is."""
    if not isinstance(found, h5py.Dataset):
        raise ValueError("it holds something else than numbers")
    if found.external or found.is_virtual:
        raise ValueError("its data lies in another file")
    if found.chunks is not None or found.id.get_create_plist().get_nfilters():
        raise ValueError("its data is compressed")
    if found.dtype.kind != "f":
        raise ValueError(f"it holds {found.dtype}")
    return int(found.nbytes)
