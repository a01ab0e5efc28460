"""The rules that a job's fields obey together. They read the document, not the types: a wrong field hides no other."""

from collections.abc import Callable, Iterator
from typing import Any

from qmljob_api import names
from qmljob_api.environment import port_variable
from qmljob_api.exitcodes import ExitCode
from qmljob_api.templates import check_template
from qmljob_api.tree import Issue, Location, shown
from qmljob_api.types import MAX_REPLICAS, Role

_SPECS: Location = ("spec", "replicaSpecs")


def check_rules(document: dict[str, Any]) -> Iterator[Issue]:
    """Yields each rule that a document (plain JSON values) breaks. What is of the wrong type is left to the types."""
    for rule in (_roles, _replicas, _ports, _derived_name, _exit_codes, _templates):
        yield from rule(document)


def _at(document: Any, *location: str | int) -> Any:
    """Returns the value at a location, or None where the document has none."""
    for part in location:
        if isinstance(part, str):
            document = document.get(part) if isinstance(document, dict) else None
        else:
            document = document[part] if isinstance(document, list) and part < len(document) else None
    return document


def _counts(document: dict[str, Any]) -> dict[str, int]:
    """Returns the number of replicas of each role that is well enough formed to have one."""
    counts = {}
    for role in Role:
        spec = _at(document, *_SPECS, role.value)
        replicas = spec.get("replicas", 1) if isinstance(spec, dict) else None
        if type(replicas) is int and replicas >= 1:
            counts[role.value] = replicas
    return counts


def _roles(document: dict[str, Any]) -> Iterator[Issue]:
    specs = _at(document, *_SPECS)
    if isinstance(specs, dict) and not {Role.CHIEF.value, Role.WORKER.value} & specs.keys():
        yield Issue(_SPECS, "has neither a worker nor a chief", "add 'worker' with 'replicas' and a 'template'")


def _replicas(document: dict[str, Any]) -> Iterator[Issue]:
    counts = _counts(document)
    for role in (Role.CHIEF, Role.EVALUATOR):
        count = counts.get(role.value, 1)
        if count > 1:
            hint = "set it to 1, and give the others the role worker" if role is Role.CHIEF else "set it to 1"
            yield Issue((*_SPECS, role.value, "replicas"), f"{count} is more than the one {role} a job may have", hint)
    total = sum(counts.values())
    if total > MAX_REPLICAS and max(counts.values()) <= MAX_REPLICAS:
        yield Issue(_SPECS, f"asks for {total} replicas, {MAX_REPLICAS} at most", f"remove {total - MAX_REPLICAS}")


def _ports(document: dict[str, Any]) -> Iterator[Issue]:
    ports = _at(document, "spec", "ports")
    rendezvous = _at(document, "spec", "port")
    rendezvous = names.DEFAULT_PORT if rendezvous is None else rendezvous
    seen_names: dict[str, int] = {}
    seen_numbers: dict[int, int] = {}
    for index, port in enumerate(ports if isinstance(ports, list) else []):
        here: Location = ("spec", "ports", index)
        name, number = _at(port, "name"), _at(port, "port")
        if isinstance(name, str) and name:
            yield from _port_name(name, (*here, "name"), index, seen_names)
        if type(number) is not int:
            continue
        if number == rendezvous:
            yield Issue((*here, "port"), f"{number} is the rendezvous (spec.port) already", "choose another number")
        elif number in seen_numbers:
            message = f"{number} is the number of spec.ports[{seen_numbers[number]}] too"
            yield Issue((*here, "port"), message, "choose another number")
        seen_numbers.setdefault(number, index)


def _port_name(name: str, location: Location, index: int, seen: dict[str, int]) -> Iterator[Issue]:
    # Compared by the variable that a container gets, since that is where two ports would hide each other.
    variable = port_variable(name)
    if variable == port_variable(names.RENDEZVOUS_PORT_NAME):
        yield Issue(location, f"{shown(name)} is the name of spec.port", "choose another name")
    elif variable in seen:
        message = f"{shown(name)} is the name of spec.ports[{seen[variable]}] too (both would be {variable})"
        yield Issue(location, message, "choose another name")
    elif not any("a" <= character <= "z" for character in name.lower()):
        yield Issue(location, f"{shown(name)} has no letter", "add one, for example 'profiler'")
    seen.setdefault(variable, index)


def _derived_name(document: dict[str, Any]) -> Iterator[Issue]:
    name = _at(document, "metadata", "name")
    if not isinstance(name, str):
        return
    inference = _at(document, "spec", "inference") is not None
    longest = names.longest_derived_name(name, _counts(document), inference=inference)
    excess = len(longest) - names.NAME_LIMIT
    if excess > 0:
        message = f"makes the name {shown(longest)} of {len(longest)} characters, {names.NAME_LIMIT} at most"
        yield Issue(("metadata", "name"), message, f"make it shorter by {excess} character{'s'[: excess > 1]}")


def _exit_codes(document: dict[str, Any]) -> Iterator[Issue]:
    rules = _at(document, "spec", "failurePolicy", "rules")
    for number, rule in enumerate(rules if isinstance(rules, list) else []):
        values = _at(rule, "onExitCodes", "values")
        here: Location = ("spec", "failurePolicy", "rules", number, "onExitCodes", "values")
        seen: set[int] = set()
        for index, value in enumerate(values if isinstance(values, list) else []):
            if type(value) is not int:
                continue
            problem = _exit_code(value, repeated=value in seen)
            if problem is not None:
                yield Issue((*here, index), *problem)
            seen.add(value)


def _exit_code(value: int, *, repeated: bool) -> tuple[str, str] | None:
    checks: tuple[tuple[Callable[[], bool], str, str], ...] = (
        (lambda: value == ExitCode.SUCCESS, "0 is success, not a failure", "remove it"),
        (lambda: not 1 <= value <= 255, f"{shown(value)} is not an exit code", "use a number from 1 to 255"),
        (
            lambda: value == ExitCode.LOST_PEER,
            f"{value} (lost peer) is never the cause of a failure, so that no rule is asked about it",
            "remove it",
        ),
        (lambda: repeated, f"{value} is listed twice", "remove one of them"),
    )
    return next(((message, hint) for holds, message, hint in checks if holds()), None)


def _templates(document: dict[str, Any]) -> Iterator[Issue]:
    places: list[Location] = [(*_SPECS, role.value, "template") for role in Role]
    for location in [*places, ("spec", "inference", "template")]:
        template = _at(document, *location)
        if isinstance(template, dict):
            yield from check_template(template, location)
