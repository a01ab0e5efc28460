"""What happened in a namespace, in the order in which it happened: the watches of several kinds in one line.

All objects of a control plane lie in one database, whose revisions are their resourceVersions: so what happened to a
job, its pods and its Services has an order.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from qmljob_api import names
from support.api_client import LIMIT_SECONDS, Event, Object, Watch
from support.control_plane import ControlPlane

PATHS: Mapping[str, str] = MappingProxyType(
    {
        names.PLURAL: f"/apis/{names.GROUP}/{names.VERSION}/namespaces/{{}}/{names.PLURAL}",
        "pods": "/api/v1/namespaces/{}/pods",
        "services": "/api/v1/namespaces/{}/services",
        "networkpolicies": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
        "jobs": "/apis/batch/v1/namespaces/{}/jobs",
        "events": "/api/v1/namespaces/{}/events",
    }
)
"""The kinds that are followed, by their plurals."""


@dataclass(frozen=True)
class Happening:
    """One change of one object. `type` is ADDED, MODIFIED or DELETED."""

    revision: int
    kind: str
    type: str
    object: Object

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.object["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The object's uid."""
        return str(self.object["metadata"]["uid"])


class Timeline:
    """All that happened since the start, and what is there now."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._happenings: list[Happening] = []
        self._present: dict[str, dict[str, Object]] = {kind: {} for kind in PATHS}
        self._changed = threading.Condition()

    def follow(self, kind: str, watch: Watch) -> None:
        """Reads a watch to its end."""
        for event in watch:
            self.note(kind, event)

    def note(self, kind: str, event: Event) -> None:
        """Takes one event of a watch."""
        happening = Happening(int(event.object["metadata"]["resourceVersion"]), kind, event.type, event.object)
        with self._changed:
            self._happenings.append(happening)
            if event.type == "DELETED":
                # A name may have a new bearer already, where the watches of two kinds are read side by side.
                self._present[kind].pop(happening.uid, None)
            else:
                self._present[kind][happening.uid] = event.object
            self._changed.notify_all()

    def happenings(self) -> list[Happening]:
        """Returns everything so far, in its order."""
        with self._changed:
            return sorted(self._happenings, key=lambda each: each.revision)

    def present(self, kind: str) -> list[Object]:
        """Returns the objects of a kind that are there, as far as the watch tells."""
        with self._changed:
            return list(self._present[kind].values())

    def until(self, holds: Callable[[], bool], timeout: float = LIMIT_SECONDS) -> bool:
        """Waits until something holds that depends on what is present; returns whether it came."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not holds():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return True


@contextmanager
def running_timeline(plane: ControlPlane, namespace: str) -> Iterator[Timeline]:
    """Follows a namespace until the block ends."""
    timeline = Timeline()
    with ExitStack() as stack:
        for kind, path in PATHS.items():
            watch = stack.enter_context(plane.watch(path.format(namespace)))
            thread = threading.Thread(target=timeline.follow, args=(kind, watch), name=f"timeline {kind}", daemon=True)
            thread.start()
        yield timeline


def condition(job: Object, kind: str) -> Mapping[str, Any]:
    """Returns a condition of a job, or an empty mapping."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})
