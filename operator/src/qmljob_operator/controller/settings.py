"""How the operator is started: its flags."""

import argparse
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qmljob_api import names
from qmljob_operator.controller.logs import LogFormat, LogLevel

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's settings.

    Attributes:
        namespaces: those whose jobs it runs; empty: all.
        workers: how many passes may run side by side.
        http_port: of /metrics, /healthz and /readyz; 0: any free one, which is logged.
        lease_namespace: where its Lease lies; None: it leads without one.
        log_format: how a line of the log is written.
        log_level: the least level that is logged.
    """

    namespaces: tuple[str, ...]
    workers: int
    http_port: int
    lease_namespace: str | None
    log_format: LogFormat
    log_level: LogLevel


def parse_settings(arguments: Sequence[str]) -> Settings:
    """Returns the settings that flags stand for. Ends the process with one line and code 2 where a flag is wrong."""
    parser = argparse.ArgumentParser(prog="qmljob_operator", description="Runs QMLJobs on a Kubernetes cluster.")
    parser.add_argument(
        "--namespaces", type=_namespaces, default=(), metavar="A,B", help="namespaces whose jobs are run (default: all)"
    )
    parser.add_argument("--workers", type=_between(1, 64), default=8, help="passes that run side by side (default: 8)")
    parser.add_argument(
        "--http-port", type=_between(0, 65535), default=8080, help="of /metrics, /healthz, /readyz (default: 8080)"
    )
    parser.add_argument("--lease-namespace", type=_one_namespace, help="where the Lease lies (default: the pod's own)")
    parser.add_argument(
        "--no-leader-election", action="store_true", help="lead without a Lease: for the only operator of a cluster"
    )
    parser.add_argument("--log-format", choices=tuple(LogFormat), default=LogFormat.JSON.value, help="(default: json)")
    parser.add_argument("--log-level", choices=tuple(LogLevel), default=LogLevel.INFO.value)
    given = parser.parse_args(arguments)
    lease_namespace = None
    if not given.no_leader_election:
        lease_namespace = given.lease_namespace or _own_namespace()
        if lease_namespace is None:
            parser.error(
                "outside of a pod the Lease's namespace is not known: give --lease-namespace, or --no-leader-election"
            )
    return Settings(
        namespaces=given.namespaces,
        workers=given.workers,
        http_port=given.http_port,
        lease_namespace=lease_namespace,
        log_format=LogFormat(given.log_format),
        log_level=LogLevel(given.log_level),
    )


def _own_namespace() -> str | None:
    named = os.environ.get("POD_NAMESPACE")
    if named:
        return named
    return _NAMESPACE_FILE.read_text("utf-8").strip() if _NAMESPACE_FILE.exists() else None


def _namespaces(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_one_namespace(name.strip()) for name in text.split(",") if name.strip()))


def _one_namespace(name: str) -> str:
    if len(name) > names.NAME_LIMIT or not _NAMESPACE.fullmatch(name):
        raise argparse.ArgumentTypeError(f"{name!r} is not the name of a namespace; give names like team-a,team-b")
    return name


def _between(least: int, most: int) -> "Callable[[str], int]":
    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return number
