"""Where the native library is, and which sources and which TensorFlow it was made of."""

import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

SOURCE = Path(__file__).parent / "source"
INSTRUCTION_SETS = {
    "x86_64": {
        "avx512": (64, ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-mprefer-vector-width=512")),
        "avx2": (32, ("-mavx2", "-mfma")),
        "baseline": (16, ()),
    }
}
"""For each machine the sets that the loops are compiled for: bytes of a vector, and the compiler's flags."""
OTHER_MACHINE: "dict[str, tuple[int, tuple[str, ...]]]" = {"baseline": (16, ())}
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra")


def instruction_sets() -> "dict[str, tuple[int, tuple[str, ...]]]":
    """Returns what is compiled on this machine; which of it runs is decided when it runs."""
    return INSTRUCTION_SETS.get(platform.machine(), OTHER_MACHINE)


def instruction_set(cpuinfo: str, limit: str = "") -> str:
    """Returns the set of loops that a processor gets: what source/dispatch.cc chooses, known before TensorFlow loads.

    Args:
        cpuinfo: the text of /proc/cpuinfo.
        limit: of QMLJOB_NATIVE_ISA, which asks for less.
    """
    line = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    flags = set(line.partition(":")[2].split())
    two = {"avx2", "fma"} <= flags
    if two and {"avx512f", "avx512dq", "avx512vl", "avx512bw"} <= flags and limit in ("", "avx512"):
        return "avx512"
    return "avx2" if two and limit != "baseline" else "baseline"


def tensorflow_version() -> str:
    """Returns the installed TensorFlow's version; empty where there is none."""
    for package in ("tensorflow-cpu", "tensorflow"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""


def digest() -> str:
    """Returns what the library's name has: another one for other sources, flags, TensorFlow or machine.

    Not for another processor: the library holds loops for several instruction sets.
    """
    told = hashlib.sha256(repr((tensorflow_version(), platform.machine(), FLAGS, instruction_sets())).encode())
    for path in sorted(SOURCE.iterdir()):
        told.update(path.name.encode() + b"\0" + path.read_bytes())
    return told.hexdigest()[:16]


def folders() -> tuple[Path, ...]:
    """Returns where a library may be: beside the source, else the user's cache (the package may be read-only)."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(__file__).parent / "library", cache / "qmljob"


def library() -> Path | None:
    """Returns the library that belongs to this source and TensorFlow; None where it is not built."""
    name = f"lightcone-{digest()}.so"
    return next((folder / name for folder in folders() if (folder / name).is_file()), None)
