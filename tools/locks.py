"""The locks under requirements/: `locks.py` compiles them with uv, `locks.py --check` says whether they are up to date.

The check reads files only, so it works offline: each lock's head holds a digest of what the lock was compiled from.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("api", "operator", "training", "inference", "client")
# Resolved for the oldest supported Python; the others must come to the same versions, since one lock serves them all.
OLDEST_PYTHON, OTHER_PYTHONS = "3.11", ("3.12",)
COMMON_INPUTS = ("requirements/constraints.txt", "requirements/overrides.txt")
DIGEST_LINE = re.compile(r"^# inputs sha256: ([0-9a-f]{64})$", re.MULTILINE)
PIN = re.compile(r"^([a-z0-9][a-z0-9.-]*)==(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Lock:
    """One environment: the lock's file, what it is compiled from, and the lock whose pins it must share."""

    path: str
    inputs: tuple[str, ...]
    pins_of: str | None = None
    extras: tuple[str, ...] = ()


DEV = Lock(
    "requirements/dev.txt",
    ("requirements/dev.in", "requirements/uv.in", *(f"{room}/pyproject.toml" for room in ROOMS)),
)
LOCKS = (
    DEV,
    Lock("requirements/operator.txt", ("operator/pyproject.toml",), pins_of=DEV.path, extras=("controller",)),
    Lock(
        "requirements/worker.txt",
        ("training/pyproject.toml", "inference/pyproject.toml"),
        pins_of=DEV.path,
        extras=("tfq",),
    ),
    Lock("requirements/uv.txt", ("requirements/uv.in",), pins_of=DEV.path),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="report locks that are out of date, change nothing")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions, instead of keeping the pins")
    arguments = parser.parse_args()
    problems = check() if arguments.check else compile_all(upgrade=arguments.upgrade)
    for problem in problems:
        print(f"locks: {problem}", file=sys.stderr)
    return 1 if problems else 0


def check() -> list[str]:
    """What is wrong with the committed locks, a sentence each."""
    problems = []
    dev_pins = pins(read(DEV.path))
    for lock in LOCKS:
        text = read(lock.path)
        found = DIGEST_LINE.search(text)
        if found is None or found[1] != inputs_digest(lock):
            problems.append(f"{lock.path} was not compiled from the present {', '.join(lock.inputs)}; run `make lock`")
        if "://" in text:
            problems.append(f"{lock.path} names a registry's address; run `make lock`, which leaves it out")
        problems += [
            f"{lock.path} pins {name} {version}, {DEV.path} {dev_pins.get(name, 'not at all')}; run `make lock`"
            for name, version in pins(text).items()
            if dev_pins.get(name) != version
        ]
    return problems


def compile_all(*, upgrade: bool) -> list[str]:
    """Rewrites every lock, and checks that the other Pythons would get the very same versions."""
    for lock in LOCKS:
        compile_one(lock, upgrade=upgrade)
        print(f"{lock.path}: {len(pins(read(lock.path)))} packages")
    expected = pins(read(DEV.path))
    problems = []
    for python in OTHER_PYTHONS:
        with tempfile.NamedTemporaryFile(suffix=".txt") as other:
            run_uv(DEV, python, Path(other.name), constraint=DEV.path)
            found = pins(Path(other.name).read_text("utf-8"))
        problems += [
            f"Python {python} resolves {name} to {found.get(name, 'nothing')}, {OLDEST_PYTHON} to "
            f"{expected.get(name, 'nothing')}; add a constraint in {COMMON_INPUTS[0]} that gives both the same"
            for name in sorted(expected.keys() | found.keys())
            if expected.get(name) != found.get(name)
        ]
    return problems


def compile_one(lock: Lock, *, upgrade: bool) -> None:
    target = ROOT / lock.path
    with tempfile.TemporaryDirectory() as folder:
        # uv prefers the pins that it finds in its output file, so an upgrade starts from an empty one.
        output = Path(folder) / target.name
        if target.exists() and not upgrade:
            output.write_bytes(target.read_bytes())
        run_uv(lock, OLDEST_PYTHON, output, constraint=lock.pins_of)
        body = output.read_text("utf-8")
    head = f"# Compiled by `make lock`; do not edit.\n# inputs sha256: {inputs_digest(lock)}\n"
    target.write_text(head + body, "utf-8")


def run_uv(lock: Lock, python: str, output: Path, *, constraint: str | None) -> None:
    constraints = [COMMON_INPUTS[0], *([constraint] if constraint else [])]
    command = [
        "uv", "pip", "compile", "--quiet", "--generate-hashes", "--no-header",
        # Wheels only: building a source distribution would run code that no hash covers.
        "--only-binary", ":all:",
        "--python-version", python, "--python-platform", "x86_64-manylinux_2_28",
        *(["--all-extras"] if lock is DEV else []),
        *(f"--extra={extra}" for extra in lock.extras),
        *(f"--constraint={path}" for path in constraints), f"--override={COMMON_INPUTS[1]}",
        *(f"--no-emit-package={name}" for name in room_names()),
        *lock.inputs, f"--output-file={output}",
    ]  # fmt: skip
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit(f"locks: uv found no solution for {lock.path} with Python {python}; its message above says why")


def inputs_digest(lock: Lock) -> str:
    """Digest of what decides a lock: a comment or a package's description does not."""
    digest = hashlib.sha256()
    for path in (*lock.inputs, *COMMON_INPUTS, *([lock.pins_of] if lock.pins_of else [])):
        if path.endswith(".toml"):
            decisive = json.dumps(requirements_of(path), sort_keys=True)
        else:
            lines = (line.split("#")[0].strip() for line in read(path).splitlines())
            decisive = "\n".join(line for line in lines if line)
        digest.update(f"{path}\n{decisive}\n".encode())
    return digest.hexdigest()


def requirements_of(path: str) -> dict[str, object]:
    project = tomllib.loads(read(path))["project"]
    keys = ("name", "version", "requires-python", "dependencies", "optional-dependencies")
    return {key: project.get(key) for key in keys}


def room_names() -> list[str]:
    return [str(requirements_of(f"{room}/pyproject.toml")["name"]) for room in ROOMS]


def pins(text: str) -> dict[str, str]:
    """Name to version, of a lock's text."""
    return {found[1]: found[2] for found in PIN.finditer(text)}


def read(path: str) -> str:
    file = ROOT / path
    return file.read_text("utf-8") if file.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
