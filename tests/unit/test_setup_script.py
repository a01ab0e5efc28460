"""What `make setup` says, in one line and before it changes anything, where it can't work."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ("tools/environment.sh", "requirements/dev.txt", "requirements/uv.txt")
ROOMS = ("api", "operator", "training", "inference", "client")

# Programs in the place of the machine's own: each is what it stands for, in the one respect that is told.
PYTHON_3_9 = "import sys; sys.version_info = (3, 9, 2)"
PYTHON_3_13 = "import sys; sys.version_info = (3, 13, 0)"
WITHOUT_VENV = (
    "import importlib.util as u; find = u.find_spec; u.find_spec = lambda n: None if n == 'ensurepip' else find(n)"
)
WITH_MUSL = "import platform; platform.libc_ver = lambda *_: ('', '')"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What the script reads, in a folder without .venv."""
    for name in (*INPUTS, *(f"{room}/pyproject.toml" for room in ROOMS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(copy: Path, name: str, text: str) -> None:
    path = copy / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)


def python(copy: Path, name: str, before: str) -> None:
    """An interpreter that runs `before` before what it is given on standard input."""
    program(copy, name, f'exec {sys.executable} -c "{before}; import sys; exec(sys.stdin.read())"')


def setup(copy: Path, **environment: str) -> tuple[int, list[str]]:
    path = f"{copy / 'bin'}:{os.environ['PATH']}"
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    ended = subprocess.run(
        [copy / "tools" / "environment.sh"],
        env=inherited | {"PATH": path} | environment,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return ended.returncode, ended.stderr.splitlines()


@pytest.mark.parametrize(
    ("program_name", "text", "said"),
    [
        pytest.param("uname", "echo Darwin", "needs Linux, this is Darwin", id="another-system"),
        pytest.param(
            "uname",
            '[ "$1" = -m ] && echo aarch64 || echo Linux',
            "needs an x86_64 CPU, this is aarch64",
            id="another-cpu",
        ),
        pytest.param("df", "printf 'a b c d\\n0 0 0 12\\n'", "needs 3000 MiB of disk", id="a-full-disk"),
    ],
)
def test_a_machine_that_will_not_do_is_refused(copy: Path, program_name: str, text: str, said: str) -> None:
    program(copy, program_name, text)
    code, lines = setup(copy)
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith(f"setup: {said}")
    assert not (copy / ".venv").exists()


@pytest.mark.parametrize(
    ("before", "said"),
    [
        pytest.param(PYTHON_3_9, "is 3.9.2. Install one, or name one: make setup PYTHON=", id="too-old"),
        pytest.param(PYTHON_3_13, "is 3.13.0. Install one", id="too-new"),
        pytest.param(WITHOUT_VENV, "without its venv module (Debian, Ubuntu: apt install python3.1", id="without-venv"),
        pytest.param(WITH_MUSL, "another C library than glibc", id="musl"),
    ],
)
def test_an_interpreter_that_will_not_do_is_refused_with_the_reason(copy: Path, before: str, said: str) -> None:
    python(copy, "mine", before)
    code, lines = setup(copy, PYTHON="mine")
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith("setup: needs Python 3.11 or 3.12: mine ")
    assert said in lines[0]
    assert not (copy / ".venv").exists()


def test_every_interpreter_that_was_tried_is_named(copy: Path) -> None:
    for name in ("python3.12", "python3.11", "python3"):
        python(copy, name, PYTHON_3_9)
    code, lines = setup(copy)
    assert (code, len(lines)) == (1, 1)
    assert "python3.12 is 3.9.2; python3.11 is 3.9.2; python3 is 3.9.2." in lines[0]


def test_an_interpreter_that_is_not_there_is_named(copy: Path) -> None:
    assert setup(copy, PYTHON="python-nowhere") == (
        1,
        [
            "setup: needs Python 3.11 or 3.12: python-nowhere not found. "
            "Install one, or name one: make setup PYTHON=/path/to/python3.12"
        ],
    )
