"""What a person sees of a local run: lines, a bar, and the sentences at the end."""

import io
from pathlib import Path

import pytest

from qmljob.local import summary
from qmljob.local.output import Output, plain, remaining
from qmljob_api.exitcodes import ExitCode
from qmljob_api.progress import InferenceResult
from qmljob_api.reasons import Reason
from qmljob_api.types import Role
from qmljob_operator.gangstate import ReplicaEnd
from qmljob_operator.policy import FailJob
from qmljob_operator.topology import Replica
from support.run_records import progress, record

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
