"""The native ops, loaded once a process."""

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from qmljob_training.errors import ConfigurationError
from qmljob_training.native import paths
from qmljob_training.progress import say

SWITCH = "QMLJOB_NATIVE"
"""Environment: 0 computes by TensorFlow alone; a path loads that library."""
LIMIT = "QMLJOB_NATIVE_ISA"
CPUINFO = Path("/proc/cpuinfo")
BUILD = "python -m qmljob_training native build"


@dataclass(frozen=True)
class Native:
    """The loaded library.

    Attributes:
        ops: `qmljob_values` and `qmljob_gradient`.
        instruction_set: that it uses on this processor; another one gives other last bits.
    """

    ops: Any
    instruction_set: str


def available() -> bool:
    """Says whether the native loops are built and not switched off; loads nothing."""
    return _path() is not None


def description() -> str:
    """Returns what computes state vectors here, for the record: "native avx512", or "xla"; loads no TensorFlow."""
    if not available():
        return "xla"
    return f"native {paths.instruction_set(CPUINFO.read_text('utf-8'), os.environ.get(LIMIT, ''))}"


@cache
def tell_where_missing() -> None:
    """Says, once a process, that the loops are missing, unless the user has switched them off."""
    if not available() and os.environ.get(SWITCH, "") != "0":
        say(f"engine lightcone: no native loops here, so TensorFlow moves the state vectors; faster: {BUILD}")


def load() -> Native:
    """Loads the library; TensorFlow with it.

    Raises:
        ConfigurationError: it is not built, or can't be loaded.
    """
    path = _path()
    if path is None:
        raise ConfigurationError(f"the native loops are not built here; run: {BUILD}")
    return _load(path)


def _path() -> Path | None:
    asked = os.environ.get(SWITCH, "")
    if asked == "0":
        return None
    return Path(asked) if asked not in ("", "1") else _library()


@cache
def _library() -> Path | None:
    return paths.library()


@cache
def _load(path: Path) -> Native:
    import tensorflow as tf

    try:
        return Native(tf.load_op_library(str(path)), _instruction_set(path))
    except (tf.errors.OpError, OSError) as error:
        line = str(error).splitlines()[0]
        raise ConfigurationError(f"the native loops at {path} can't be loaded: {line}; run: {BUILD}") from error


@cache
def _instruction_set(path: Path) -> str:
    import tensorflow as tf  # noqa: F401 - the library needs TensorFlow's own to be loaded first

    told = ctypes.CDLL(str(path)).qmljob_instruction_set
    told.restype = ctypes.c_char_p
    return str(told().decode())
