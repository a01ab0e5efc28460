"""The operator's log: one line an event, as JSON for machines or as text for people.

Every line that is written inside `job_context` carries the job and its attempt, whoever writes it. Libraries write to
the same log, below a limit that no `--log-level` lifts: at their most talkative they print requests with their bodies.
What looks like a token is struck out all the same.
"""

import json
import logging
import math
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, TextIO

from qmljob_api.names import KIND

_LIBRARIES = {
    # Its lines at INFO are several an event of each object; those at DEBUG hold patches and whole objects.
    "kopf": logging.WARNING,
    "kubernetes": logging.WARNING,
    # One line at ERROR each time a standby looks in vain; `leader` says the same, when it changes.
    "kubernetes.aio.leaderelection": logging.CRITICAL,
    "aiohttp": logging.WARNING,
    "aiohttp_retry": logging.WARNING,
    "asyncio": logging.WARNING,
}
_SECRETS = re.compile(
    r"(?i:\b(?P<scheme>bearer|basic)\s+)[\w.~+/=-]{8,}"  # an Authorization header's value
    r"|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"  # a JSON web token: a service account's
)
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_KOPF = {"k8s_ref", "k8s_skip", "settings"}

_context: ContextVar[Mapping[str, Any]] = ContextVar("log context", default={})  # noqa: B039  (nobody changes it)


class LogFormat(StrEnum):
    """How a line is written."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """What is written at all."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@contextmanager
def job_context(key: object, *, attempt: int | None = None) -> Iterator[None]:
    """Names the job (as `namespace/name`) and its attempt in every line that is written inside the block."""
    fields = {"job": str(key)} | ({} if attempt is None else {"attempt": attempt})
    token = _context.set(fields)
    try:
        yield
    finally:
        _context.reset(token)


def configure(log_format: LogFormat, level: LogLevel, *, stream: TextIO | None = None) -> None:
    """Sends everything that this process logs to `stream` (standard error by default), uncaught exceptions too."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, limit in _LIBRARIES.items():
        logging.getLogger(name).setLevel(max(limit, root.level))
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread


class JsonFormatter(logging.Formatter):
    """A line of JSON: time, level, logger, message; job and attempt where known; what `extra` adds; a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one line."""
        fields = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _struck_out(record.getMessage()),
        }
        fields |= {name: _plain(value) for name, value in _fields(record).items() if name not in fields}
        traceback = _traceback(self, record)
        if traceback:
            fields["traceback"] = traceback
        return json.dumps(fields)


class TextFormatter(logging.Formatter):
    """A line for people, and under it a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one line, or more with a traceback."""
        where = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        said = _struck_out(f"{record.getMessage()} [{where}]" if where else record.getMessage())
        # A message may quote what a user wrote: a line's break in it must not forge a line.
        said = said.replace("\r", "\\r").replace("\n", "\\n")
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {said}"
        return "\n".join(filter(None, [line, _traceback(self, record)]))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What a record says beside its message."""
    fields = dict(_context.get())
    reference = getattr(record, "k8s_ref", None)
    if not fields and isinstance(reference, Mapping) and reference.get("kind") == KIND:
        fields["job"] = f"{reference.get('namespace')}/{reference.get('name')}"
    return fields | {name: value for name, value in vars(record).items() if name not in _STANDARD | _KOPF}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
    parts += [record.stack_info] if record.stack_info else []
    return _struck_out("\n".join(parts))


def _struck_out(text: str) -> str:
    return _SECRETS.sub(lambda found: f"{found['scheme'] or ''} [struck out]".lstrip(), text)


def _plain(value: object) -> Any:
    """Returns what JSON can say: not NaN, which is a fair value of a loss."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case _:
            return _struck_out(str(value))


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
        return
    logging.getLogger("qmljob_operator").critical("uncaught %s", kind.__name__, exc_info=(kind, error, traceback))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None:
        _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)
