"""How a case ended, in what must not depend on faults: times, uids, versions and events are left out."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from qmljob_api import names
from qmljob_api.reasons import Reason
from support.api_client import Object
from support.stories import Scene
from support.timeline import PATHS

_STATUS = frozenset({"startTime", "completionTime", "progress", "nextAttemptTime"})
_TIMES = frozenset({"time", "lastTransitionTime", "startTime", "uid"})
_BY_CHANCE = frozenset({"failed"})
"""Of replicaStatuses: a pod that is deleted ends with SIGTERM's code a moment before it goes, and who sees that counts
it."""
_KINDS = tuple(kind for kind in PATHS if kind not in {names.PLURAL, "events"})

End = Mapping[str, Any]


def end_of(scene: Scene) -> End:
    """Returns what is there at the end: the job's spec and status, and each object by kind and name."""
    job = scene.job()
    end: dict[str, Any] = {}
    if job is not None:
        status = {name: part for name, part in (job.get("status") or {}).items() if name not in _STATUS}
        # What kept a job for a while, and does no longer, is no part of its end.
        held = [each for each in status.get("conditions") or () if each["reason"] != Reason.RESOLVED]
        counts = {role: _without(count, _BY_CHANCE) for role, count in status.get("replicaStatuses", {}).items()}
        end["status"] = _timeless({**status, "conditions": held, "replicaStatuses": counts})
        end["spec"] = job["spec"]
    owner = job["metadata"]["uid"] if job is not None else ""
    for kind in _KINDS:
        for item in scene.present(kind):
            end[f"{kind}/{item['metadata']['name']}"] = _object(item, owner)
    return end


def differences(wanted: End, found: End) -> list[str]:
    """Returns a sentence for each part in which two ends differ."""
    return [
        f"{path}: expected {json.dumps(one)}, is {json.dumps(other)}" for path, one, other in _differ("", wanted, found)
    ]


def _object(item: Object, owner: str) -> Object:
    metadata, status = item["metadata"], item.get("status") or {}
    owners = {reference["uid"] for reference in metadata.get("ownerReferences") or ()}
    return {
        "labels": {key: value for key, value in (metadata.get("labels") or {}).items() if not key.endswith("uid")},
        "owned by the job": owner in owners,
        "deleting": "deletionTimestamp" in metadata,
        "phase": status.get("phase"),
        "conditions": sorted(each["type"] for each in status.get("conditions") or () if each["status"] == "True"),
    }


def _without(document: Object, keys: frozenset[str]) -> Object:
    return {key: part for key, part in document.items() if key not in keys}


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        # A disruption that nobody saw while it happened is told by what it left.
        words = {"message"} if value.get("reason") == Reason.DISRUPTED else set()
        return {key: _timeless(part) for key, part in value.items() if key not in _TIMES | words}
    return [_timeless(part) for part in value] if isinstance(value, list) else value


def _differ(path: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            yield from _differ(f"{path}.{key}" if path else key, one.get(key), other.get(key))
    elif one != other:
        yield path, one, other
