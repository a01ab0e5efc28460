"""A manifest that nobody has looked at yet: what is refused before anything is built from it."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob.manifest import NODE_LIMIT, SIZE_LIMIT, ManifestError, load_job, read_document

JOB = """
apiVersion: qml.dev/v1alpha1
kind: QMLJob
metadata: {name: qcnn}
spec:
  replicaSpecs:
    worker:
      replicas: 2
      template:
        spec:
          containers: [{name: trainer, image: x, command: [python]}]
"""
CHIEF_ONLY = JOB.replace("worker:", "chief:").replace("replicas: 2", "replicas: 1")


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "job.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        read_document(path)
    return [problem.removeprefix(f"{path}: ") for problem in caught.value.problems]


def alias_bomb() -> str:
    levels = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 12)]
    return "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *levels])


@pytest.mark.parametrize(
    ("content", "beginning"),
    [
        pytest.param("", "empty; a QMLJob starts with", id="empty"),
        pytest.param("# a comment\n\n", "empty; a QMLJob starts with", id="comment only"),
        pytest.param("---\n---\n", "empty; a QMLJob starts with", id="empty documents"),
        pytest.param("a: 1\n---\nb: 2\n", "2 documents; keep one QMLJob in a file", id="several documents"),
        pytest.param("a: [1\nb: }", "line 2, column 2: not YAML: expected ',' or ']'", id="not YAML"),
        pytest.param("a:\n\tb: 1", "line 2, column 1: not YAML: found character '\\t'", id="tab"),
        pytest.param("a: *b", "line 1, column 4: not YAML: found undefined alias", id="undefined alias"),
        pytest.param("a: &a [*a]", "line 1, column 8: alias *a contains itself", id="recursive alias"),
        pytest.param(alias_bomb(), "line 5, column 20: more than 20,000 values", id="alias bomb"),
        pytest.param("- x\n" * (NODE_LIMIT + 1), "line 20000, column 3: more than 20,000 values", id="many values"),
        pytest.param("[" * 5000 + "]" * 5000, "line 1, column 65: nested deeper than 64 levels", id="deep brackets"),
        pytest.param("- " * 100 + "x", "line 1, column 129: nested deeper than 64 levels", id="deep lists"),
        pytest.param("a: 1".encode("utf-16"), "byte 0 is not UTF-8; save the manifest as UTF-8", id="not UTF-8"),
        pytest.param(b'a: "\x00"', "not YAML: unacceptable character #x0000", id="null character"),
        pytest.param("a: " + "9" * 5000, "a number has thousands of digits", id="huge number"),
        pytest.param(b"x" * 10_000_000, "10,000,000 bytes, and a manifest has at most 1,000,000", id="10 MB"),
        pytest.param("a: !!python/object:os.system x", "line 1, column 4: tag !!python/object:os.system", id="tag"),
        pytest.param(
            r'a: "\ud800"', "line 1, column 4: not YAML: an escape is half of a surrogate pair", id="surrogate"
        ),
        pytest.param("a: !!binary aGk=", "line 1, column 4: tag !!binary has no place", id="binary"),
    ],
)
def test_refused_with_one_line_that_says_where(tmp_path: Path, content: str | bytes, beginning: str) -> None:
    found = problems(write(tmp_path, content))
    assert len(found) == 1
    assert found[0].startswith(beginning)
    assert "\n" not in found[0]


def test_all_double_and_odd_keys_are_named_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = problems(write(tmp_path, "a: 1\nb: {c: 1, c: 2}\na: 3\n1: x\non: y\n[z]: w\n"))
    assert found == [
        "line 2, column 11: key 'c' stands on line 2 already; keep one of them",
        "line 3, column 1: key 'a' stands on line 1 already; keep one of them",
        "line 4, column 1: key 1 is read as !!int, not as text; quote it",
        "line 5, column 1: key on is read as !!bool, not as text; quote it",
        "line 6, column 1: a key must be text, not a list or map",
    ]


@pytest.mark.parametrize(
    ("path", "beginning"),
    [
        pytest.param("missing.yaml", "no such file", id="missing"),
        pytest.param(".", "is a directory", id="directory"),
        pytest.param("/dev/zero", "more than 1,000,000 bytes", id="endless"),
        pytest.param("/dev/null", "empty", id="null device"),
    ],
)
def test_paths_that_are_no_manifest(tmp_path: Path, path: str, beginning: str) -> None:
    assert problems(tmp_path / path)[0].startswith(beginning)


@pytest.mark.parametrize(
    ("content", "document"),
    [
        pytest.param("a: 2026-01-01", {"a": "2026-01-01"}, id="a date is text"),
        pytest.param("\ufeffa: 1", {"a": 1}, id="byte order mark"),
        pytest.param("---\na: 1\n---\n", {"a": 1}, id="an empty document beside it"),
        pytest.param("x: &x {p: 1}\ny: {<<: *x, q: 2}", {"x": {"p": 1}, "y": {"p": 1, "q": 2}}, id="merge key"),
        pytest.param("a: &a [1]\nb: *a\nc: *a", {"a": [1], "b": [1], "c": [1]}, id="honest aliases"),
        pytest.param("hello", "hello", id="a scalar is the parser's to refuse"),
    ],
)
def test_accepted(tmp_path: Path, content: str, document: object) -> None:
    assert read_document(write(tmp_path, content)) == document


def test_the_largest_size_is_read(tmp_path: Path) -> None:
    assert read_document(write(tmp_path, "a: " + "x" * (SIZE_LIMIT - 3))) == {"a": "x" * (SIZE_LIMIT - 3)}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@settings(derandomize=True, deadline=None)
@given(document=st.dictionaries(st.text(max_size=8), JSON, min_size=1, max_size=4))
def test_json_is_yaml(tmp_path_factory: pytest.TempPathFactory, document: dict[str, object]) -> None:
    path = write(tmp_path_factory.mktemp("json"), json.dumps(document))
    assert read_document(path) == document


@settings(derandomize=True, deadline=None)
@given(content=st.binary(max_size=200) | st.text(alphabet="a:-[]{}&*!|>'\"# \n", max_size=60))
def test_anything_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes | str) -> None:
    path = write(tmp_path_factory.mktemp("any"), content)
    found: tuple[str, ...] = ()
    try:
        read_document(path)
    except ManifestError as error:
        found = error.problems
    assert all(problem.startswith(str(path)) and "\n" not in problem for problem in found)


def test_overrides_are_judged_by_the_same_rules(tmp_path: Path) -> None:
    path = write(tmp_path, JOB)
    job = load_job(path, replicas=3, namespace="lab")
    assert job.spec.replica_specs.worker is not None
    assert (job.spec.replica_specs.worker.replicas, job.metadata.namespace) == (3, "lab")
    with pytest.raises(ManifestError) as caught:
        load_job(path, replicas=0, namespace="Not/A/Name")
    assert [problem.split(": ")[1] for problem in caught.value.problems] == [
        "metadata.namespace",
        "spec.replicaSpecs.worker.replicas",
    ]


def test_a_number_of_workers_for_a_job_without_workers(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="--replicas: the job has no worker role"):
        load_job(write(tmp_path, CHIEF_ONLY), replicas=2)


def test_every_error_of_a_manifest_comes_at_once(tmp_path: Path) -> None:
    text = JOB.replace("replicas: 2", "replicas: -1").replace("spec:\n  rep", "spec:\n  port: 0\n  replica: 1\n  rep")
    with pytest.raises(ManifestError) as caught:
        load_job(write(tmp_path, text))
    assert sorted(problem.split(": ")[1] for problem in caught.value.problems) == [
        "spec.port",
        "spec.replica",
        "spec.replicaSpecs.worker.replicas",
    ]
