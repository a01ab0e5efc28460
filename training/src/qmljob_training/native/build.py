"""`python -m qmljob_training native build`: compiles the native loops; no network, some seconds."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from qmljob_training.errors import ConfigurationError
from qmljob_training.native import paths
from qmljob_training.progress import say

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g")
UNITS = ("plan", "memory", "dispatch", "simulate")
MESSAGE_LINES = 20


@dataclass(frozen=True)
class _Compiler:
    program: str
    version: str


def run(arguments: Sequence[str]) -> None:
    """Runs `native build [--if-possible] [--sanitize FILE]`.

    Raises:
        ConfigurationError: there is no C++ compiler, or it fails.
    """
    import argparse

    parser = argparse.ArgumentParser("python -m qmljob_training native", description=__doc__)
    parser.add_argument("action", choices=["build"])
    parser.add_argument("--if-possible", action="store_true", help="without a compiler, say so and succeed")
    parser.add_argument("--sanitize", metavar="FILE", type=Path, help="write a library with sanitizers to FILE instead")
    given = parser.parse_args(arguments)
    compiler = find_compiler()
    if compiler is None:
        wanted = "the native loops need g++ 10 or later (Debian, Ubuntu: apt install g++, or set CXX)"
        if not given.if_possible:
            raise ConfigurationError(f"{wanted}; without them engine lightcone computes by TensorFlow alone, slower")
        say(f"{wanted}; engine lightcone will compute by TensorFlow alone, the same numbers, slower for full registers")
        return
    if given.sanitize is not None:
        _compile(compiler, given.sanitize, SANITIZERS)
        say(f"native loops with sanitizers: {given.sanitize}")
        return
    say(f"native loops: {build(compiler)}")


def find_compiler() -> _Compiler | None:
    """Returns $CXX, else g++, where it is GCC: the loops use its vector extensions."""
    program = shutil.which(os.environ.get("CXX") or "g++")
    if program is None:
        return None
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    is_gcc = told.returncode == 0 and "Free Software Foundation" in told.stdout
    return _Compiler(program, told.stdout.splitlines()[0]) if is_gcc else None


def build(compiler: _Compiler) -> Path:
    """Compiles the library unless this compiler has done so already; returns where it is."""
    found = paths.library()
    if found is not None and _made_by(found) == compiler.version:
        return found
    folder = next(each for each in paths.folders() if _writable(each))
    target = folder / f"lightcone-{paths.digest()}.so"
    _compile(compiler, target, ())
    target.with_suffix(".json").write_text(json.dumps({"compiler": compiler.version}) + "\n")
    for old in folder.glob("lightcone-*"):
        if old.stem != target.stem:
            old.unlink(missing_ok=True)
    return target


def _compile(compiler: _Compiler, target: Path, extra: Sequence[str]) -> None:
    """Compiles all units, at the same time, and links them; the file is there whole or not at all."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        base = [compiler.program, *paths.FLAGS, *extra]
        commands = [[*base, "-c", str(paths.SOURCE / f"{unit}.cc"), "-o", str(folder / f"{unit}.o")] for unit in UNITS]
        for isa, (width, flags) in paths.instruction_sets().items():
            defined = (f"-DQMLJOB_ISA={isa}", f"-DQMLJOB_VECTOR_BYTES={width}")
            source, made = str(paths.SOURCE / "kernels.cc"), str(folder / f"kernels_{isa}.o")
            commands.append([*base, *defined, *flags, "-c", source, "-o", made])
        # TensorFlow's headers are not ours to warn about, and too slow to optimise for a function that only hands over.
        headers = [
            f.replace("-I", "-isystem", 1) if f.startswith("-I") else f for f in tf.sysconfig.get_compile_flags()
        ]
        op = [*base, "-O1", *headers, "-c", str(paths.SOURCE / "op.cc"), "-o", str(folder / "op.o")]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(_run, [op, *commands]))
        linked = folder / "linked.so"
        objects = sorted(str(path) for path in folder.glob("*.o"))
        _run([*base, "-shared", *objects, "-o", str(linked), *tf.sysconfig.get_link_flags()])
        linked.replace(target)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        told = "\n".join(done.stderr.splitlines()[:MESSAGE_LINES])
        raise ConfigurationError(f"the native loops do not compile: {' '.join(command)}: {told}")


def _made_by(library: Path) -> str | None:
    try:
        return str(json.loads(library.with_suffix(".json").read_text())["compiler"])
    except (OSError, ValueError, KeyError):
        return None


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
