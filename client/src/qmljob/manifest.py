"""Reads a manifest from a file that nobody has looked at yet.

The file is judged before anything is built from it: size, encoding, syntax, the number of documents, and how large it
becomes once its aliases are followed. Only then are Python objects made, and only those that JSON has too.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from qmljob_api.parse import Mode, parse_job
from qmljob_api.types import QMLJob

SIZE_LIMIT = 1_000_000
"""Bytes of a manifest. etcd refuses objects above 1.5 MB, so a larger one could not be applied either."""

NODE_LIMIT = 20_000
"""Scalars, lists and maps of a manifest once its aliases are followed."""

DEPTH_LIMIT = 64
"""Levels of a manifest; the deepest field of a pod template lies at about 20."""

_JSON_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map"))
_MERGE = "tag:yaml.org,2002:merge"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class ManifestError(Exception):
    """The manifest can't be used. `problems` holds one line for each thing that is wrong."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class _Loader(yaml.SafeLoader):
    """SafeLoader without timestamps: `2026-01-01` stays the text that it is in JSON."""

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        """Refuses deep nesting by brackets here: the scanner's own time grows with the square of it."""
        if self.flow_level >= DEPTH_LIMIT:
            raise _TooDeepError(problem_mark=self.get_mark())
        super().fetch_flow_collection_start(token)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        r"""Joins surrogates: JSON writes a character beyond 16 bits as two escapes (`"\ud83d\ude00"`), and is YAML."""
        text = str(super().construct_scalar(node))
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            problem = "an escape is half of a surrogate pair"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None


class _TooDeepError(yaml.MarkedYAMLError):
    """Brackets are nested too deeply."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_job(path: Path, *, replicas: int | None = None, namespace: str | None = None) -> QMLJob:
    """Returns the job that a manifest describes.

    `replicas` and `namespace` replace what the manifest says, before it is parsed, so that the same rules judge them.

    Raises:
        ManifestError: with every problem of the manifest, each with its field path and a hint.
    """
    document = read_document(path)
    result = parse_job(_with_overrides(document, replicas, namespace), Mode.STRICT)
    if result.job is None or result.errors:
        raise ManifestError(*(f"{path}: {error}" for error in result.errors))
    if replicas is not None and result.job.spec.replica_specs.worker is None:
        raise ManifestError(f"{path}: --replicas: the job has no worker role; leave the flag out")
    return result.job


def read_document(path: Path) -> object:
    """Returns the one YAML document of a file, made of dicts with text keys, lists, and JSON's scalars.

    Raises:
        ManifestError: the file is missing, unreadable, too large, not UTF-8, not YAML, empty, of several documents,
            expands to too many nodes, or holds what JSON can't.
    """
    text = _read_text(path)
    try:
        _check_events(path, text)
        loader = _Loader(text)
        try:
            root = _first_document(loader)
            _check_nodes(path, root)
            document: object = loader.construct_document(root)
        finally:
            loader.dispose()
    except _TooDeepError as error:
        raise ManifestError(_too_deep(path, error.problem_mark)) from None
    except yaml.MarkedYAMLError as error:
        raise ManifestError(f"{path}: {_where(error.problem_mark)}not YAML: {_sentence(error)}") from None
    except ValueError:
        raise ManifestError(f"{path}: a number has thousands of digits; quote it if it is meant as text") from None
    except yaml.YAMLError as error:
        raise ManifestError(f"{path}: not YAML: {' '.join(str(error).split())[:200]}") from None
    return document


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size > SIZE_LIMIT:
                raise ManifestError(_too_large(path, f"{status.st_size:,} bytes"))
            data = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        raise ManifestError(f"{path}: no such file; give the path of a QMLJob manifest") from None
    except IsADirectoryError:
        raise ManifestError(f"{path}: is a directory; give the path of one manifest inside it") from None
    except OSError as error:
        raise ManifestError(f"{path}: can't be read: {error.strerror}") from None
    if len(data) > SIZE_LIMIT:
        raise ManifestError(_too_large(path, f"more than {SIZE_LIMIT:,} bytes"))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: byte {error.start} is not UTF-8; save the manifest as UTF-8 text") from None


def _too_large(path: Path, size: str) -> str:
    return f"{path}: {size}, and a manifest has at most {SIZE_LIMIT:,}; is this the right file?"


def _too_deep(path: Path, mark: Any) -> str:
    return f"{path}: {_where(mark)}nested deeper than {DEPTH_LIMIT} levels; flatten it"


@dataclass
class _Extent:
    """How large and how deep a node is once its aliases are followed."""

    anchor: str | None
    nodes: int = 1
    depth: int = 1


def _check_events(path: Path, text: str) -> None:
    """Counts documents, nodes and levels on the parser's events: nothing is built, so nothing can blow up."""
    documents = 0
    for event_documents in _documents(path, text):
        documents += event_documents
    if documents == 0:
        raise ManifestError(f"{path}: empty; a QMLJob starts with 'apiVersion: qml.dev/v1alpha1' and 'kind: QMLJob'")
    if documents > 1:
        raise ManifestError(f"{path}: {documents} documents; keep one QMLJob in a file, without '---' between parts")


def _documents(path: Path, text: str) -> Iterator[int]:
    """Yields 1 for each document that holds something, 0 for each that does not."""
    open_nodes: list[_Extent] = []
    anchors: dict[str, _Extent] = {}
    for event in yaml.parse(text, Loader=_Loader):
        closed: _Extent | None = None
        if isinstance(event, yaml.DocumentStartEvent):
            open_nodes, anchors = [_Extent(None, 0, 0)], {}
        elif isinstance(event, yaml.DocumentEndEvent):
            yield int(open_nodes[0].nodes > 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(open_nodes) > DEPTH_LIMIT:
                raise ManifestError(_too_deep(path, event.start_mark))
            open_nodes.append(_Extent(event.anchor))
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = open_nodes.pop()
        elif isinstance(event, yaml.AliasEvent):
            closed = _followed(path, event, open_nodes, anchors)
        elif isinstance(event, yaml.ScalarEvent) and (len(open_nodes) > 1 or event.value or event.style):
            closed = _Extent(event.anchor)
        if closed is None:
            continue
        if closed.anchor is not None and not isinstance(event, yaml.AliasEvent):
            anchors[closed.anchor] = closed
        parent = open_nodes[-1]
        parent.nodes += closed.nodes
        parent.depth = max(parent.depth, closed.depth + 1)
        if parent.nodes > NODE_LIMIT:
            raise ManifestError(
                f"{path}: {_where(event.start_mark)}more than {NODE_LIMIT:,} values, counted with aliases (*name) "
                "followed; is this the right file?"
            )
        if parent.depth + len(open_nodes) - 1 > DEPTH_LIMIT:
            raise ManifestError(
                f"{path}: {_where(event.start_mark)}nested deeper than {DEPTH_LIMIT} levels; flatten it"
            )


def _followed(
    path: Path, event: yaml.AliasEvent, open_nodes: list[_Extent], anchors: dict[str, _Extent]
) -> _Extent | None:
    if any(node.anchor == event.anchor for node in open_nodes):
        raise ManifestError(f"{path}: {_where(event.start_mark)}alias *{event.anchor} contains itself; write it out")
    target = anchors.get(event.anchor or "")
    # An alias without an anchor is the composer's error, which names it better.
    return None if target is None else _Extent(None, target.nodes, target.depth)


def _first_document(loader: _Loader) -> yaml.Node:
    """Returns the document that holds something; `_check_events` saw that there is exactly one."""
    while loader.check_node():
        node = loader.get_node()
        if node is not None and not (isinstance(node, yaml.ScalarNode) and not node.value and node.style is None):
            return node
    raise yaml.YAMLError("no document")


def _check_nodes(path: Path, root: yaml.Node) -> None:
    """Refuses double keys, keys that are not text, and tags that JSON has no type for: all of them at once."""
    problems: list[tuple[int, str]] = []
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.tag not in _JSON_TAGS:
            problems.append(_problem(node, f"tag {_short_tag(node.tag)} has no place in a manifest; remove it"))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            problems.extend(_key_problems(node))
            waiting.extend(value for _, value in node.value)
    if problems:
        raise ManifestError(*(f"{path}: {text}" for _, text in sorted(problems)))


def _key_problems(node: yaml.MappingNode) -> Iterator[tuple[int, str]]:
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if key.tag == _MERGE:
            continue
        if not isinstance(key, yaml.ScalarNode):
            yield _problem(key, "a key must be text, not a list or map")
        elif key.tag != "tag:yaml.org,2002:str":
            yield _problem(key, f"key {key.value} is read as {_short_tag(key.tag)}, not as text; quote it")
        elif key.value in lines:
            yield _problem(key, f"key {key.value!r} stands on line {lines[key.value]} already; keep one of them")
        else:
            lines[key.value] = key.start_mark.line + 1


def _problem(node: yaml.Node, text: str) -> tuple[int, str]:
    """Returns a problem with the place in the file by which it is sorted."""
    return node.start_mark.index, _where(node.start_mark) + text


def _with_overrides(document: object, replicas: int | None, namespace: str | None) -> object:
    if namespace is not None:
        document = _replaced(document, ("metadata", "namespace"), namespace)
    if replicas is not None:
        document = _replaced(document, ("spec", "replicaSpecs", "worker", "replicas"), replicas)
    return document


def _replaced(document: object, path: tuple[str, ...], value: object) -> object:
    """Returns a copy in which `path` is `value`; a document that has no such place is left for the parser to judge."""
    if not path:
        return value
    if not isinstance(document, dict) or (len(path) > 1 and path[0] not in document):
        return document
    copy: dict[str, Any] = dict(document)
    copy[path[0]] = _replaced(document.get(path[0]), path[1:], value)
    return copy


def _where(mark: Any) -> str:
    return "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "


def _short_tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def _sentence(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.problem, error.context) if part]
    return " ".join(" ".join(parts).split())[:200]
