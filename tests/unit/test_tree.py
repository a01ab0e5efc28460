"""The rooms stay apart: importing one loads nothing that it must not know."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]

ROOMS = {
    "qmljob_api": ("kubernetes", "tensorflow", "yaml", "numpy", "kopf"),
    "qmljob_operator": ("tensorflow", "cirq", "numpy", "kopf", "kubernetes", "yaml"),
    "qmljob": ("qmljob_training", "qmljob_inference", "tensorflow", "tensorflow_quantum", "cirq"),
}

_PROGRAM = """
import importlib, pkgutil, sys
for room in sys.argv[1].split(","):
    package = importlib.import_module(room)
    for module in pkgutil.walk_packages(getattr(package, "__path__", []), room + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
forbidden = sys.argv[2].split(",")
print(",".join(sorted({name.partition(".")[0] for name in sys.modules} & set(forbidden))))
"""


def loaded(rooms: str, forbidden: tuple[str, ...]) -> list[str]:
    """Returns which of the forbidden packages a fresh interpreter has loaded after importing all of the rooms' modules."""
    command = [sys.executable, "-c", _PROGRAM, rooms, ",".join(forbidden)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return [name for name in done.stdout.strip().split(",") if name]


@pytest.mark.parametrize(("room", "forbidden"), ROOMS.items(), ids=ROOMS.keys())
def test_a_room_loads_nothing_that_it_must_not_know(room: str, forbidden: tuple[str, ...]) -> None:
    assert loaded(room, forbidden) == []


@pytest.mark.parametrize("room", ROOMS)
def test_the_check_can_fail(room: str) -> None:
    assert loaded(f"{room},numpy", ("numpy",)) == ["numpy"]


def test_the_check_sees_modules_that_only_a_submodule_loads() -> None:
    assert loaded("qmljob_operator", ("hashlib",)) == ["hashlib"]


def test_operator_is_no_package() -> None:
    """A package of this name would hide the standard library's `operator` from whoever runs Python in the root."""
    assert (ROOT / "operator" / "src").is_dir()
    assert not (ROOT / "operator" / "__init__.py").exists()
