"""The small parts of a local run: ports, threads, identity and record."""

import math
import random
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob.local import ports
from qmljob.local.identity import IdentityError, StoreInUseError, open_identity
from qmljob.local.record import ProgressBook, RecordError, read_record, write_record
from qmljob.local.threads import advice, threads_of
from support.run_records import progress, record

# Ports


def test_ports_are_distinct_free_and_below_the_ephemeral_range() -> None:
    found = ports.free_ports(40)
    assert len(set(found)) == 40
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 < port < low for port in found)


def test_a_port_in_use_is_never_given() -> None:
    seed = 7
    (first, *_) = ports.free_ports(3, random.Random(seed))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        taken.listen()
        assert first not in ports.free_ports(3, random.Random(seed))


# Threads


@pytest.mark.parametrize(
    ("argv", "threads"),
    [
        pytest.param(["--threads", "4"], 4, id="two words"),
        pytest.param(["--threads=4"], 4, id="one word"),
        pytest.param(["--threads=2", "--threads", "8"], 8, id="the last one counts"),
        pytest.param(["--threads"], None, id="no value"),
        pytest.param(["--threads=many"], None, id="not a number"),
        pytest.param(["--threads=0"], None, id="zero"),
        pytest.param(["--threadsafe=3", "-c", "--thread"], None, id="other flags"),
    ],
)
def test_threads_of_a_command_line(argv: list[str], threads: int | None) -> None:
    assert threads_of(argv) == threads


@pytest.mark.parametrize(
    ("replicas", "threads", "cores", "expected"),
    [
        pytest.param(2, 1, 2, None, id="fits"),
        pytest.param(1, 1, 1, None, id="one core"),
        pytest.param(2, 1, 3, None, id="one core over"),
        pytest.param(2, 8, 2, "--threads 1 fits", id="too many threads"),
        pytest.param(2, 8, 8, "--threads 4 fits", id="half of them"),
        pytest.param(4, 1, 2, "--replicas 2 fits", id="too many replicas"),
        pytest.param(2, 1, 8, "--threads 4 could use them", id="idle cores"),
    ],
)
def test_advice_on_threads(replicas: int, threads: int, cores: int, expected: str | None) -> None:
    found = advice(replicas, threads, cores)
    assert found is None if expected is None else found is not None and found.endswith(expected)


@settings(derandomize=True, deadline=None)
@given(replicas=st.integers(1, 64), threads=st.integers(1, 64), cores=st.integers(1, 256))
def test_who_follows_the_advice_gets_no_more(replicas: int, threads: int, cores: int) -> None:
    found = advice(replicas, threads, cores)
    if found is not None and "--threads" in found:
        better = int(found.split("--threads ")[1].split()[0])
        again = advice(replicas, better, cores)
        assert again is None or "--replicas" in again


# Identity


def test_a_job_keeps_its_uid_and_its_attempts_grow_until_it_has_finished(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    for _ in range(3):
        with open_identity(tmp_path, "default", "qcnn") as identity:
            seen.append((identity.uid, identity.next_attempt))
            assert identity.resumed is (identity.next_attempt > 0)
            for attempt in (identity.next_attempt, identity.next_attempt + 1):
                identity.starting(attempt)
    assert [attempt for _, attempt in seen] == [0, 2, 4]
    assert len({uid for uid, _ in seen}) == 1
    with open_identity(tmp_path, "default", "qcnn") as identity:
        identity.starting(identity.next_attempt)
        identity.finished(identity.next_attempt)
    with open_identity(tmp_path, "default", "qcnn") as identity:
        assert identity.next_attempt == 0
        assert identity.uid != seen[0][0]


def test_jobs_of_other_names_and_namespaces_are_others(tmp_path: Path) -> None:
    uids = set()
    for namespace, name in (("default", "a"), ("default", "b"), ("lab", "a")):
        with open_identity(tmp_path, namespace, name) as identity:
            identity.starting(identity.next_attempt)
            uids.add(identity.uid)
    assert len(uids) == 3


def test_two_runs_of_a_job_in_one_store_exclude_each_other(tmp_path: Path) -> None:
    with open_identity(tmp_path, "default", "qcnn"):
        with pytest.raises(StoreInUseError, match="another qmljob run works on default/qcnn"):
            open_identity(tmp_path, "default", "qcnn").__enter__()
        with open_identity(tmp_path, "default", "other") as identity:
            assert identity.next_attempt == 0


@pytest.mark.parametrize("content", ["", "{}", '{"uid": "../x", "attempt": 0}', '{"uid": "a", "attempt": -1}'])
def test_a_damaged_identity_is_said_and_not_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / ".qmljob" / "default" / "qcnn.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(IdentityError, match="damaged; delete it"):
        open_identity(tmp_path, "default", "qcnn").__enter__()
    assert path.read_text() == content


def test_a_store_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IdentityError, match="can't be written: Not a directory; choose another folder by --store"):
        open_identity(tmp_path / "file", "default", "qcnn").__enter__()


# Record


def test_a_line_that_a_resumed_replica_repeats_does_not_replace_the_one_with_times() -> None:
    book = ProgressBook()
    for line in (progress(1), progress(2), progress(2, seconds=0.0), progress(3)):
        book.add("worker-0", line)
    assert [(line.epoch, line.seconds) for line in book.of("worker-0")] == [(1, 1.5), (2, 1.5), (3, 1.5)]


def test_an_epoch_that_was_trained_again_counts_once() -> None:
    book = ProgressBook()
    for epoch, loss in ((1, 0.9), (2, 0.8), (3, 0.7), (2, 0.81), (3, 0.71), (4, 0.6)):
        book.add("qcnn-worker-0", progress(epoch, loss))
    assert [(line.epoch, line.loss) for line in book.of("qcnn-worker-0")] == [(1, 0.9), (2, 0.81), (3, 0.71), (4, 0.6)]
    assert book.of("qcnn-worker-1") == ()


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    written = record(progress=(progress(1), progress(2, loss=math.inf)), inference=None)
    write_record(tmp_path, written)
    assert read_record(tmp_path) == written
    write_record(tmp_path, record(progress=(progress(1, loss=math.nan),)))
    assert math.isnan(read_record(tmp_path).progress[0].loss)


def test_a_record_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="can't be read"):
        read_record(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RecordError, match="not the record of a run"):
        read_record(tmp_path)
