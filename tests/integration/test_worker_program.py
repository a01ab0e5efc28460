"""The worker program as a process: what it computes, how it stops and goes on, what it says when it can't."""

import fcntl
import json
import os
import pty
import signal
import socket
import struct
import termios
from pathlib import Path

import numpy as np
import pytest

from qmljob_api import environment
from qmljob_api.exitcodes import ExitCode
from support import programs
from support.programs import SMALL, Ended, assert_same_bits, read_weights, train, train_gang
from support.small_disk import small_disk

EPOCHS = 6


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """An undisturbed run of one worker, with everything that it can write."""
    folder = tmp_path_factory.mktemp("one")
    ended = train(*SMALL, f"--epochs={EPOCHS}", f"--logdir={folder}/logs", "--profile-epoch=2", *places(folder))
    assert ended.code == 0, ended.stderr
    return folder, ended


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Ended]]:
    """The same with two workers; each serves the profiler."""
    folder = tmp_path_factory.mktemp("two")
    ended = train_gang(2, *SMALL, f"--epochs={EPOCHS}", *places(folder))
    assert [each.code for each in ended] == [0, 0], ended
    return folder, ended


def places(folder: Path) -> tuple[str, str]:
    return f"--artifact=file://{folder}/weights.h5", f"--checkpoint-location=file://{folder}/checkpoints"


class TestTraining:
    def test_the_first_lines_state_the_batch_and_what_this_worker_sees(
        self, one_worker: tuple[Path, Ended], two_workers: tuple[Path, list[Ended]]
    ) -> None:
        assert "global batch 8 over 1 worker(s); this one takes examples [0:8]" in one_worker[1].stderr
        for index, ended in enumerate(two_workers[1]):
            takes = f"[{index * 4}:{index * 4 + 4}]"
            assert f"global batch 8 over 2 worker(s); this one takes examples {takes} of each batch" in ended.stderr
            assert "28 training and 12 test examples, 4 step(s) an epoch, 4 example(s) in the last" in ended.stderr

    def test_a_json_line_an_epoch(self, one_worker: tuple[Path, Ended]) -> None:
        lines = one_worker[1].progress
        assert [(line.epoch, line.step, line.epochs) for line in lines] == [
            (e, 4 * e, EPOCHS) for e in range(1, EPOCHS + 1)
        ]
        assert lines[-1].loss < lines[0].loss

    def test_one_worker_and_two_give_the_same_values(
        self, one_worker: tuple[Path, Ended], two_workers: tuple[Path, list[Ended]]
    ) -> None:
        alone = one_worker[1].progress
        for ended in two_workers[1]:
            for field in ("loss", "val_loss", "sign_accuracy", "val_sign_accuracy"):
                expected = [getattr(line, field) for line in alone]
                np.testing.assert_allclose([getattr(line, field) for line in ended.progress], expected, atol=2e-4)
        one, two = read_weights(one_worker[0] / "weights.h5"), read_weights(two_workers[0] / "weights.h5")
        # The last symbol turns a source about Z right before it is discarded: its gradient is 0, and what Adam makes
        # of the float noise around 0 has no meaning.
        symbols = "quantum/quantum/symbols:0"
        np.testing.assert_allclose(one[symbols][:-1], two[symbols][:-1], atol=2e-3)
        for name in one.keys() - {symbols}:
            np.testing.assert_allclose(one[name], two[name], atol=2e-3, err_msg=name)

    def test_workers_agree_to_the_last_bit(self, two_workers: tuple[Path, list[Ended]]) -> None:
        first, second = (
            [(line.loss, line.val_loss, line.sign_accuracy) for line in ended.progress] for ended in two_workers[1]
        )
        assert first == second

    def test_the_plain_copy_is_the_artifact(self, one_worker: tuple[Path, Ended]) -> None:
        folder = one_worker[0]
        named = json.loads((folder / "weights.json").read_text())["weights"]["name"]
        assert (folder / named).read_bytes() == (folder / "weights.h5").read_bytes()


class TestResuming:
    def test_sigterm_stops_all_workers_at_the_same_step_and_the_next_run_ends_in_the_same_bits(
        self, tmp_path: Path, two_workers: tuple[Path, list[Ended]]
    ) -> None:
        flags = (*SMALL, *places(tmp_path))
        env = {environment.UID: "u1"}
        gang = programs.start_gang(2, *flags, "--epochs=100000", env=env)
        try:
            # A line of the second epoch shows that training goes on.
            stdout = gang[1].stdout
            assert stdout is not None
            seen = [stdout.readline() for _ in range(2)]
            assert '"epoch":2' in seen[1], seen
            gang[1].send_signal(signal.SIGTERM)
            ended = [programs.finish(process) for process in gang]
        finally:
            for process in gang:
                process.kill()
        assert [each.code for each in ended] == [ExitCode.PREEMPTED] * 2
        last = [line for each in ended for line in each.stderr.splitlines() if line.startswith("stopped by SIGTERM")]
        assert len(last) == 2
        assert last[0] == last[1]
        epoch = int(last[0].split("epoch ")[1].split(",")[0])
        target = epoch + 2
        resumed = train_gang(2, *flags, f"--epochs={target}", env=env | {environment.ATTEMPT: "1"})
        assert [each.code for each in resumed] == [0, 0], resumed
        assert resumed[0].progress[-1].epoch == target
        undisturbed = tmp_path / "undisturbed"
        again = train_gang(2, *SMALL, f"--epochs={target}", *places(undisturbed))
        assert [each.code for each in again] == [0, 0]
        assert_same_bits(read_weights(undisturbed / "weights.h5"), read_weights(tmp_path / "weights.h5"))
        assert resumed[0].progress[-1].loss == again[0].progress[-1].loss

    def test_a_finished_job_that_starts_again_trains_no_step_and_leaves_its_artifact_alone(
        self, one_worker: tuple[Path, Ended]
    ) -> None:
        folder = one_worker[0]
        before = {path: path.stat().st_mtime_ns for path in folder.glob("weights*")}
        again = train(*SMALL, f"--epochs={EPOCHS}", *places(folder), env={environment.ATTEMPT: "1"})
        assert again.code == 0
        assert [(line.epoch, line.seconds) for line in again.progress] == [(EPOCHS, 0.0)], "its last line, repeated"
        assert again.progress[0].val_loss == one_worker[1].progress[-1].val_loss
        assert {path: path.stat().st_mtime_ns for path in folder.glob("weights*")} == before

    def test_other_threads_are_named_when_resuming(self, tmp_path: Path) -> None:
        assert train(*SMALL, "--epochs=1", *places(tmp_path)).code == 0
        again = train(*SMALL, "--epochs=2", "--threads=2", *places(tmp_path), env={environment.ATTEMPT: "1"})
        assert again.code == 0
        assert (
            "warning: resuming with other settings, so the bits that follow may differ: threads 1 -> 2" in again.stderr
        )

    def test_a_checkpoint_of_another_job_is_refused(self, one_worker: tuple[Path, Ended]) -> None:
        folder = one_worker[0]
        other = train("--qubits=5", *SMALL[1:], *places(folder), env={environment.ATTEMPT: "2"})
        other.check_refusal(ExitCode.BAD_ARTIFACT, "qubits 4 (here 5)", "--checkpoint-location")

    def test_resume_from_takes_another_jobs_checkpoint(self, one_worker: tuple[Path, Ended]) -> None:
        folder = one_worker[0]
        source = f"--resume-from=file://{folder}/checkpoints/default/manual/manual"
        target = f"--checkpoint-location=file://{folder}/other"
        ended = train(*SMALL, f"--epochs={EPOCHS + 1}", source, target)
        assert ended.code == 0, ended.stderr
        assert [line.epoch for line in ended.progress] == [EPOCHS, EPOCHS + 1], "the last line repeated, then a new one"

    def test_resume_from_a_place_without_a_checkpoint_is_refused(self, tmp_path: Path) -> None:
        ended = train(*SMALL, f"--resume-from=file://{tmp_path}/nothing")
        ended.check_refusal(ExitCode.INVALID_CONFIGURATION, "--resume-from", "there is no checkpoint")

    def test_sigterm_while_waiting_for_peers_ends_at_once(self) -> None:
        ports = programs.free_ports(2)
        env = programs.variables(TF_CONFIG=programs.tf_config(ports, 0))
        process = programs.start("qmljob_training", SMALL, env)
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("waiting for worker-1")
            process.send_signal(signal.SIGTERM)
            assert programs.finish(process).code == ExitCode.PREEMPTED
        finally:
            process.kill()


class TestEventFiles:
    def test_scalars_histograms_graph_and_profile(self, one_worker: tuple[Path, Ended]) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        folder = one_worker[0] / "logs" / "worker-0"
        events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
        events.Reload()
        steps = [4 * epoch for epoch in range(1, EPOCHS + 1)]
        tags = events.Tags()
        assert tags["graph"]
        expected = {
            "loss/training",
            "loss/validation",
            "sign accuracy/training",
            "learning rate",
            "readouts/0",
            "readouts/1",
        }
        assert expected <= set(tags["tensors"])
        for tag in expected:
            assert [event.step for event in events.Tensors(tag)] == steps, tag
        assert list(folder.glob("plugins/profile/*/*.xplane.pb"))

    def test_a_bar_on_a_terminal(self) -> None:
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        flags = [flag for flag in SMALL if not flag.startswith("--progress")]
        process = programs.start("qmljob_training", [*flags, "--epochs=2"], programs.variables(), stderr=follower)
        os.close(follower)
        shown = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # the terminal's other side is closed
                break
            if not part:
                break
            shown += part
        os.close(leader)
        ended = programs.finish(process)
        assert ended.code == 0
        assert ended.stdout == ""
        assert b"2/2" in shown
        assert b"val_loss=" in shown


class TestRefusals:
    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            pytest.param(["--qubits=2"], ["--qubits 2", "at least 3"], id="2 qubits"),
            pytest.param(["--workload=qcnn-pure", "--qubits=12"], ["power of two", "8 or 16"], id="12 qubits, pure"),
            pytest.param(["--batch-size=0"], ["--batch-size 0", "1 or more"], id="batch 0"),
            pytest.param(["--learning-rate=nan"], ["--learning-rate nan", "finite"], id="NaN learning rate"),
            pytest.param(["--workload=qcn"], ["--workload qcn", "qcnn"], id="unknown workload"),
            pytest.param(["--artifact=file:///dev/null/a.h5"], ["/dev/null"], id="unwritable store"),
            pytest.param(["--artifact=file:///tmp/weights"], [".h5"], id="artifact without .h5"),
            pytest.param(["--weights-gcs-bucket=b"], ["--weights-gcs-path"], id="bucket without path"),
            pytest.param(["--epoch=3"], ["--epoch"], id="unknown flag"),
        ],
    )
    def test_flags(self, flags: list[str], words: list[str]) -> None:
        train(*flags).check_refusal(ExitCode.INVALID_CONFIGURATION, *words)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            pytest.param("{", ["TF_CONFIG", "JSON"], id="not JSON"),
            pytest.param(
                '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 3}}',
                ["TF_CONFIG", "3"],
                id="index",
            ),
            pytest.param(
                '{"cluster": {"wroker": ["a:1"]}, "task": {"type": "wroker", "index": 0}}',
                ["TF_CONFIG", "wroker"],
                id="role",
            ),
            pytest.param(
                '{"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}',
                ["evaluator"],
                id="evaluator",
            ),
            pytest.param(
                '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}', ["ps"], id="ps"
            ),
        ],
    )
    def test_tf_config(self, text: str, words: list[str]) -> None:
        train(env={"TF_CONFIG": text}).check_refusal(ExitCode.INVALID_CONFIGURATION, *words)

    def test_more_workers_than_examples(self) -> None:
        config = programs.tf_config(list(range(4001, 4009)), 0)
        ended = train("--examples=10", env={"TF_CONFIG": config})
        ended.check_refusal(ExitCode.INVALID_CONFIGURATION, "8 workers for 7 training examples", "--examples")

    def test_a_port_that_is_taken(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            ended = train(env={"TF_CONFIG": programs.tf_config([port], 0)})
            ended.check_refusal(ExitCode.INVALID_CONFIGURATION, f"port {port}", "end the process")
            ended = train(f"--profiler-port={port}")
            ended.check_refusal(ExitCode.INVALID_CONFIGURATION, f"--profiler-port {port}")

    def test_a_missing_peer_is_named_while_waiting_and_the_wait_has_a_limit(self) -> None:
        ports = programs.free_ports(2)
        env = {
            environment.NAME: "qcnn",
            environment.PEER_TIMEOUT_SECONDS: "5",
            "TF_CONFIG": programs.tf_config(ports, 0),
        }
        ended = train(*SMALL, env=env)
        assert f"waiting for qcnn-worker-1 at 127.0.0.1:{ports[1]}, 3 s" in ended.stderr
        ended.check_refusal(ExitCode.LOST_PEER, "qcnn-worker-1", "did not come within 5 s")

    def test_workers_with_different_flags_are_refused_and_the_flags_named(self) -> None:
        for ended in train_gang(2, *SMALL, "--epochs=2", last=("--seed=8", "--epochs=3")):
            ended.check_refusal(ExitCode.INVALID_CONFIGURATION, "different flags (--seed, --epochs)", "replicaSpecs")

    def test_a_full_disk_is_one_line_and_the_last_checkpoint_is_good(self, tmp_path: Path) -> None:
        script = Path(__file__).parents[1] / "support" / "full_disk_training.py"
        (tmp_path / "small").mkdir()
        with small_disk(tmp_path / "small") as disk:
            command = disk.command(str(script), str(disk.folder), *SMALL, "--epochs=100000")
            process = programs.start_command(command, programs.variables())
            try:
                ended = programs.finish(process)
            finally:
                process.kill()
        ended.check_refusal(ExitCode.STORE_FAILED, "disk full", "--checkpoint-location")
        assert ended.progress[0].epoch == 1
        assert "last checkpoint is good: True" in ended.stdout
