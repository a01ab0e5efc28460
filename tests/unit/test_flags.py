"""The worker program's flags: defaults, the tutorial's own, and what is refused."""

import pytest

from qmljob_training.errors import ConfigurationError
from qmljob_training.flags import JobIdentity, TrainingConfig, parse_flags, read_identity
from qmljob_training.workloads.protocol import WorkloadOptions


def parse(*flags: str, **env: str) -> TrainingConfig:
    return parse_flags(flags, env)


def test_defaults_are_the_tutorials_run() -> None:
    config = parse()
    assert config.options == WorkloadOptions(qubits=8, examples=160, seed=0)
    assert (config.workload, config.strategy, config.engine) == ("qcnn", "multi-worker-mirrored", "auto")
    assert (config.epochs, config.learning_rate, config.threads) == (50, 0.02, 1)
    assert [config.batch_of_all(workers) for workers in (1, 2, 3)] == [32, 64, 96]
    assert (config.artifact, config.checkpoint_location, config.resume_from, config.logdir) == (None,) * 4
    assert (config.profiler_port, config.profile_epoch, config.checkpoint_steps) == (None, 0, 0)
    assert (config.progress, config.grace_seconds, config.peer_timeout_seconds) == ("auto", 30.0, 0.0)
    assert config.job == JobIdentity("default", "manual", "manual", 0)


def test_flags_of_the_tutorial_name_the_artifact_and_the_rest() -> None:
    config = parse(
        "--weights-gcs-bucket=quantum-bucket",
        "--weights-gcs-path=models/qcnn_weights.h5",
        "--logdir=gs://quantum-bucket/logs",
        "--profiler-port=2223",
    )
    assert config.artifact == "gs://quantum-bucket/models/qcnn_weights.h5"
    assert (config.logdir, config.profiler_port) == ("gs://quantum-bucket/logs", 2223)


@pytest.mark.parametrize(
    ("bucket", "path"),
    [("b-1", "p/w.h5"), ("gs://b-1", "p/w.h5"), ("gs://b-1/", "/p/w.h5"), ("b-1/", "p/w.h5")],
)
def test_bucket_and_path_may_be_written_with_scheme_and_slashes(bucket: str, path: str) -> None:
    config = parse(f"--weights-gcs-bucket={bucket}", f"--weights-gcs-path={path}")
    assert config.artifact == "gs://b-1/p/w.h5"


@pytest.mark.parametrize(
    ("flags", "sizes"),
    [
        pytest.param(["--batch-size=5"], [5, 10, 15], id="per worker"),
        pytest.param(["--global-batch-size=6"], [6, 6, 6], id="over all workers"),
    ],
)
def test_a_batch_is_given_per_worker_or_over_all(flags: list[str], sizes: list[int]) -> None:
    assert [parse(*flags).batch_of_all(workers) for workers in (1, 2, 3)] == sizes


# Flags -> the beginning of the one line of error. Each names the flag, and says what would be right.
BAD = [
    pytest.param(["--qubits=eight"], "--qubits eight: must be a whole number", id="qubits no number"),
    pytest.param(["--qubits=8.5"], "--qubits 8.5: must be a whole number", id="qubits a fraction"),
    pytest.param(["--qubits=0"], "--qubits 0: must be 1 or more", id="no qubits"),
    pytest.param(["--examples=-1"], "--examples -1: must be 1 or more", id="negative examples"),
    pytest.param(["--epochs=0"], "--epochs 0: must be 1 or more", id="no epoch"),
    pytest.param(["--batch-size=0"], "--batch-size 0: must be 1 or more", id="batch 0"),
    pytest.param(["--global-batch-size=0"], "--global-batch-size 0: must be 1 or more", id="global batch 0"),
    pytest.param(
        ["--batch-size=5", "--global-batch-size=6"],
        "--global-batch-size not allowed with argument --batch-size",
        id="both batch sizes",
    ),
    pytest.param(["--artifact="], "--artifact is empty", id="an empty artifact"),
    pytest.param(
        ["--weights-gcs-bucket=", "--weights-gcs-path="], "--weights-gcs-bucket is empty", id="an empty bucket"
    ),
    pytest.param(["--seed=-1"], "--seed -1: must be 0 or more", id="negative seed"),
    pytest.param(["--seed=99999999999"], "--seed 99999999999: must be 2147483647 or less", id="huge seed"),
    pytest.param(["--learning-rate=nan"], "--learning-rate nan: must be a finite number above 0", id="rate NaN"),
    pytest.param(["--learning-rate=inf"], "--learning-rate inf: must be a finite number above 0", id="rate infinite"),
    pytest.param(["--learning-rate=0"], "--learning-rate 0: must be a finite number above 0", id="rate 0"),
    pytest.param(
        ["--learning-rate=-1e-3"], "--learning-rate -1e-3: must be a finite number above 0", id="rate below 0"
    ),
    pytest.param(["--learning-rate=fast"], "--learning-rate fast: must be a number", id="rate no number"),
    pytest.param(["--threads=0"], "--threads 0: must be 1 or more", id="no threads"),
    pytest.param(["--checkpoint-steps=-1"], "--checkpoint-steps -1: must be 0 or more", id="negative steps"),
    pytest.param(["--profile-epoch=-1"], "--profile-epoch -1: must be 0 or more", id="negative epoch"),
    pytest.param(["--profiler-port=0"], "--profiler-port 0: must be 1 or more", id="port 0"),
    pytest.param(["--profiler-port=65536"], "--profiler-port 65536: must be 65535 or less", id="port too large"),
    pytest.param(["--grace-seconds=-1"], "--grace-seconds -1: must be a finite number above 0", id="negative grace"),
    pytest.param(["--progress=loud"], "--progress invalid choice: 'loud'", id="unknown progress"),
    pytest.param(["--qubits"], "--qubits expected one argument", id="a flag without a value"),
    pytest.param(["--qbits=8"], "unrecognized arguments: --qbits=8", id="a flag that does not exist"),
    pytest.param(["--epoch=3"], "unrecognized arguments: --epoch=3", id="an abbreviated flag"),
    pytest.param(["8"], "unrecognized arguments: 8", id="a value without a flag"),
    pytest.param(["--weights-gcs-bucket=b-1"], "--weights-gcs-path is missing", id="a bucket without a path"),
    pytest.param(["--weights-gcs-path=w.h5"], "--weights-gcs-bucket is missing", id="a path without a bucket"),
    pytest.param(
        ["--artifact=w.h5", "--weights-gcs-bucket=b-1", "--weights-gcs-path=w.h5"],
        "--artifact: give either it or --weights-gcs-bucket with --weights-gcs-path",
        id="the artifact twice",
    ),
]


@pytest.mark.parametrize(("flags", "message"), BAD)
def test_a_bad_flag_is_refused_in_a_line(flags: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse(*flags)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_argparses_own_errors_lead_to_the_help() -> None:
    with pytest.raises(ConfigurationError, match="see python -m qmljob_training --help"):
        parse("--qbits=8")


def test_help_names_the_installed_workloads(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse("--help")
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "--weights-gcs-bucket" in printed
    assert "qcnn-pure" in printed


def test_identity_comes_from_the_operators_variables() -> None:
    env = {"QMLJOB_NAMESPACE": "lab", "QMLJOB_NAME": "qcnn", "QMLJOB_UID": "u-1", "QMLJOB_ATTEMPT": "3"}
    identity = read_identity(env)
    assert identity == JobIdentity("lab", "qcnn", "u-1", 3)
    assert identity.path == "lab/qcnn/u-1"


@pytest.mark.parametrize(
    ("env", "path"),
    [
        pytest.param({}, "default/manual/manual", id="a run by hand"),
        pytest.param(
            {"QMLJOB_NAME": "", "QMLJOB_NAMESPACE": "", "QMLJOB_UID": ""}, "default/manual/manual", id="empty"
        ),
        pytest.param({"QMLJOB_NAME": "qcnn"}, "default/qcnn/manual", id="a name only"),
    ],
)
def test_a_run_without_an_operator_has_a_folder_too(env: dict[str, str], path: str) -> None:
    assert read_identity(env).path == path


@pytest.mark.parametrize("attempt", ["", "-1", "one", "1.5", "²"])
def test_an_attempt_that_is_no_number_is_refused_in_a_line(attempt: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse(QMLJOB_ATTEMPT=attempt)
    assert str(refusal.value) == f"QMLJOB_ATTEMPT={attempt}: must be a whole number from 0"


@pytest.mark.parametrize(("text", "seconds"), [("", 0.0), ("0", 0.0), ("45", 45.0), ("1.5", 1.5)])
def test_the_limit_of_the_wait_for_peers_comes_from_the_environment(text: str, seconds: float) -> None:
    assert parse(QMLJOB_PEER_TIMEOUT_SECONDS=text).peer_timeout_seconds == seconds


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "soon"])
def test_a_limit_that_is_no_time_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse(QMLJOB_PEER_TIMEOUT_SECONDS=text)
    assert str(refusal.value).startswith(f"QMLJOB_PEER_TIMEOUT_SECONDS={text}: must be a number of seconds")
