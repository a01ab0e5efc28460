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

EXTRAS = {"qmljob_operator": "qmljob_operator.controller"}
"""Packages that belong to an extra of a room's distribution: the room itself must do without them."""

_PROGRAM = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, sys.argv[1] + "."):
    if not module.name.endswith("__main__") and not module.name.startswith(sys.argv[3]):
        importlib.import_module(module.name)
for extra in sys.argv[4:]:
    importlib.import_module(extra)
forbidden = sys.argv[2].split(",")
print(",".join(sorted({name.partition(".")[0] for name in sys.modules} & set(forbidden))))
"""


def loaded(room: str, forbidden: tuple[str, ...], *extra: str) -> list[str]:
    """Returns which of the forbidden packages a fresh interpreter has loaded.

    It imports all modules of the room but the programs (`__main__`) and what belongs to an extra, and the modules
    `extra`.
    """
    command = [sys.executable, "-c", _PROGRAM, room, ",".join(forbidden), EXTRAS.get(room, "no extra"), *extra]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return [name for name in done.stdout.strip().split(",") if name]


@pytest.mark.parametrize(("room", "forbidden"), ROOMS.items(), ids=ROOMS.keys())
def test_a_room_loads_nothing_that_it_must_not_know(room: str, forbidden: tuple[str, ...]) -> None:
    assert loaded(room, forbidden) == []


@pytest.mark.parametrize("room", ROOMS)
def test_the_check_can_fail(room: str) -> None:
    assert loaded(room, ("numpy", "tensorflow"), "numpy") == ["numpy"]


def test_the_check_sees_modules_that_only_a_submodule_loads() -> None:
    assert loaded("qmljob_operator", ("hashlib", "numpy")) == ["hashlib"]


def test_the_controller_is_an_extra_that_loads_kubernetes() -> None:
    everything = [f"qmljob_operator.controller.{name}" for name in ("program", "handlers", "reconcile")]
    assert loaded("qmljob_operator", ("kopf", "kubernetes", "tensorflow"), *everything) == ["kopf", "kubernetes"]


def test_operator_is_no_package() -> None:
    """A package of this name would hide the standard library's `operator` from whoever runs Python in the root."""
    assert (ROOT / "operator" / "src").is_dir()
    assert not (ROOT / "operator" / "__init__.py").exists()
