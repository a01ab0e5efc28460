"""What holds for the repository as a whole: its rooms, what they import and declare, and the locks."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {
    "api": "qmljob_api",
    "operator": "qmljob_operator",
    "training": "qmljob_training",
    "inference": "qmljob_inference",
    "client": "qmljob",
}
# Contract tests are shipped for authors of plugins, who have pytest already.
TESTING = {"hypothesis", "pytest"}
# Pydantic's own documents import its error types from there, and it pins that package to one version.
PARTS = {"pydantic_core": "pydantic"}
EXTRAS = {"operator": "controller", "training": "tfq"}
"""A room's part that needs an extra of the same name: a package or a module of its own inside the room."""
LOCKS = ("dev", "operator", "worker", "uv")


def project(room: str) -> dict[str, object]:
    return tomllib.loads((ROOT / room / "pyproject.toml").read_text("utf-8"))["project"]


def source_files(room: str) -> list[Path]:
    return sorted((ROOT / room / "src" / ROOMS[room]).rglob("*.py"))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def owners_of_modules() -> Mapping[str, list[str]]:
    return packages_distributions()


def requirements(room: str) -> list[str]:
    """What the room needs at run time; its extras are no part of it."""
    return list(project(room)["dependencies"])


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_that_it_has_types(room: str) -> None:
    assert (ROOT / room / "src" / ROOMS[room] / "py.typed").is_file()


def test_all_rooms_and_their_pins_of_each_other_have_one_version() -> None:
    versions = {str(project(room)["version"]) for room in ROOMS}
    pinned = {
        requirement.split("==")[1]
        for room in ROOMS
        for requirement in [*requirements(room), *project(room).get("optional-dependencies", {}).get("local", [])]
        if requirement.startswith("qmljob")
    }
    assert versions | pinned == {distribution("qmljob").version}


def test_all_rooms_support_the_same_pythons_under_the_same_licence() -> None:
    assert {(project(room)["requires-python"], project(room)["license"]) for room in ROOMS} == {
        (">=3.11,<3.13", "Apache-2.0")
    }
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")[:200]


@pytest.mark.parametrize(
    ("room", "script", "target"),
    [(room, *item) for room in ROOMS for item in project(room).get("scripts", {}).items()],
)
def test_a_console_script_leads_to_a_function(room: str, script: str, target: str) -> None:
    module, function = target.split(":")
    assert callable(getattr(importlib.import_module(module), function)), f"{room}: {script}"


@pytest.mark.parametrize(
    ("group", "name", "target"),
    [
        (group, *item)
        for room in ROOMS
        for group, points in project(room).get("entry-points", {}).items()
        for item in points.items()
    ],
)
def test_an_entry_point_names_what_its_module_defines(group: str, name: str, target: str) -> None:
    module, attribute = target.split(":")
    room = next(room for room, package in ROOMS.items() if module.startswith(f"{package}."))
    source = ROOT / room / "src" / f"{module.replace('.', '/')}.py"
    statements = ast.parse(source.read_text("utf-8")).body
    defined = {statement.name for statement in statements if isinstance(statement, ast.ClassDef | ast.FunctionDef)}
    assert attribute in defined, f"{group}: {name}"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_or_a_room_below_it_declares(room: str) -> None:
    declared = declared_modules(room)
    extra = EXTRAS.get(room, "")
    more = modules_of(project(room)["optional-dependencies"][extra]) if extra else set()
    undeclared = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in source_files(room)
        for allowed in [
            declared | more if extra and {extra, f"{extra}.py", "__main__.py"} & set(path.parts) else declared
        ]
        for module in imported_modules(path) - sys.stdlib_module_names - {ROOMS[room]} - TESTING
        if PARTS.get(module, module) not in allowed
    }
    assert undeclared == set()


def declared_modules(room: str) -> set[str]:
    """Top-level modules of all that the room requires, and that the rooms which it requires require."""
    return modules_of(requirements(room))


def modules_of(requirements_listed: list[str]) -> set[str]:
    """Top-level modules of these requirements, and of all rooms among them."""
    rooms = {str(project(name)["name"]): name for name in ROOMS}
    modules = set()
    for requirement in requirements_listed:
        name = normal(re.match(r"[\w.-]+", requirement)[0])
        if name in rooms:
            modules |= {ROOMS[rooms[name]]} | declared_modules(rooms[name])
        else:
            modules |= {module for module, owners in owners_of_modules().items() if name in map(normal, owners)}
    return modules


def imported_modules(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).split(".")[0])
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_hashes(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text("utf-8")
    entries = re.split(r"\n(?=[a-z0-9])", re.sub(r"(?m)^\s*#.*\n", "", text).strip())
    without = [entry.splitlines()[0] for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)]
    assert without == []
    assert all("==" in entry.splitlines()[0] for entry in entries)


def test_the_locks_are_those_of_the_rooms_requirements() -> None:
    command = [sys.executable, ROOT / "tools" / "locks.py", "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_changelog_knows_this_version_or_what_comes_next() -> None:
    headings = re.findall(r"(?m)^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"))
    assert headings[0] in {"Unreleased", distribution("qmljob").version}


DOCUMENTS = [path.relative_to(ROOT).as_posix() for pattern in ("*.md", "docs/**/*.md") for path in ROOT.glob(pattern)]


@pytest.mark.parametrize("document", sorted(DOCUMENTS))
def test_a_link_in_a_document_leads_to_a_file(document: str) -> None:
    source = ROOT / document
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", source.read_text("utf-8"))
    missing = [link for link in links if not (source.parent / link).exists()]
    assert missing == []
