"""Interrupts of `qmljob run`: Ctrl-C, a killed supervisor, and the run that goes on where the last one stopped."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qmljob.local.record import Phase, read_record
from support.local_run import INFER, LIMIT_SECONDS, Run, manifest, nothing_is_left

__all__ = ["nothing_is_left"]
pytestmark = pytest.mark.usefixtures("nothing_is_left")


@contextmanager
def started(path: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Yields the command in the middle of a run: every worker has said that it is ready."""
    # A shell's background job ignores SIGINT, and its children would inherit that.
    program = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-m", "qmljob", "run", str(path), *flags]
    with subprocess.Popen(
        [sys.executable, "-c", program, *command],
        cwd=path.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            ready = {process.stdout.readline() for _ in range(2)}
            assert ready == {"[worker-0] ready\n", "[worker-1] ready\n"}
            yield process
        finally:
            process.kill()


WAIT = """
    say("ready")
    wait_for_the_end()
"""
CHECKPOINT = """
    def stop(number, frame):
        say("wrote a checkpoint")
        sys.exit(75)
    signal.signal(signal.SIGTERM, stop)
    say("ready")
    wait_for_the_end()
"""
STUBBORN = """
    signal.signal(signal.SIGTERM, lambda number, frame: say("not yet"))
    say("ready")
    while True:
        wait_for_the_end()
"""


@pytest.fixture(autouse=True)
def _signals_as_in_a_terminal() -> Iterator[None]:
    """A test run under nohup ignores SIGHUP, and so would the processes that it starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
        pytest.param(signal.SIGHUP, 129, id="closed terminal"),
    ],
)
def test_an_interrupt_ends_the_gang_cleanly(tmp_path: Path, number: int, code: int) -> None:
    with started(manifest(tmp_path, CHECKPOINT), "--store", "st", "--report", "r") as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == code
    assert sorted(out.splitlines()) == ["[worker-0] wrote a checkpoint", "[worker-1] wrote a checkpoint"]
    assert err.splitlines() == [
        "stopping: up to 20 s for a checkpoint; Ctrl-C once more ends it at once",
        f"stopped; resume with: qmljob run {tmp_path / 'job.yaml'} --store st",
    ]
    record = read_record(tmp_path / "r")
    assert (record.phase, record.exit_code) == (Phase.INTERRUPTED, code)
    assert {end.exit_code for end in record.attempts[0].ends} == {75}


def test_a_second_interrupt_kills_at_once(tmp_path: Path) -> None:
    with started(manifest(tmp_path, STUBBORN)) as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGINT)
        assert {process.stdout.readline() for _ in range(2)} == {"[worker-0] not yet\n", "[worker-1] not yet\n"}
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_SECONDS) == 130


def test_an_interrupt_while_waiting_for_a_restart(tmp_path: Path) -> None:
    program = """
        say("ready")
        sys.exit(3)
    """
    path = manifest(tmp_path, program, runPolicy={"backoffLimit": 100})
    with started(path) as process:
        assert process.stderr is not None
        assert "restart 1 of 100" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == 130
        assert "stopped; resume with: " in err


def test_an_interrupt_while_survivors_are_ended_is_not_followed_by_a_restart(tmp_path: Path) -> None:
    program = """
        signal.signal(signal.SIGTERM, lambda number, frame: say("not yet"))
        say("ready")
        if index == 1:
            sys.exit(3)
        while True:
            wait_for_the_end()
    """
    with started(manifest(tmp_path, program), "--report", "r") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[worker-0] not yet\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == 130
    assert err.startswith("stopped; resume with: ")
    (attempt,) = read_record(tmp_path / "r").attempts
    assert {end.replica: end.exit_code for end in attempt.ends} == {"qcnn-worker-0": 137, "qcnn-worker-1": 3}


def test_a_killed_supervisor_leaves_no_process(tmp_path: Path) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    program = f"""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        held = os.open({str(fifo)!r}, os.O_WRONLY)
        say("ready")
        wait_for_the_end()
    """
    path = manifest(tmp_path, program)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with started(path) as process:
        process.kill()
        process.wait(LIMIT_SECONDS)
        # The end of the file comes when the last process that held the other end is gone.
        assert select.select([reader], [], [], LIMIT_SECONDS)[0] == [reader]
        assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_run_goes_on_where_the_last_one_was_interrupted(tmp_path: Path) -> None:
    path = manifest(tmp_path, WAIT)
    store = tmp_path / "st"
    with started(path, "--store", "st") as process:
        process.kill()
    identity = json.loads((store / ".qmljob" / "default" / "qcnn.json").read_text())
    assert (identity["attempt"], identity["finished"]) == (0, False)
    manifest(tmp_path, "sys.exit(3 if attempt == 1 else 0)")
    resumed = Run(path, store=store)
    assert resumed.code == 0
    assert resumed.record.uid == identity["uid"]
    assert [attempt.attempt for attempt in resumed.record.attempts] == [1, 2]
    assert f"resuming qcnn from its checkpoints in {store}, attempt 1" in resumed.err
    anew = Run(path, store=store)
    assert anew.record.uid != identity["uid"]
    assert [attempt.attempt for attempt in anew.record.attempts] == [0]


def test_a_failed_inference_is_repeated_without_losing_the_training(tmp_path: Path) -> None:
    path = manifest(tmp_path, "epoch(4)", inference="raise SystemExit(9)")
    store = tmp_path / "st"
    first = Run(path, store=store)
    second = Run(manifest(tmp_path, "epoch(4)", inference=INFER), store=store)
    assert (first.code, second.code) == (1, 0)
    assert first.record.uid == second.record.uid


def test_two_runs_do_not_share_a_job_in_one_store(tmp_path: Path) -> None:
    path = manifest(tmp_path, WAIT)
    with started(path, "--store", "st") as process:
        second = subprocess.run(
            [sys.executable, "-m", "qmljob", "run", str(path), "--store", "st"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        advice = "wait for it, or choose another --store\n"
        assert (second.returncode, second.stdout) == (64, "")
        assert second.stderr == f"{tmp_path / 'st'}: another qmljob run works on default/qcnn here; {advice}"
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_SECONDS) == 130
