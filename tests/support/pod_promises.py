"""Promises about pods, read from what happened (see `support.promises`)."""

import json
from collections.abc import Collection, Iterator, Sequence

from qmljob_api import environment, names
from support.api_client import Object
from support.timeline import Happening


def attempts_do_not_overlap(happenings: Sequence[Happening]) -> Iterator[str]:
    """No pod of an attempt is created while one of another attempt exists."""
    alive: dict[str, tuple[str, int]] = {}
    for each in happenings:
        attempt = attempt_of(each.object) if each.kind == "pods" else None
        if attempt is None:
            continue
        owner = owner_of(each.object)
        if each.type == "DELETED":
            alive.pop(each.uid, None)
        elif each.type == "ADDED":
            others = sorted({other for whose, other in alive.values() if whose == owner and other != attempt})
            if others:
                yield f"{each.name} of attempt {attempt} was created at revision {each.revision} beside {others}"
            alive[each.uid] = (owner, attempt)


def one_pod_a_replica(happenings: Sequence[Happening]) -> Iterator[str]:
    """There are never two pods of one role and index of a job."""
    alive: dict[str, tuple[str, str, str]] = {}
    for each in happenings:
        if each.kind != "pods" or attempt_of(each.object) is None:
            continue
        labels = each.object["metadata"]["labels"]
        place = (owner_of(each.object), labels.get(names.LABEL_ROLE, ""), labels.get(names.LABEL_INDEX, ""))
        if each.type == "DELETED":
            alive.pop(each.uid, None)
        elif each.type == "ADDED":
            if place in alive.values():
                yield f"{each.name} was created at revision {each.revision} as another {place[1]} {place[2]}"
            alive[each.uid] = place


def an_attempt_has_one_rendezvous(happenings: Sequence[Happening]) -> Iterator[str]:
    """All pods of an attempt have the same peers in TF_CONFIG, and each of them its own task."""
    peers: dict[tuple[str, int], Object] = {}
    for each in happenings:
        attempt = created(each)
        if attempt is None:
            continue
        config, labels = _tf_config(each.object), each.object["metadata"]["labels"]
        task = {"type": labels[names.LABEL_ROLE], "index": int(labels[names.LABEL_INDEX])}
        known = peers.setdefault((owner_of(each.object), attempt), config.get("cluster", {}))
        if config.get("cluster") != known or config.get("task") != task:
            yield f"{each.name} of attempt {attempt} at revision {each.revision}: {config}, its peers have {known}"


def touched(happenings: Sequence[Happening], uids: Collection[str]) -> list[str]:
    """Returns a sentence for each change of an object that nobody may touch, after the last of these was made."""
    known = [each for each in happenings if each.uid in uids]
    made = max((each.revision for each in known if each.type == "ADDED"), default=0)
    return [
        f"Nothing of another owner is touched. {each.kind} {each.name}: {each.type} at revision {each.revision}"
        for each in known
        if each.revision > made
    ]


def created(happening: Happening) -> int | None:
    """Returns the attempt of a pod that a happening creates, or None for any other happening."""
    made = happening.kind == "pods" and happening.type == "ADDED"
    return attempt_of(happening.object) if made else None


def attempt_of(pod: Object) -> int | None:
    """Returns the attempt of a pod, None where it is no replica's."""
    text = (pod["metadata"].get("labels") or {}).get(names.LABEL_ATTEMPT)
    return int(text) if text is not None else None


def owner_of(item: Object) -> str:
    """Returns the uid of the job that owns an object."""
    references = item["metadata"].get("ownerReferences") or []
    return next((str(each["uid"]) for each in references if each["kind"] == names.KIND), "")


def _tf_config(pod: Object) -> Object:
    for container in pod["spec"]["containers"]:
        for variable in container.get("env") or ():
            if variable["name"] == environment.TF_CONFIG:
                config: Object = json.loads(variable["value"])
                return config
    return {}
