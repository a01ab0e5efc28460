"""What a request to an API server is called: by what it does to which object, not by its place in a line.

    update:qmljobs/qcnn/status@2      the second time that the job's status is written
    create:pods/qcnn-worker-0@1       the first time that this pod is created
    dry-run:pods/worker@1             the first question whether a worker could be
    create:events/Starting@1          an event by its reason, since its name is a digest
    watch:pods@1, list:pods@2, get:pods/qcnn-worker-0/log@1

Requests that an operator sends side by side reach the server in any order, so a number would mean another request each
time. A name means the same one in each run.
"""

import json
from collections import Counter
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from qmljob_api import names

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PREFIX = {"api": 2, "apis": 3, "version": 1}
"""How many parts of a path come before `namespaces` or the kind."""


@dataclass(frozen=True, order=True)
class Call:
    """The n-th request of a name, counted from 1."""

    name: str
    occurrence: int = 1

    def __str__(self) -> str:
        """Returns `name@occurrence`."""
        return f"{self.name}@{self.occurrence}"

    @property
    def is_write(self) -> bool:
        """Whether it may change something; a dry run counts, since nobody knows before its end."""
        return not self.name.startswith(("get:", "list:", "watch:"))

    @property
    def is_watch(self) -> bool:
        """Whether its answer is a stream of events."""
        return self.name.startswith("watch:")


def parse_call(text: str) -> Call:
    """Returns the call that `str` wrote.

    Raises:
        ValueError: the text is no such call.
    """
    name, mark, number = text.rpartition("@")
    if not mark or ":" not in name or not number.isdigit() or int(number) < 1:
        raise ValueError(f"call={text}: write verb:kind/name@number, create:pods/qcnn-worker-0@1 for one")
    return Call(name, int(number))


class CallCounter:
    """Gives the requests of one client their names and occurrences."""

    def __init__(self) -> None:
        """No request was seen yet."""
        self._seen: Counter[str] = Counter()

    def next(self, method: str, target: str, body: bytes) -> Call:
        """Returns the call that a request is."""
        name = name_of(method, target, body)
        self._seen[name] += 1
        return Call(name, self._seen[name])


def name_of(method: str, target: str, body: bytes) -> str:
    """Returns the name of a request: its verb, and the kind, name and subresource of what it is about."""
    parts = urlsplit(target)
    query = parse_qs(parts.query)
    place = parts.path.strip("/").split("/")
    if len(place) <= _PREFIX.get(place[0], 0):
        return f"get:{parts.path}"  # what kinds there are
    place = place[_PREFIX.get(place[0], 0) :]
    if place[:1] == ["namespaces"] and len(place) > 2:
        place = place[2:]
    if method == "GET":
        watching = query.get("watch", ["false"])[0] in {"true", "1"}
        verb = "watch" if watching else "get" if len(place) != 1 else "list"
    else:
        verb = "dry-run" if "dryRun" in query else _VERBS.get(method, method.lower())
    if method == "POST" and len(place) == 1:
        place = [*place, _created(place[0], body)]
    return f"{verb}:{'/'.join(place)}"


def _created(kind: str, body: bytes) -> str:
    """Returns what a request that creates is about: an object's name is in its body only."""
    try:
        document = json.loads(body)
    except ValueError:
        return "?"
    metadata = document.get("metadata") or {}
    if kind == "events":
        return str(document.get("reason", "?"))
    role = (metadata.get("labels") or {}).get(names.LABEL_ROLE)
    return str(metadata.get("name") or role or metadata.get("generateName", "?"))
