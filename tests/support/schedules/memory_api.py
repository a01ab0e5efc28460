"""An API server in a dictionary, with what the operator's promises rest on: versions, uids, conflicts, and a history.

It refuses what the real one refuses: a name that is taken, a status made from an old version, a deletion of another
object than was meant, an attempt that goes down, an end that flips. What it lets through is in `history`, in order.
"""

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from qmljob_api import names
from qmljob_api.conditions import ConditionType
from qmljob_api.status import parse_status
from qmljob_api.timestamps import format_time
from support import pod_documents as pods
from support.api_client import Object
from support.injector.exchange import status_document
from support.timeline import Happening

KINDS: Mapping[str, str] = {
    names.PLURAL: names.KIND,
    "pods": "Pod",
    "services": "Service",
    "jobs": "Job",
    "networkpolicies": "NetworkPolicy",
}
NAMESPACE = "default"
_FINAL = (ConditionType.SUCCEEDED, ConditionType.FAILED)

Answer = tuple[int, Any]


class MemoryApi:
    """The server. `clock` gives seconds since the epoch; `on_change` is called after each change."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Nothing is there yet."""
        self.history: list[Happening] = []
        self.events: list[Object] = []
        self.logs: dict[str, str] = {}
        self.nodes: dict[str, Object] = {}
        self.version = 0
        self.on_change: Callable[[], None] = lambda: None
        self._clock = clock
        self._objects: dict[tuple[str, str], Object] = {}

    def get(self, kind: str, name: str) -> Object | None:
        """Returns an object, or None."""
        return self._objects.get((kind, name))

    def all(self, kind: str) -> list[Object]:
        """Returns all objects of a kind."""
        return [each for (known, _), each in sorted(self._objects.items()) if known == kind]

    def put(self, kind: str, item: Object) -> Object:
        """Keeps an object in its next version."""
        key = (kind, item["metadata"]["name"])
        change = "MODIFIED" if key in self._objects else "ADDED"
        self.version += 1
        kept = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        self._objects[key] = kept
        self._tell(kind, change, kept)
        return kept

    def remove(self, kind: str, name: str) -> None:
        """Takes an object away, and what it owned."""
        item = self._objects.pop((kind, name))
        self.version += 1
        gone = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        self._tell(kind, "DELETED", gone)
        for other, known in list(self._objects):
            if item["metadata"]["uid"] in _owners(self._objects[other, known]):
                self.delete(other, known)

    def delete(self, kind: str, name: str, *, grace: int | None = None) -> Object:
        """Deletes an object as the server does it: a pod on a node stays until its kubelet lets it go."""
        item = self._objects[kind, name]
        left = pods.deleting(item, at=self._clock(), grace_seconds=grace) if kind == "pods" else None
        if left is None:
            self.remove(kind, name)
            return item
        return self.put(kind, left) if left != item else item

    def serve(self, method: str, url: str, body: Any) -> Answer:
        """Returns the answer to a request."""
        parts = urlsplit(url)
        place = parts.path.strip("/").split("/")
        if "namespaces" in place:
            kind, *rest = place[place.index("namespaces") + 2 :]
            return self._serve(method, kind, rest, body, dry_run="dryRun" in parse_qs(parts.query))
        if place[-2:-1] == ["nodes"]:
            node = self.nodes.get(place[-1])
            return (200, node) if node is not None else _refuse(404)
        return 200, {}

    def _serve(self, method: str, kind: str, rest: list[str], body: Any, *, dry_run: bool) -> Answer:
        if kind == "events":
            self.events.append(body)
            return 201, body
        if not rest:
            return self._create(kind, body, dry_run=dry_run) if method == "POST" else self._list(kind)
        item = self._objects.get((kind, rest[0]))
        if item is None:
            return _refuse(404)
        if method == "GET":
            return 200, self.logs.get(rest[0], "") if rest[1:] == ["log"] else item
        return {"PUT": self._put_status, "PATCH": self._patch, "DELETE": self._delete}[method](kind, item, body)

    def _list(self, kind: str) -> Answer:
        listed = {"resourceVersion": str(self.version)}
        return 200, {"apiVersion": "v1", "kind": f"{KINDS[kind]}List", "metadata": listed, "items": self.all(kind)}

    def _create(self, kind: str, body: Object, *, dry_run: bool) -> Answer:
        if dry_run:
            return 201, body
        name = body["metadata"]["name"]
        if (kind, name) in self._objects:
            return _refuse(409)
        uid = f"{kind}-{self.version + 1}"
        if kind == "pods":
            return 201, self.put(kind, pods.created(body, uid=uid, at=self._clock()))
        metadata = {**body["metadata"], "uid": uid, "creationTimestamp": format_time(self._clock()), "generation": 1}
        return 201, self.put(kind, {**copy.deepcopy(body), "metadata": metadata})

    def _put_status(self, kind: str, item: Object, body: Object) -> Answer:
        if body["metadata"].get("resourceVersion") != item["metadata"]["resourceVersion"]:
            return _refuse(409)
        before, after = parse_status(item.get("status")), parse_status(body["status"])
        down = before.attempt is not None and (after.attempt is None or after.attempt < before.attempt)
        if down or any(before.holds(final) and not after.holds(final) for final in _FINAL):
            return _refuse(422)
        return 200, self.put(kind, {**item, "status": copy.deepcopy(body["status"])})

    def _patch(self, kind: str, item: Object, body: Object) -> Answer:
        metadata = body.get("metadata") or {}
        if any(metadata.get(key, item["metadata"].get(key)) != item["metadata"].get(key) for key in _GUARDS):
            return _refuse(409)
        labels = {**(item["metadata"].get("labels") or {}), **(metadata.get("labels") or {})}
        changed = {**item, "metadata": {**item["metadata"], "labels": labels}}
        return 200, self.put(kind, {**changed, "spec": {**item["spec"], **(body.get("spec") or {})}})

    def _delete(self, kind: str, item: Object, body: Object) -> Answer:
        if (body.get("preconditions") or {}).get("uid", item["metadata"]["uid"]) != item["metadata"]["uid"]:
            return _refuse(409)
        return 200, self.delete(kind, item["metadata"]["name"], grace=body.get("gracePeriodSeconds"))

    def _tell(self, kind: str, change: str, item: Object) -> None:
        self.history.append(Happening(self.version, kind, change, item))
        self.on_change()


_GUARDS = ("uid", "resourceVersion")


def encoded(answer: Answer) -> tuple[int, bytes]:
    """Returns an answer as bytes: nobody gets hold of the server's own objects."""
    status, document = answer
    return status, document.encode() if isinstance(document, str) else json.dumps(document).encode()


def _refuse(status: int) -> Answer:
    known = status_document(409 if status in (404, 422) else status)
    return status, {**known, "code": status, "message": f"refused with {status}"}


def _owners(item: Object) -> set[str]:
    return {each["uid"] for each in item["metadata"].get("ownerReferences") or ()}
