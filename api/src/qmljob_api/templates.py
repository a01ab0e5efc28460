"""What must hold of a pod template: the paths that builders read. The rest of it is Kubernetes' own to judge."""

import re
from collections.abc import Iterator, Sized
from typing import Any

from qmljob_api import names, types
from qmljob_api.messages import dns_label
from qmljob_api.tree import Issue, Location, kind_of, shown

_CONTAINER_NAME = re.compile(types.DNS_1123.removeprefix("^").removesuffix("$"))


def check_template(template: dict[str, Any], location: Location) -> Iterator[Issue]:
    """Yields what is wrong with a PodTemplateSpec at a location."""
    yield from _metadata(template.get("metadata"), (*location, "metadata"))
    here = (*location, "spec")
    spec = template.get("spec")
    if not isinstance(spec, dict):
        what = "is missing" if spec is None else f"is {kind_of(spec)}, not a mapping"
        yield Issue(here, what, "add a pod spec with at least one container")
        return
    policy = spec.get("restartPolicy")
    if policy not in (None, "Never"):
        yield Issue(
            (*here, "restartPolicy"),
            f"{shown(policy)} is not Never: a replica that restarts alone hangs the gang",
            "remove it; QMLJob restarts all replicas together",
        )
    yield from _mapping(spec, "securityContext", here)
    yield from _containers(spec, here)


def _metadata(metadata: Any, location: Location) -> Iterator[Issue]:
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        yield _not_a_mapping(metadata, location)
        return
    for key in ("labels", "annotations"):
        texts = metadata.get(key)
        if texts is None:
            continue
        if not isinstance(texts, dict):
            yield _not_a_mapping(texts, (*location, key))
            continue
        if key == "labels" and len(texts) > types.MAX_LABELS:
            yield _too_many(texts, types.MAX_LABELS, (*location, key))
        for name, value in texts.items():
            here = (*location, key, name)
            if not isinstance(value, str):
                yield Issue(here, f"is {kind_of(value)}, not text", "put it in quotes")
            if key == "labels" and name.startswith(f"{names.GROUP}/"):
                yield Issue(here, f"is a label that QMLJob sets itself ({names.GROUP}/…)", "remove it")


def _containers(spec: dict[str, Any], location: Location) -> Iterator[Issue]:
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        what = "is missing" if containers is None else "is an empty list" if containers == [] else "is not a list"
        yield Issue((*location, "containers"), what, "list at least one container")
    elif len(containers) > types.MAX_CONTAINERS:
        yield _too_many(containers, types.MAX_CONTAINERS, (*location, "containers"))
    seen: dict[str, Location] = {}
    for key in ("containers", "initContainers"):
        listed = spec.get(key)
        if key == "initContainers" and listed is not None and not isinstance(listed, list):
            yield Issue((*location, key), f"is {kind_of(listed)}, not a list", "begin each item with '- '")
        for index, container in enumerate(listed if isinstance(listed, list) else []):
            here = (*location, key, index)
            if not isinstance(container, dict):
                yield _not_a_mapping(container, here)
                continue
            yield from _container_name(container.get("name"), (*here, "name"), seen)
            yield from _container_fields(container, here)


def _container_name(name: Any, location: Location, seen: dict[str, Location]) -> Iterator[Issue]:
    if name is None or name == "":
        yield Issue(location, "is missing", "name the container, for example 'trainer'")
    elif not isinstance(name, str):
        yield Issue(location, f"{shown(name)} is {kind_of(name)}, not text", "put it in quotes")
    elif len(name) > names.NAME_LIMIT or not _CONTAINER_NAME.fullmatch(name):
        near = dns_label(name)
        hint = f"use lower-case letters, digits and '-'{f', for example {near!r}' if near else ''}"
        yield Issue(location, f"{shown(name)} is not a valid name of up to {names.NAME_LIMIT} characters", hint)
    elif name in seen:
        yield Issue(location, f"{shown(name)} is the name of another container too", "give each container its own")
    else:
        seen[name] = location


def _container_fields(container: dict[str, Any], location: Location) -> Iterator[Issue]:
    for key in ("command", "args"):
        yield from _texts(container.get(key), (*location, key))
    for key in ("env", "ports"):
        items = container.get(key)
        if items is None:
            continue
        if not isinstance(items, list):
            yield Issue((*location, key), f"is {kind_of(items)}, not a list", "begin each item with '- '")
            continue
        for index, item in enumerate(items):
            here = (*location, key, index)
            if not isinstance(item, dict):
                yield _not_a_mapping(item, here)
            elif key == "env" and not (isinstance(item.get("name"), str) and item["name"]):
                yield Issue((*here, "name"), "is missing", "name the environment variable")
            elif key == "env" and not isinstance(item.get("value"), str | None):
                value = item["value"]
                yield Issue((*here, "value"), f"{shown(value)} is {kind_of(value)}, not text", "put it in quotes")
    yield from _mapping(container, "securityContext", location)
    context = container.get("securityContext")
    if isinstance(context, dict):
        yield from _mapping(context, "capabilities", (*location, "securityContext"))
        capabilities = context.get("capabilities")
        added = capabilities.get("add") if isinstance(capabilities, dict) else None
        if added is not None and not isinstance(added, list):
            here = (*location, "securityContext", "capabilities", "add")
            yield Issue(here, f"is {kind_of(added)}, not a list", "begin each item with '- '")


def _texts(words: Any, location: Location) -> Iterator[Issue]:
    if words is None:
        return
    if not isinstance(words, list):
        yield Issue(location, f"is {kind_of(words)}, not a list", "write a list with an item for each word")
        return
    for index, word in enumerate(words):
        if not isinstance(word, str):
            yield Issue((*location, index), f"{shown(word)} is {kind_of(word)}, not text", "put it in quotes")


def _too_many(items: Sized, limit: int, location: Location) -> Issue:
    return Issue(location, f"has {len(items)} items, {limit} at most", f"remove {len(items) - limit} of them")


def _mapping(parent: dict[str, Any], key: str, location: Location) -> Iterator[Issue]:
    if parent.get(key) is not None and not isinstance(parent[key], dict):
        yield _not_a_mapping(parent[key], (*location, key))


def _not_a_mapping(value: Any, location: Location) -> Issue:
    return Issue(location, f"is {kind_of(value)}, not a mapping", "write 'key: value' lines below it")
