"""Local runs of tiny programs in the place of replicas: gangs, restarts, interrupts, and what is left behind."""

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from qmljob.local.output import Output
from qmljob.local.record import Phase, RunRecord, read_record
from qmljob.local.run import Folders, Options, run_job
from qmljob.local.supervisor import Timing
from qmljob.manifest import load_job

FAST = Timing(settle=0.2, backoff_base=0.01, restart_grace=0.3, stop_grace=0.3, linger=0.3)
LIMIT_SECONDS = 60

PRELUDE = """
import json, os, signal, sys
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
attempt = int(os.environ["QMLJOB_ATTEMPT"])

def say(*words):
    print(*words, flush=True)

def epoch(number, loss=None):
    line = dict(qmljob="progress/v1", role=config["task"]["type"], index=index, attempt=attempt, epoch=number, epochs=4,
                step=number, loss=loss or 1 / number, sign_accuracy=0.5, val_loss=2 / number, val_sign_accuracy=0.5,
                learning_rate=0.02, seconds=0.1, validation_seconds=0.1, examples_per_second=10.0)
    say(json.dumps(line))

def wait_for_the_end():
    signal.pause()
"""
INFER = """
import json, os
assert "TF_CONFIG" not in os.environ
print(json.dumps(dict(qmljob="result/v1", artifact="gs://bucket/w.h5", mse=0.25, sign_accuracy=1.0, examples=8)))
"""


def manifest(folder: Path, program: str, *, inference: str | None = None, workers: int = 2, **spec: Any) -> Path:
    """Writes a manifest whose workers run a program, and returns its path."""
    (folder / "program.py").write_text(PRELUDE + textwrap.dedent(program))
    container = {"name": "trainer", "image": "x", "command": ["python", str(folder / "program.py")]}
    document: dict[str, Any] = {
        "apiVersion": "qml.dev/v1alpha1",
        "kind": "QMLJob",
        "metadata": {"name": "qcnn"},
        "spec": {
            "replicaSpecs": {"worker": {"replicas": workers, "template": {"spec": {"containers": [container]}}}},
            **spec,
        },
    }
    if inference is not None:
        (folder / "infer.py").write_text(textwrap.dedent(inference))
        container = {"name": "inference", "image": "x", "command": ["python3", str(folder / "infer.py")]}
        document["spec"]["inference"] = {"template": {"spec": {"containers": [container]}}}
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


class Run:
    """A run inside this process: what it printed, its exit code and its record."""

    def __init__(self, path: Path, *, inference: bool = True, timing: Timing = FAST, store: Path | None = None) -> None:
        stdout, stderr = io.StringIO(), io.StringIO()
        folder = path.parent / f"run-{len(list(path.parent.glob('run-*')))}"
        options = Options(
            path, Folders(folder, store or folder / "store"), "qmljob run again", inference=inference, timing=timing
        )
        self.code = run_job(load_job(path), options, Output(stdout, stderr))
        self.out, self.err = stdout.getvalue(), stderr.getvalue()
        self.folder = folder
        self.record: RunRecord = read_record(folder)

    def log(self, name: str) -> str:
        return (self.folder / "logs" / f"{name}.log").read_text()


def processes_of(folder: Path) -> list[int]:
    """Returns the ids of all processes, zombies aside, whose command line names something in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """Every test ends without a process of its own, and with the signal handlers that it found."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    yield
    assert processes_of(tmp_path) == []
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers


# A run that succeeds


def test_workers_then_inference_then_a_summary(tmp_path: Path) -> None:
    program = """
        say("hello from", index)
        for number in (1, 2, 3, 4):
            epoch(number)
    """
    run = Run(manifest(tmp_path, program, inference=INFER))
    assert run.code == 0
    lines = run.out.splitlines()
    assert {"[worker-0] hello from 0", "[worker-1] hello from 1"} <= set(lines)
    assert [line for line in lines if "epoch" in line][-1] == (
        "[worker-0] epoch 4/4  loss 0.2500  val_loss 0.5000  sign accuracy 0.500  0.10 s"
    )
    assert lines[-7].startswith("qcnn: succeeded in ")
    assert [line.split("  ")[1] for line in lines[-6:]] == [
        "training loss",
        "validation loss",
        "inference MSE",
        "restarts",
        "artifact",
        "report",
    ]
    record = run.record
    assert (record.phase, record.exit_code, record.inference_exit_code) == (Phase.SUCCEEDED, 0, 0)
    assert [line.epoch for line in record.progress] == [1, 2, 3, 4]
    assert set(record.replica_progress) == {"qcnn-worker-0", "qcnn-worker-1"}
    assert record.inference is not None
    assert record.inference.mse == 0.25
    assert record.artifact_path == str(run.folder / "store" / "bucket" / "w.h5")
    assert (record.replicas, record.chief) == (("qcnn-worker-0", "qcnn-worker-1"), "qcnn-worker-0")
    (attempt,) = record.attempts
    assert {(end.replica, end.exit_code, end.stopped) for end in attempt.ends} == {
        ("qcnn-worker-0", 0, False),
        ("qcnn-worker-1", 0, False),
    }
    assert all((run.folder / end.log).is_file() for end in attempt.ends)
    assert "hello from 1" in run.log("qcnn-worker-1-attempt0")


def test_a_process_sees_what_a_pod_would_and_its_own_ports(tmp_path: Path) -> None:
    program = """
        names = "QMLJOB_NAME QMLJOB_NAMESPACE QMLJOB_RESTARTS QMLJOB_PEER_TIMEOUT_SECONDS PYTHONUNBUFFERED"
        say(json.dumps({
            "env": [os.environ[name] for name in names.split()],
            "uid": os.environ["QMLJOB_UID"],
            "port": os.environ["QMLJOB_PORT_MY_PROFILER"],
            "cluster": config["cluster"]["worker"],
            "store": os.environ["QMLJOB_STORE_ROOT"],
            "message": os.environ["QMLJOB_TERMINATION_MESSAGE_PATH"],
            "session": os.getsid(0) == os.getpid(),
        }))
    """
    ports = [{"name": "my-profiler", "port": 2223}]
    run = Run(manifest(tmp_path, program, ports=ports, runPolicy={"startupDeadlineSeconds": 33}))
    seen = [json.loads(run.log(f"qcnn-worker-{index}-attempt0")) for index in (0, 1)]
    for index, found in enumerate(seen):
        assert found["env"] == ["qcnn", "default", "0", "33", "1"]
        assert found["uid"] == run.record.uid
        assert found["store"] == str(run.folder / "store")
        assert found["message"] == str(run.folder / f"qcnn-worker-{index}.termination")
        assert found["session"] is True
    assert seen[0]["cluster"] == seen[1]["cluster"]
    addresses = {*seen[0]["cluster"], *(f"127.0.0.1:{found['port']}" for found in seen)}
    assert len(addresses) == 4
    assert all(address.startswith("127.0.0.1:") for address in addresses)


def test_without_inference(tmp_path: Path) -> None:
    run = Run(manifest(tmp_path, "say('x')", inference="raise SystemExit(9)"), inference=False)
    assert (run.code, run.record.inference_exit_code) == (0, None)


@pytest.mark.parametrize(("code", "expected"), [(64, 64), (65, 1), (1, 1)])
def test_a_failed_inference_does_not_undo_the_training(tmp_path: Path, code: int, expected: int) -> None:
    run = Run(manifest(tmp_path, "epoch(4)", inference=f"print('no such artifact')\nraise SystemExit({code})"))
    assert (run.code, run.record.phase, run.record.inference_exit_code) == (expected, Phase.SUCCEEDED, code)
    assert f"error: training succeeded, but inference exited with {code}" in run.err
    assert "  no such artifact" in run.err.splitlines()
    assert "qcnn: succeeded" in run.out


def test_what_still_runs_after_the_chiefs_success_is_ended(tmp_path: Path) -> None:
    program = """
        if index == 1:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            wait_for_the_end()
    """
    run = Run(manifest(tmp_path, program))
    assert run.code == 0
    ends = {end.replica: (end.exit_code, end.stopped) for end in run.record.attempts[0].ends}
    assert ends == {"qcnn-worker-0": (0, False), "qcnn-worker-1": (137, True)}


# Restarts


def test_a_failure_restarts_the_gang_and_is_charged_to_its_cause(tmp_path: Path) -> None:
    program = """
        if attempt == 0:
            epoch(1)
            epoch(2, loss=9.0)
            if index == 1:
                sys.exit(3)
            wait_for_the_end()
        epoch(2)
        epoch(3)
    """
    run = Run(manifest(tmp_path, program))
    assert run.code == 0
    first, second = run.record.attempts
    assert (first.cause, first.reason, first.charged) == ("qcnn-worker-1", "ReplicaFailed", True)
    assert (second.attempt, second.restarts, second.cause, second.charged) == (1, 1, None, False)
    assert {(end.replica, end.exit_code, end.stopped) for end in first.ends} == {
        ("qcnn-worker-1", 3, False),
        ("qcnn-worker-0", 143, True),
    }
    assert "qcnn-worker-1 exited with 3 in attempt 0; restart 1 of 3 from the last checkpoint in " in run.err
    assert [(line.epoch, line.attempt, line.loss) for line in run.record.progress] == [
        (1, 0, 1.0),
        (2, 1, 0.5),
        (3, 1, 1 / 3),
    ]


def test_each_attempt_gets_fresh_ports_and_the_same_uid(tmp_path: Path) -> None:
    program = """
        say(json.dumps([config["cluster"]["worker"], os.environ["QMLJOB_UID"], os.environ["QMLJOB_RESTARTS"]]))
        sys.exit(0 if attempt else 3)
    """
    run = Run(manifest(tmp_path, program))
    first, second = (json.loads(run.log(f"qcnn-worker-0-attempt{attempt}")) for attempt in (0, 1))
    assert set(first[0]).isdisjoint(second[0])
    assert first[1] == second[1]
    assert (first[2], second[2]) == ("0", "1")


def test_the_backoff_limit_is_obeyed(tmp_path: Path) -> None:
    program = """
        say("about to fail in", attempt)
        sys.exit(3)
    """
    run = Run(manifest(tmp_path, program, workers=1, runPolicy={"backoffLimit": 2}))
    assert (run.code, run.record.phase) == (1, Phase.FAILED)
    assert [attempt.charged for attempt in run.record.attempts] == [True, True, False]
    assert run.record.attempts[-1].reason == "BackoffLimitExceeded"
    assert run.err.splitlines()[-5:] == [
        "error: qcnn-worker-0 exited with 3; every restart of spec.runPolicy.backoffLimit is used up",
        "its last line:",
        "  about to fail in 2",
        f"logs: {run.folder / 'logs'}",
        "hint: look at the log; to go on from the last checkpoint: qmljob run again",
    ]
    assert run.out.count("succeeded") == 0


def test_a_preempted_worker_is_not_charged(tmp_path: Path) -> None:
    program = """
        if attempt < 2:
            sys.exit(75)
    """
    run = Run(manifest(tmp_path, program, runPolicy={"backoffLimit": 0}))
    assert run.code == 0
    assert [attempt.charged for attempt in run.record.attempts] == [False, False, False]
    assert "a restart that is not charged" in run.err


def test_an_invalid_configuration_fails_at_once_with_its_code(tmp_path: Path) -> None:
    program = """
        if index == 0:
            wait_for_the_end()
        for number in range(30):
            say("line", number)
        epoch(1)
        say("--qubits 2: must be 3 or more")
        sys.exit(64)
    """
    run = Run(manifest(tmp_path, program))
    assert (run.code, len(run.record.attempts)) == (64, 1)
    lines = run.err.splitlines()
    assert lines[0] == "error: qcnn-worker-1 exited with 64: invalid configuration"
    assert lines[1] == "its last 10 lines:"
    assert lines[2:12] == [*(f"  line {number}" for number in range(21, 30)), "  --qubits 2: must be 3 or more"]
    assert lines[-1] == "hint: correct what the last lines name, in the manifest, and run it again"


def test_survivors_that_ignore_sigterm_are_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    program = f"""
        if attempt == 1:
            sys.exit(0)
        if index == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open({str(fifo)!r}, "w").close()
            wait_for_the_end()
        open({str(fifo)!r}).read()
        sys.exit(3)
    """
    run = Run(manifest(tmp_path, program))
    assert run.code == 0
    ends = {end.replica: (end.exit_code, end.stopped) for end in run.record.attempts[0].ends}
    assert ends == {"qcnn-worker-1": (3, False), "qcnn-worker-0": (137, True)}


def test_the_children_of_a_replica_end_with_it(tmp_path: Path) -> None:
    program = """
        import subprocess
        child = [sys.executable, "-c", "import signal; signal.pause()", sys.argv[0]]
        say(subprocess.Popen(child).pid)
        sys.exit(0 if attempt else 3)
    """
    run = Run(manifest(tmp_path, program))
    assert run.code == 0
    assert len(run.record.attempts) == 2


def test_the_active_deadline_ends_the_job(tmp_path: Path) -> None:
    run = Run(manifest(tmp_path, "wait_for_the_end()", runPolicy={"activeDeadlineSeconds": 1}))
    assert (run.code, run.record.phase) == (1, Phase.FAILED)
    assert run.err.splitlines()[0] == "error: the job took longer than runPolicy.activeDeadlineSeconds (1 s)"
    assert run.record.attempts[0].reason == "DeadlineExceeded"


def test_all_replicas_must_succeed_where_the_policy_says_so(tmp_path: Path) -> None:
    program = """
        if index == 1 and attempt == 0:
            sys.exit(3)
    """
    run = Run(manifest(tmp_path, program, successPolicy="AllReplicas"))
    assert (run.code, len(run.record.attempts)) == (0, 2)


def test_a_flood_of_output_is_delivered_whole(tmp_path: Path) -> None:
    program = """
        for number in range(20000):
            print("line", number)
        print("x" * 40000)
        sys.stdout.write("no newline at the end")
    """
    run = Run(manifest(tmp_path, program, workers=1))
    shown = [line.removeprefix("[worker-0] ") for line in run.out.splitlines()]
    assert shown[:20000] == [f"line {number}" for number in range(20000)]
    assert "".join(shown[20000:20003]) == "x" * 40000
    assert shown[20003] == "no newline at the end"


def test_bars_and_odd_bytes_are_lines(tmp_path: Path) -> None:
    program = r"""
        sys.stdout.buffer.write(b"10%\r20%\r\nnot utf-8: \xff\n\ncut \xc3")
    """
    run = Run(manifest(tmp_path, program, workers=1))
    shown = [line.removeprefix("[worker-0] ") for line in run.out.splitlines()]
    assert shown[:5] == ["10%", "20%", "not utf-8: \ufffd", "", "cut \ufffd"]


# Runs that are interrupted


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
        os.set_blocking(reader, True)
        # The end of the file: the last process that held the other end is gone.
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
