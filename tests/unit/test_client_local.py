"""The small parts of a local run: ports, threads, identity, record, output and the sentences at the end."""

import io
import math
import random
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob.local import ports, summary
from qmljob.local.identity import IdentityError, StoreInUseError, open_identity
from qmljob.local.output import Output, plain, remaining
from qmljob.local.record import Phase, ProgressBook, RecordError, RunRecord, read_record, write_record
from qmljob.local.threads import advice, threads_of
from qmljob_api.exitcodes import ExitCode
from qmljob_api.progress import InferenceResult, Progress
from qmljob_api.reasons import Reason
from qmljob_api.types import Role
from qmljob_operator.policy import FailJob, ReplicaEnd
from qmljob_operator.topology import Replica


def progress(epoch: int, loss: float = 0.5, epochs: int = 10) -> Progress:
    return Progress(
        role="worker",
        index=0,
        attempt=0,
        epoch=epoch,
        epochs=epochs,
        step=epoch * 4,
        loss=loss,
        sign_accuracy=0.75,
        val_loss=loss + 0.1,
        val_sign_accuracy=0.625,
        learning_rate=0.02,
        seconds=1.5,
        validation_seconds=0.5,
        examples_per_second=100.0,
    )


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
        pytest.param(2, 1, 8, "--threads 4 would use them", id="idle cores"),
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


def record(**changes: object) -> RunRecord:
    fields: dict[str, object] = {
        "phase": Phase.SUCCEEDED,
        "job": "qcnn",
        "namespace": "default",
        "uid": "u",
        "manifest": "qcnn.yaml",
        "store": "/s",
        "command": ("python",),
        "replicas": ("qcnn-worker-0",),
        "chief": "qcnn-worker-0",
        "started_at": datetime(2026, 1, 1, tzinfo=UTC),
        "ended_at": datetime(2026, 1, 1, 0, 0, 41, tzinfo=UTC),
        **changes,
    }
    return RunRecord.model_validate(fields)


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


# Output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("plain\ttext é", "plain\ttext é", id="text and tabs stay"),
        pytest.param("\x1b[31mred\x1b[0m", "red", id="colour"),
        pytest.param("\x1b[2J\x1b[1;1Hx", "x", id="cursor"),
        pytest.param("\x1b]0;title\x07x", "x", id="title"),
        pytest.param("a\x08\x00\x7fb\x9b", "ab", id="control characters"),
        pytest.param("x\x1b", "x", id="cut off"),
    ],
)
def test_a_replica_has_no_power_over_the_terminal(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_without_a_terminal_a_line_is_a_line() -> None:
    stdout, stderr = io.StringIO(), io.StringIO()
    output = Output(stdout, stderr)
    output.line("worker-0", "\x1b[1mhello\x1b[0m [not] :markup:")
    output.progress("worker-0", progress(3, loss=0.25))
    output.status("starts")
    output.summary("done")
    assert stdout.getvalue().splitlines() == [
        "[worker-0] hello [not] :markup:",
        "[worker-0] epoch 3/10  loss 0.2500  val_loss 0.3500  sign accuracy 0.625  1.50 s",
        "done",
    ]
    assert stderr.getvalue() == "starts\n"


def test_quiet_shows_the_summary_and_errors_only() -> None:
    stdout, stderr = io.StringIO(), io.StringIO()
    output = Output(stdout, stderr, quiet=True)
    output.line("worker-0", "hello")
    output.progress("worker-0", progress(3))
    output.status("starts")
    output.advice("error: x")
    output.summary("done")
    assert (stdout.getvalue(), stderr.getvalue()) == ("done\n", "error: x\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("colour", [True, False], ids=["colour", "NO_COLOR"])
def test_on_a_terminal_lines_scroll_above_a_bar(monkeypatch: pytest.MonkeyPatch, colour: bool) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    stdout = Terminal()
    output = Output(stdout, io.StringIO())
    output.progress("worker-0", progress(3))
    output.line("worker-1", "hello [not] :markup:")
    output.summary("done")
    shown = stdout.getvalue()
    assert "3/10" in shown
    assert "loss 0.5000  val_loss 0.6000  ETA 0:00:14" in shown
    assert "hello [not] :markup:" in shown
    assert ("\x1b[36m[worker-1]" in shown) is colour


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stdout = Terminal()
    Output(stdout, io.StringIO()).progress("worker-0", progress(3))
    assert "\x1b" not in stdout.getvalue()


def test_the_time_left_is_that_of_the_epochs_left() -> None:
    assert remaining(progress(5, epochs=50)) == "0:01:30"
    assert remaining(progress(10)) == "0:00:00"


# Sentences


def test_the_summary_of_a_success() -> None:
    inference = InferenceResult(
        artifact="gs://b/w.h5", mse=0.2968, sign_accuracy=0.9, examples=48, fresh_mse=0.31, fresh_examples=100
    )
    text = summary.success(
        record(progress=(progress(10, loss=0.1468),), inference=inference, artifact_path="/s/b/w.h5"),
        Path("/r/report.html"),
    )
    assert text.splitlines() == [
        "qcnn: succeeded in 41.0 s",
        "  training loss    0.1468",
        "  validation loss  0.2468",
        "  inference MSE    0.2968  (48 examples, sign accuracy 0.900)",
        "  MSE, fresh data  0.3100  (100 examples)",
        "  restarts         0",
        "  artifact         /s/b/w.h5",
        "  report           /r/report.html",
    ]


def ended(code: int, reason: Reason = Reason.INVALID_CONFIGURATION) -> FailJob:
    return FailJob(reason, ReplicaEnd(Replica(Role.WORKER, 1, "qcnn-worker-1"), code, 0.0), "the policy's message")


@pytest.mark.parametrize(
    ("decision", "first", "last"),
    [
        pytest.param(
            ended(ExitCode.INVALID_CONFIGURATION),
            "error: qcnn-worker-1 exited with 64: invalid configuration",
            "hint: correct what the last lines name, in the manifest, and run it again",
            id="invalid configuration",
        ),
        pytest.param(
            ended(137, Reason.BACKOFF_LIMIT_EXCEEDED),
            "error: qcnn-worker-1 exited with 137: killed by SIGKILL; "
            "every restart of spec.runPolicy.backoffLimit is used up",
            "hint: look at the log; to go on from the last checkpoint: qmljob run x",
            id="killed too often",
        ),
        pytest.param(
            ended(3, Reason.FAILURE_RULE),
            "error: qcnn-worker-1 exited with 3; a rule of spec.failurePolicy fails the job",
            "hint: look at the log; to go on from the last checkpoint: qmljob run x",
            id="the user's rule",
        ),
        pytest.param(
            FailJob(Reason.DEADLINE_EXCEEDED, None, "the job took longer than 5 s"),
            "error: the job took longer than 5 s",
            "hint: raise the limit in spec.runPolicy; to go on: qmljob run x",
            id="deadline",
        ),
    ],
)
def test_a_failure_says_what_where_and_what_next(decision: FailJob, first: str, last: str) -> None:
    lines = summary.failure(decision, ["Traceback", "boom"], Path("/r"), command="qmljob run x").splitlines()
    assert (lines[0], lines[-1]) == (first, last)
    assert "logs: /r/logs" in lines
    if decision.cause is not None:
        assert lines[1:4] == ["its last 2 lines:", "  Traceback", "  boom"]


@pytest.mark.parametrize(
    ("argv", "location", "path"),
    [
        pytest.param(["--artifact=gs://b/p/w.h5"], "gs://b/p/w.h5", "/s/b/p/w.h5", id="location"),
        pytest.param(
            ["--weights-gcs-bucket", "b", "--weights-gcs-path=/p/w.h5"],
            "gs://b/p/w.h5",
            "/s/b/p/w.h5",
            id="bucket and path",
        ),
        pytest.param(["--artifact", "file:///a%20b/w.h5"], "file:///a%20b/w.h5", "/a b/w.h5", id="file"),
        pytest.param(["--artifact", "out/w.h5"], "out/w.h5", "out/w.h5", id="plain path"),
        pytest.param(["--weights-gcs-bucket=b"], None, None, id="half of it"),
        pytest.param([], None, None, id="none"),
    ],
)
def test_where_the_artifact_is(argv: list[str], location: str | None, path: str | None) -> None:
    assert summary.artifact_location(argv) == location
    if location is not None:
        assert summary.artifact_path(location, Path("/s")) == Path(str(path))
