"""A folder as a store: the shipped contract, killed writers, full disks, bad locations."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from qmljob_training.stores import (
    Fenced,
    ObjectNotFound,
    PreconditionFailed,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    open_store,
    put_fenced,
    split_location,
)
from qmljob_training.stores.file import FileStore
from qmljob_training.testing import STORE_CHECKS, assert_store_contract
from support import store_child
from support.fencing import fencing_cases, given_history_holds
from support.small_disk import SIZE, SmallDisk, small_disk

TESTS = Path(__file__).parents[1]
WAIT_SECONDS = 60
OLD, NEW_SIZE = b"o" * 5000, 300_000


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob(".qmljob-tmp-*"))


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
def test_a_folder_keeps_the_contract(check, tmp_path):
    check(lambda: open_store(f"file://{tmp_path}/new/folder"))
    assert leftovers(tmp_path) == []


def test_a_folder_in_the_place_of_a_bucket_keeps_the_contract(tmp_path, monkeypatch):
    monkeypatch.setenv("QMLJOB_STORE_ROOT", str(tmp_path))
    buckets = iter(f"gs://bucket-{number}/some/prefix" for number in range(100))

    def new_location():
        location = next(buckets)
        return lambda: open_store(location)

    assert_store_contract(new_location)
    store = open_store("gs://bucket/some/prefix/")
    store.put("weights.h5", b"w")
    assert store.location == "gs://bucket/some/prefix"
    assert (tmp_path / "bucket/some/prefix/weights.h5").read_bytes() == b"w"


class BrokenStore(FileStore):
    """Forgets to compare."""

    def put_if(self, name, data, *, generation, content_type=""):
        return self.put(name, data)


def test_the_contract_finds_a_store_without_preconditions(tmp_path):
    numbers = iter(range(100))

    def new_location():
        folder = tmp_path / str(next(numbers))
        return lambda: BrokenStore(folder)

    with pytest.raises(AssertionError, match="expected PreconditionFailed"):
        assert_store_contract(new_location)


# -- a writer that is killed ------------------------------------------------------------------------------------------


@pytest.fixture
def writer_at(tmp_path) -> Iterator:
    """Starts a process that writes to `object` and is now at a point."""
    started = []

    def start(point: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "support.store_child", f"file://{tmp_path}", "object", str(NEW_SIZE), point]
        child = subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout.readline() == f"at {point}\n"
        return child

    yield start
    for child in started:
        child.kill()
        child.wait(WAIT_SECONDS)
        child.stdin.close()
        child.stdout.close()


def killed(child: subprocess.Popen) -> None:
    child.send_signal(signal.SIGKILL)
    assert child.wait(WAIT_SECONDS) == -signal.SIGKILL


@pytest.mark.parametrize("point", store_child.POINTS)
def test_a_killed_writer_leaves_the_old_object_or_the_new_one_whole(point, tmp_path, writer_at):
    store = open_store(str(tmp_path))
    seen = store.put("object", OLD)

    killed(writer_at(point))

    wrote = point == "replaced"
    assert store.get("object").data == (b"n" * NEW_SIZE if wrote else OLD)
    assert (store.get("object").generation == seen) is not wrote
    assert store.list() == ("object",)
    if wrote:  # a writer that has not seen the new object must not replace it
        with pytest.raises(PreconditionFailed):
            store.put_if("object", b"stale", generation=seen)
    else:
        store.put_if("object", b"next", generation=seen)


@pytest.mark.parametrize("point", store_child.POINTS)
def test_what_a_killed_writer_left_is_removed_by_the_next_write(point, tmp_path, writer_at):
    store = open_store(str(tmp_path))
    killed(writer_at(point))
    assert bool(leftovers(tmp_path)) is (point != "replaced")
    store.put("another", b"x")
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("point", ["half", "written", "temporary"])
def test_a_living_writer_keeps_its_temporary_file(point, tmp_path, writer_at):
    store = open_store(str(tmp_path))
    child = writer_at(point)
    store.put("another", b"x")  # sweeps; a file not locked yet may go, and its writer makes a new one
    child.stdin.close()
    assert child.stdout.readline() == "done\n"
    assert child.wait(WAIT_SECONDS) == 0
    assert store.get("object").data == b"n" * NEW_SIZE
    assert leftovers(tmp_path) == []


def test_a_writer_that_holds_the_lock_is_waited_for_and_then_named(tmp_path, writer_at):
    child = writer_at("replace")
    with pytest.raises(StoreUnavailable, match="locked by another process for 0 s: find it"):
        FileStore(tmp_path, lock_seconds=0).put("another", b"x")

    done = threading.Event()
    waiting = threading.Thread(target=lambda: (open_store(str(tmp_path)).put("another", b"x"), done.set()))
    waiting.start()
    killed(child)
    assert done.wait(WAIT_SECONDS), "a killed process frees its lock"
    waiting.join(WAIT_SECONDS)


# -- generations ------------------------------------------------------------------------------------------------------


def test_generations_grow_when_the_clock_goes_back(tmp_path, monkeypatch):
    store = open_store(str(tmp_path))
    seen = [store.put("object", b"x")]
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000)
    seen.append(store.put("object", b"x"))
    store.delete("object")
    seen.append(store.put("object", b"x"))
    seen.append(store.put("object", b"x"))
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("resolution", [1, 100, 10**3, 10**6, 10**9, 2 * 10**9], ids=lambda value: f"{value} ns")
def test_generations_grow_on_file_systems_with_coarse_times(resolution, tmp_path, monkeypatch):
    utime = os.utime

    def coarse(descriptor, *, ns):
        utime(descriptor, ns=tuple(time // resolution * resolution for time in ns))

    monkeypatch.setattr(os, "utime", coarse)
    store = open_store(str(tmp_path))
    seen = [store.put("object", b"%d" % number) for number in range(5)]
    assert seen == sorted(set(seen))
    assert store.get("object").generation == seen[-1]


def test_a_file_put_there_by_other_means_is_an_object(tmp_path):
    (tmp_path / "copied.h5").write_bytes(b"by hand")
    store = open_store(str(tmp_path))
    stored = store.get("copied.h5")
    assert stored.data == b"by hand"
    with pytest.raises(PreconditionFailed):
        store.put_if("copied.h5", b"x", generation=0)
    assert store.put_if("copied.h5", b"x", generation=stored.generation) > stored.generation


# -- disks and folders that refuse ------------------------------------------------------------------------------------


def test_a_full_disk_is_unavailable_and_the_old_object_good(tmp_path):
    with small_disk(tmp_path) as disk:
        fill_and_check(disk)


def test_where_no_small_disk_can_be_had_dev_full_plays_it_and_a_warning_says_so(tmp_path):
    with (
        pytest.warns(UserWarning, match="the full disk is played by /dev/full"),
        small_disk(tmp_path, ("shim",)) as disk,
    ):
        fill_and_check(disk)


def fill_and_check(disk: SmallDisk) -> None:
    command = disk.command(str(TESTS / "support/full_disk_child.py"), str(disk.folder), str(2 * SIZE))
    result = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["error"] == "StoreUnavailable"
    assert report["message"] == (
        f"disk full at {disk.folder}: free space or choose another --checkpoint-location; the last checkpoint is intact"
    )
    assert report["old object is whole"] is True
    assert report["listed"] == ["object"]
    assert report["left over"] == []
    assert report["written afterwards"] is True


@pytest.fixture
def forbidden() -> Iterator[Path]:
    """A folder that this process may not write to; root becomes nobody for as long."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        inner = Path(folder, "inner")
        inner.mkdir()
        os.chmod(folder, 0o755)
        inner.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        yield inner
        if root:
            os.seteuid(0)
        inner.chmod(0o755)


def test_a_folder_without_permission_is_misconfigured(forbidden):
    store = open_store(f"file://{forbidden}/sub")
    for refused in (store.check_writable, lambda: store.put("object", b"x")):
        with pytest.raises(StoreMisconfigured, match=r"no permission; choose a folder that this program may write to"):
            refused()


@pytest.mark.parametrize("below", ["", "/sub/folder"], ids=["the folder itself", "above the folder"])
def test_a_file_in_the_place_of_a_folder_is_misconfigured(below, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    store = open_store(f"{tmp_path}/file{below}")
    for refused in (store.check_writable, lambda: store.put("object", b"x"), lambda: store.get("object")):
        with pytest.raises(StoreMisconfigured, match="a part of the path is a file, not a folder"):
            refused()


def test_an_object_can_not_have_a_folders_name(tmp_path):
    store = open_store(str(tmp_path))
    store.put("a/b", b"x")
    with pytest.raises(StoreMisconfigured, match="it is a folder, not a file"):
        store.put("a", b"x")
    assert leftovers(tmp_path) == []


def test_links_to_folders_are_not_followed_by_list(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path)
    store = open_store(str(tmp_path))
    store.put("object", b"x")
    assert store.list() == ("object",)


# -- locations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("gs://b-1/p/q/x.h5", ("gs://b-1/p/q", "x.h5")),
        ("gs://b-1/x.h5", ("gs://b-1", "x.h5")),
        ("file:///a/b/x.h5", ("file:///a/b", "x.h5")),
        ("file:///x.h5", ("file:///", "x.h5")),
        ("/a/x.h5", ("/a", "x.h5")),
        ("/x.h5", ("/", "x.h5")),
        ("a/x.h5", ("a", "x.h5")),
        ("x.h5", (".", "x.h5")),
    ],
)
def test_a_location_splits_into_a_folder_that_opens_and_a_name(location, expected):
    assert split_location(location) == expected
    open_store(expected[0])


@pytest.mark.parametrize("location", ["gs://b-1", "gs://b-1/", "gs://b-1/p/", "file:///", "/", "a/", "gs://b-1/.."])
def test_a_location_of_no_object_does_not_split(location):
    with pytest.raises(StoreMisconfigured):
        split_location(location)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("", "write gs://bucket/folder or file:///absolute/folder"),
        ("s3://bucket/p", "s3:// is not supported; use gs:// or file://"),
        ("gs://", "'' is no bucket name"),
        ("gs://Bucket/p", "'Bucket' is no bucket name"),
        ("gs://../p", "'..' is no bucket name"),
        ("gs://a..b/p", "'a..b' is no bucket name"),
        ("gs://bucket/../p", "without empty, '.' or '..' segments"),
        ("gs:/bucket", "write two slashes after the colon"),
        ("file://relative/p", "file:// needs an absolute folder"),
        ("/folder\n", "write gs://bucket/folder"),
    ],
)
@pytest.mark.parametrize("root", ["", "/folder"], ids=["buckets", "folders for buckets"])
def test_a_bad_location_is_a_one_line_error(location, message, root, monkeypatch):
    monkeypatch.setenv("QMLJOB_STORE_ROOT", root)
    with pytest.raises(StoreMisconfigured) as raised:
        open_store(location)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_needs_nothing_of_googles_library():
    program = (
        "import sys; from qmljob_training.stores import open_store; open_store('/x');"
        "assert not any(name.startswith('google') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=WAIT_SECONDS)


# -- fencing ----------------------------------------------------------------------------------------------------------


class Pointer(BaseModel):
    kind: Literal["pointer"] = "pointer"
    attempt: int


@pytest.mark.parametrize(
    ("present", "written", "refused"),
    [(None, 0, False), (0, 0, False), (0, 1, False), (3, 3, False), (2, 1, True), (2, 0, True), (10, 9, True)],
)
def test_a_lower_attempt_never_replaces_a_higher_one(present, written, refused, tmp_path):
    store = open_store(str(tmp_path))
    if present is not None:
        put_fenced(store, "pointer", Pointer(attempt=present), Pointer.model_validate_json)
    if refused:
        with pytest.raises(Fenced, match=f"belongs to attempt {present}: attempt {written} was replaced"):
            put_fenced(store, "pointer", Pointer(attempt=written), Pointer.model_validate_json)
    else:
        put_fenced(store, "pointer", Pointer(attempt=written), Pointer.model_validate_json)
    kept = present if refused else written
    assert Pointer.model_validate_json(store.get("pointer").data).attempt == kept


@pytest.mark.parametrize("parse", [Pointer.model_validate_json, lambda _: None], ids=["raises", "returns None"])
def test_what_is_no_document_of_ours_is_left_alone(parse, tmp_path):
    store = open_store(str(tmp_path))
    store.put("pointer", b"a user's own notes")
    with pytest.raises(StoreError, match="not overwritten: delete it or choose another location"):
        put_fenced(store, "pointer", Pointer(attempt=7), parse)
    assert store.get("pointer").data == b"a user's own notes"


class Restless(FileStore):
    """Somebody else always writes between a read and a write."""

    def get(self, name):
        stored = super().get(name)
        self.put(name, stored.data)
        return stored


def test_a_document_that_never_rests_is_given_up(tmp_path):
    put_fenced(FileStore(tmp_path), "pointer", Pointer(attempt=0), Pointer.model_validate_json)
    with pytest.raises(StoreUnavailable, match="give each job a location of its own"):
        put_fenced(Restless(tmp_path), "pointer", Pointer(attempt=0), Pointer.model_validate_json)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(case=fencing_cases())
def test_attempts_only_rise_in_every_interleaving(case):
    with tempfile.TemporaryDirectory() as folder:
        given_history_holds(case, lambda: open_store(folder))


def test_without_the_comparison_an_interleaving_is_found_that_goes_down(tmp_path):
    """The property can fail: a store that ignores preconditions lets an old attempt win."""
    case = ((1, 0), ((0, ""), (1, ""), (0, ""), (1, "")))
    with pytest.raises(AssertionError, match="went down"):
        given_history_holds(case, lambda: BrokenStore(tmp_path))


@settings(derandomize=True, deadline=None, max_examples=30)
@given(names=st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=6, unique=True))
def test_every_accepted_name_comes_back_from_list(names):
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        written = set()
        for name in names:
            try:
                store.put(name, name.encode())
            except (StoreMisconfigured, UnicodeEncodeError):
                continue
            written.add(name)
        assert set(store.list()) == written
        for name in written:
            assert store.get(name).data == name.encode()
            store.delete(name)
            with pytest.raises(ObjectNotFound):
                store.get(name)
