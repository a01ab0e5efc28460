"""Finds workloads, strategies and engines by name, among entry points of installed packages."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from qmljob_training.errors import ConfigurationError

WORKLOADS = "qmljob.workloads"
STRATEGIES = "qmljob.strategies"
ENGINES = "qmljob.engines"
_KINDS = {WORKLOADS: "workload", STRATEGIES: "strategy", ENGINES: "engine"}


def names(group: str) -> tuple[str, ...]:
    """Returns the registered names of an entry-point group, sorted."""
    return tuple(sorted({point.name for point in entry_points(group=group)}))


def check_known(group: str, name: str) -> None:
    """Raises ConfigurationError where nothing is registered under `name`; loads nothing."""
    if name not in names(group):
        raise ConfigurationError(f"--{_KINDS[group]} {name}: unknown; choose one of: {', '.join(names(group))}")


def load(group: str, name: str, protocol: type) -> Any:
    """Returns a new instance of the plugin `name`, checked against its protocol.

    Args:
        group: one of this module's group names.
        name: the entry point's name; what it points to is called without arguments.
        protocol: a runtime-checkable protocol that the instance must satisfy.

    Raises:
        ConfigurationError: no such name, two packages claim it, it can't be imported, or it lacks a member.
    """
    kind = _KINDS[group]
    points = {point.value: point for point in entry_points(group=group, name=name)}
    check_known(group, name)
    if len(points) > 1:
        claims = " and ".join(f"{_package(point)} ({value})" for value, point in sorted(points.items()))
        raise ConfigurationError(f"--{kind} {name}: claimed by {claims}; uninstall one of them")
    return _instance(kind, next(iter(points.values())), protocol)


def _instance(kind: str, point: EntryPoint, protocol: type) -> Any:
    try:
        factory: Callable[[], Any] = point.load()
        instance = factory()
    except ConfigurationError:  # it says itself what is wrong
        raise
    except Exception as error:  # whatever a stranger's package raises on import
        # One line: the first that says something.
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")
        cause = f"{type(error).__name__}: {reason}"
        raise ConfigurationError(
            f"--{kind} {point.name}: {_package(point)} can't be loaded ({cause}); repair or uninstall it"
        ) from error
    missing = sorted(member for member in _members(protocol) if not hasattr(instance, member))
    if missing:
        raise ConfigurationError(
            f"--{kind} {point.name}: {point.value} of {_package(point)} lacks {', '.join(missing)}; "
            f"see {protocol.__module__}.{protocol.__name__}"
        )
    return instance


def _members(protocol: type) -> set[str]:
    own = {name for name in vars(protocol) if not name.startswith("_")}
    return own | {name for name in getattr(protocol, "__annotations__", {}) if not name.startswith("_")}


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown package"
