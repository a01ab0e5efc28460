"""The API server's audit log: which requests reached it, from whom, and how they were answered."""

import json
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        {"level": "None", "users": ["system:apiserver"]},  # the server's requests to itself
        {"level": "Metadata"},
    ],
}
"""Both stages of a request are logged: its arrival before it is served, its end when it has been answered."""
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_ANSWER_SECONDS = 10.0
_LOOK_AGAIN_SECONDS = 0.005
_OPEN_ENDED = frozenset({"watch"})

Record = dict[str, Any]


class AuditLog:
    """Reads the log that an API server writes by `POLICY`, in blocking mode."""

    def __init__(self, path: Path) -> None:
        """`path` is the log; it need not exist yet."""
        self._path = path

    def mark(self) -> int:
        """Returns the present end of the log: what `since` takes."""
        return self._path.stat().st_size if self._path.exists() else 0

    def requests(self, user: str | None = None, since: int | None = None) -> list[Record]:
        """Returns a record for each request of a user, in the order of their arrival.

        Whoever has seen an answer finds its request here: the log has a request before it is served. Waits for the
        ends of those that are being answered, watches aside.

        Raises:
            TimeoutError: a request has not been answered in seconds.
        """
        again = threading.Event()
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            records = [each for each in _latest(self._lines(since or 0)) if user in {None, each["user"]["username"]}]
            unanswered = [each for each in records if _unanswered(each)]
            if not unanswered:
                return records
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer to {[describe(each) for each in unanswered]}")
            again.wait(_LOOK_AGAIN_SECONDS)

    def _lines(self, since: int) -> list[bytes]:
        with self._path.open("rb") as file:
            file.seek(max(since - 1, 0))
            if since:
                file.readline()  # what was being written when the mark was taken is older than it
            return [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]


def is_write(record: Record) -> bool:
    """Whether a request changes something."""
    return record["verb"] in WRITES


def is_forbidden(record: Record) -> bool:
    """Whether a request was refused because its user has no right to it, rather than by an admission of its content."""
    return (record.get("annotations") or {}).get("authorization.k8s.io/decision") == "forbid"


def describe(record: Record) -> str:
    """Returns a request as one reads it: `patch qmljobs/status default/qcnn 200`."""
    target = record.get("objectRef") or {}
    resource = "/".join(part for part in (target.get("resource"), target.get("subresource")) if part)
    place = "/".join(part for part in (target.get("namespace"), target.get("name")) if part)
    status = (record.get("responseStatus") or {}).get("code", "")
    return " ".join(str(part) for part in (record["verb"], resource or record["requestURI"], place, status) if part)


def _latest(lines: Iterable[bytes]) -> list[Record]:
    """Returns each request's latest stage, in the order of arrival."""
    arrived: dict[str, Record] = {}
    for line in lines:
        record: Record = json.loads(line)
        if record["stage"] == "RequestReceived" or record["auditID"] in arrived:
            arrived[record["auditID"]] = record
    return list(arrived.values())


def _unanswered(record: Record) -> bool:
    return record["stage"] == "RequestReceived" and record["verb"] not in _OPEN_ENDED
