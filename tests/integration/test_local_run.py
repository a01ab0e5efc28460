"""Local runs of tiny programs in the place of replicas: gangs, restarts, deadlines and output."""

import json
import os
from pathlib import Path

import pytest

from qmljob.local.record import Phase
from support.local_run import INFER, Run, manifest, nothing_is_left

__all__ = ["nothing_is_left"]
pytestmark = pytest.mark.usefixtures("nothing_is_left")

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
        meet()
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
    assert "qcnn: training succeeded, inference failed in " in run.out


def test_what_still_runs_after_the_chiefs_success_is_ended(tmp_path: Path) -> None:
    program = """
        if index == 1:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        meet()
        if index == 1:
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
    assert "qcnn-worker-1 exited with 3 in attempt 0; starting again in " in run.err
    assert " s (restart 1 of 3)" in run.err
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
    assert "(not charged)" in run.err


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
