"""What the watches have shown: the objects that jobs are made of, found by job.

A pass reads from here, never from the API server: the preconditions of its writes make staleness safe. The answer to a
write is put here too, so that the next pass sees it even where the watch is slow. An object only ever gets newer: what
comes late or twice changes nothing.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from qmljob_api import names
from qmljob_operator.controller.workqueue import JobKey
from qmljob_operator.kinds import Kind
from qmljob_operator.observation import Document

_TOMBSTONES = 4096
"""Deleted objects that are remembered, so that a late answer does not bring one back."""


class Cache:
    """The objects of one kind, by namespace and name."""

    def __init__(self, kind: Kind) -> None:
        """Makes an empty cache."""
        self.kind = kind
        self._objects: dict[tuple[str, str], Document] = {}
        self._of_job: dict[JobKey, dict[str, Document]] = {}
        self._gone: OrderedDict[str, float] = OrderedDict()  # uid -> the version as of which it is gone

    def __len__(self) -> int:
        """Returns the number of objects."""
        return len(self._objects)

    def __iter__(self) -> Iterator[Document]:
        """Yields all objects."""
        return iter(tuple(self._objects.values()))

    def get(self, namespace: str, name: str) -> Document | None:
        """Returns the object of a name, or None."""
        return self._objects.get((namespace, name))

    def knows(self, document: Document) -> bool:
        """Returns whether the cache has the object in this version or a newer one, or saw its end."""
        metadata = document["metadata"]
        known = self._objects.get((metadata["namespace"], metadata["name"]))
        return self._is_gone(document) or (known is not None and version_of(known) >= version_of(document))

    def of_job(self, key: JobKey) -> tuple[Document, ...]:
        """Returns the objects with the label of a job, whoever owns them."""
        return tuple(self._of_job.get(key, {}).values())

    def put(self, document: Document) -> set[JobKey]:
        """Keeps an object, unless it is older than what is known; returns the keys of the jobs for which it is news.

        There are two where somebody moved an object from one job to another, by its label.
        """
        metadata = document["metadata"]
        place = (metadata["namespace"], metadata["name"])
        known = self._objects.get(place)
        if self._is_gone(document) or (known is not None and version_of(known) >= version_of(document)):
            return set()
        keys = {self.key_of(document)}
        if known is not None:
            self._forget(place, known)
            keys.add(self.key_of(known))
        slim = _slim(document)
        self._objects[place] = slim
        key = self.key_of(slim)
        if key is not None:
            self._of_job.setdefault(key, {})[metadata["name"]] = slim
        return {key for key in keys if key is not None}

    def revive(self, document: Document) -> set[JobKey]:
        """Keeps an object that a request has just shown to be there.

        A watch with a label's selector calls an object deleted that lost the label.
        """
        self._gone.pop(document["metadata"]["uid"], None)
        return self.put(document)

    def remove(self, namespace: str, name: str, uid: str, version: float = math.inf) -> set[JobKey]:
        """Forgets the object with this uid, as of a version; returns the keys of the jobs for which that is news."""
        self._gone[uid] = max(version, self._gone.get(uid, 0))
        while len(self._gone) > _TOMBSTONES:
            self._gone.popitem(last=False)
        known = self._objects.get((namespace, name))
        if known is None or known["metadata"]["uid"] != uid or version_of(known) > version:
            return set()
        self._forget((namespace, name), known)
        key = self.key_of(known)
        return {key} if key is not None else set()

    def key_of(self, document: Document) -> JobKey | None:
        """Returns the key of the job that an object belongs to by its label, or is."""
        metadata = document["metadata"]
        if self.kind is Kind.QMLJOB:
            return JobKey(metadata["namespace"], metadata["name"])
        name = (metadata.get("labels") or {}).get(names.LABEL_JOB)
        return JobKey(metadata["namespace"], name) if name else None

    def replace(self, documents: Iterable[Document], version: int, namespace: str | None) -> set[JobKey]:
        """Takes over a full list of the objects in a namespace (None: in all), as of a version.

        Returns the keys of the jobs for which there was news: objects that are newer than what was known, or gone. What
        is known to be newer than the list stays.
        """
        listed = {document["metadata"]["uid"]: document for document in documents}
        news = {key for document in listed.values() for key in self.put(document)}
        for place, known in tuple(self._objects.items()):
            uid = known["metadata"]["uid"]
            if uid not in listed and namespace in (None, place[0]) and version_of(known) <= version:
                news |= self.remove(*place, uid, version)
        return news

    def _is_gone(self, document: Document) -> bool:
        return version_of(document) <= self._gone.get(document["metadata"]["uid"], -1)

    def _forget(self, place: tuple[str, str], document: Document) -> None:
        del self._objects[place]
        key = self.key_of(document)
        if key is not None and key in self._of_job:
            self._of_job[key].pop(place[1], None)
            if not self._of_job[key]:
                del self._of_job[key]


class Caches:
    """One cache for each kind that is watched."""

    def __init__(self) -> None:
        """Makes empty caches."""
        self._caches = {kind: Cache(kind) for kind in Kind}

    def __getitem__(self, kind: Kind) -> Cache:
        """Returns the cache of a kind."""
        return self._caches[kind]

    def apply(self, kind: Kind, change: str | None, document: Document) -> set[JobKey]:
        """Takes over an event of a watch; returns the keys of the jobs for which it is news."""
        metadata = document["metadata"]
        if change == "DELETED":
            version = version_of(document)
            return self[kind].remove(metadata["namespace"], metadata["name"], metadata["uid"], version)
        return self[kind].put(document)

    def sizes(self) -> dict[str, int]:
        """Returns how many objects of each kind are known."""
        return {kind.value: len(cache) for kind, cache in self._caches.items()}


def version_of(document: Document) -> int:
    """Returns the resourceVersion of an object, or of a list."""
    # Versions are said to be opaque; that they are numbers that grow is what every API server does (and what Kubernetes
    # promises from 1.35 on).
    text = str(document["metadata"].get("resourceVersion", "0"))
    return int(text) if text.isascii() and text.isdigit() else 0


def _slim(document: Document) -> dict[str, Any]:
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return {**document, "metadata": metadata}
