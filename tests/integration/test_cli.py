"""The `qmljob` command as a user meets it: exit code, standard output and standard error, pinned together."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import qmljob

JOB = """\
apiVersion: qml.dev/v1alpha1
kind: QMLJob
metadata:
  name: qcnn
spec:
  ports:
    - {name: profiler, port: 2223}
  replicaSpecs:
    worker:
      replicas: 2
      template:
        spec:
          containers:
            - {name: trainer, image: x, command: [python, -c, "print('trained')"]}
"""
ALIAS_BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 40)]
)
LIMIT = "more than 20,000 values, counted with aliases (*name) followed; is this the right file?"


def qmljob_command(*arguments: str, cwd: Path, **environment: str) -> tuple[int, str, str]:
    """Returns exit code, standard output and standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "qmljob", *arguments],
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def edited(*changes: tuple[str, str]) -> str:
    text = JOB
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


BAD_MANIFESTS = [
    pytest.param(None, ["no such file; give the path of a QMLJob manifest"], id="missing"),
    pytest.param("", ["empty; a QMLJob starts with 'apiVersion: qml.dev/v1alpha1' and 'kind: QMLJob'"], id="empty"),
    pytest.param(
        "a: [1\nb: }",
        ["line 2, column 2: not YAML: expected ',' or ']', but got ':' while parsing a flow sequence"],
        id="not YAML",
    ),
    pytest.param(
        JOB + "---\n" + JOB,
        ["2 documents; keep one QMLJob in a file, without '---' between parts"],
        id="several documents",
    ),
    pytest.param(
        "x" * 10_000_000,
        ["10,000,000 bytes, and a manifest has at most 1,000,000; is this the right file?"],
        id="10 MB",
    ),
    pytest.param(ALIAS_BOMB, [f"line 5, column 20: {LIMIT}"], id="alias bomb"),
    pytest.param(
        edited(("  name: qcnn", "  name: qcnn\n  name: again")),
        ["line 5, column 3: key 'name' stands on line 4 already; keep one of them"],
        id="double key",
    ),
    pytest.param(edited(("kind: QMLJob", "kind: TFJob")), ["kind: "], id="wrong kind"),
    pytest.param(edited(("v1alpha1", "v9")), ["apiVersion: "], id="wrong version"),
    pytest.param(edited(("replicas: 2", "replicaz: 2")), ["spec.replicaSpecs.worker.replicaz: "], id="unknown field"),
    pytest.param(edited(("replicas: 2", "replicas: 0")), ["spec.replicaSpecs.worker.replicas: "], id="zero replicas"),
    pytest.param(
        edited(("replicas: 2", "replicas: -1")), ["spec.replicaSpecs.worker.replicas: "], id="negative replicas"
    ),
    pytest.param(
        edited(("port: 2223}", "port: 2223}\n    - {name: profiler, port: 2224}")),
        ["spec.ports[1].name: "],
        id="port name twice",
    ),
    pytest.param(
        edited(("port: 2223}", "port: 2223}\n    - {name: other, port: 2223}")),
        ["spec.ports[1].port: "],
        id="port number twice",
    ),
    pytest.param(edited(("port: 2223}", "port: 2222}")), ["spec.ports[0].port: "], id="port of the rendezvous"),
    pytest.param(edited(("name: qcnn", "name: " + "q" * 60)), ["metadata.name: "], id="long name"),
    pytest.param(
        edited(("replicas: 2", "replicas: 0"), ("port: 2223", "port: 70000"), ("name: qcnn", "name: Q")),
        ["metadata.name: ", "spec.ports[0].port: ", "spec.replicaSpecs.worker.replicas: "],
        id="all errors at once",
    ),
]


@pytest.mark.parametrize(("content", "beginnings"), BAD_MANIFESTS)
def test_a_bad_manifest_is_said_line_by_line(tmp_path: Path, content: str | None, beginnings: list[str]) -> None:
    check_bad_manifest(tmp_path, "validate", content, beginnings)


@pytest.mark.parametrize(("content", "beginnings"), BAD_MANIFESTS[::4])
def test_a_bad_manifest_is_not_run(tmp_path: Path, content: str | None, beginnings: list[str]) -> None:
    check_bad_manifest(tmp_path, "run", content, beginnings)


def check_bad_manifest(tmp_path: Path, command: str, content: str | None, beginnings: list[str]) -> None:
    if content is not None:
        (tmp_path / "job.yaml").write_text(content)
    code, out, err = qmljob_command(command, "job.yaml", cwd=tmp_path)
    lines = err.splitlines()
    assert (code, out, len(lines)) == (64, "", len(beginnings)), err
    for line, beginning in zip(sorted(lines), sorted(beginnings), strict=True):
        assert line.startswith(f"job.yaml: {beginning}")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("changes", "beginnings"),
    [
        pytest.param(
            [("command: [python,", "command: [sh,")],
            [".worker.template.spec.containers[0].command: its command begins with 'sh'"],
            id="another image",
        ),
        pytest.param(
            [("        spec:\n", "        spec:\n          volumes: [{name: v, emptyDir: {}}]\n")],
            [".worker.template.spec.volumes: a volume needs a cluster"],
            id="volumes",
        ),
        pytest.param(
            [
                (
                    "command: [python,",
                    "env: [{name: T, valueFrom: {secretKeyRef: {name: s, key: k}}}], command: [python,",
                ),
                ("image: x,", "image: x, envFrom: [{secretRef: {name: s}}],"),
            ],
            [
                ".worker.template.spec.containers[0].env[0].valueFrom: T comes from secretKeyRef",
                ".worker.template.spec.containers[0].envFrom: envFrom needs a cluster",
            ],
            id="secrets",
        ),
    ],
)
def test_what_needs_a_cluster_is_valid_but_not_run_here(
    tmp_path: Path, changes: list[tuple[str, str]], beginnings: list[str]
) -> None:
    (tmp_path / "job.yaml").write_text(edited(*changes))
    assert qmljob_command("validate", "job.yaml", cwd=tmp_path)[0] == 0
    code, out, err = qmljob_command("run", "job.yaml", cwd=tmp_path)
    lines = sorted(err.splitlines())
    assert (code, out, len(lines)) == (64, "", len(beginnings)), err
    for line, beginning in zip(lines, sorted(beginnings), strict=True):
        assert line.startswith(f"job.yaml: spec.replicaSpecs{beginning}")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param(["frob"], "error: No such command 'frob'; see qmljob --help", id="unknown command"),
        pytest.param(["run"], "error: Missing argument 'FILE'; see qmljob --help", id="no file"),
        pytest.param(
            ["run", "job.yaml", "--frob"], "error: No such option: --frob; see qmljob --help", id="unknown flag"
        ),
        pytest.param(
            ["run", "job.yaml", "--replicas", "0"],
            "job.yaml: spec.replicaSpecs.worker.replicas: 0 is less than 1; set it to 1 or more",
            id="no replicas",
        ),
        pytest.param(
            ["run", "job.yaml", "--store", "job.yaml"],
            "{cwd}/job.yaml: can't be written: Not a directory; choose another folder by --store",
            id="the store is a file",
        ),
        pytest.param(
            ["run", "job.yaml", "--store", "s", "--report", "job.yaml"],
            "{cwd}/job.yaml: can't be made: Not a directory; choose another by --report",
            id="the report is a file",
        ),
    ],
)
def test_bad_flags_are_one_line(tmp_path: Path, arguments: list[str], error: str) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    assert qmljob_command(*arguments, cwd=tmp_path) == (64, "", error.format(cwd=tmp_path) + "\n")


def test_a_flag_that_is_no_number(tmp_path: Path) -> None:
    code, out, err = qmljob_command("run", "job.yaml", "--replicas", "two", cwd=tmp_path)
    assert (code, out, err.count("\n")) == (64, "", 1)
    assert err.startswith("error: Invalid value for '--replicas'")


def test_a_valid_manifest_is_summed_up_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    expected = "job.yaml: valid: job qcnn in namespace default with 2 x worker\n"
    assert qmljob_command("validate", "job.yaml", cwd=tmp_path) == (0, expected, "")


def test_version_and_help(tmp_path: Path) -> None:
    assert qmljob_command("--version", cwd=tmp_path) == (0, f"qmljob {qmljob.__version__}\n", "")
    code, out, err = qmljob_command(cwd=tmp_path)
    assert (code, err) == (0, "")
    assert "validate" in out
    assert qmljob_command("--help", cwd=tmp_path) == (0, out, "")
    code, out, err = qmljob_command("run", "--help", cwd=tmp_path)
    assert (code, err) == (0, "")
    for flag in ("--replicas", "--store", "--report", "--quiet", "--no-inference", "--namespace"):
        assert flag in out
    assert "\x1b" not in out


def test_a_suspended_job_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(edited(("spec:\n  ports", "spec:\n  suspend: true\n  ports")))
    advice = "job.yaml: spec.suspend is true, so nothing starts; set it to false to run the job\n"
    assert qmljob_command("run", "job.yaml", cwd=tmp_path) == (0, "", advice)
    assert not (tmp_path / "runs").exists()


def test_the_client_never_imports_what_it_runs_as_a_process(tmp_path: Path) -> None:
    program = (
        "import sys, qmljob.cli, qmljob.local.run\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}\n"
        "  & {'qmljob_training', 'qmljob_inference', 'tensorflow', 'cirq', 'kopf', 'kubernetes', 'matplotlib'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_reader_that_goes_away_ends_the_run(tmp_path: Path) -> None:
    endless = "while True: print('again')"
    (tmp_path / "job.yaml").write_text(edited(("print('trained')", endless)))
    with subprocess.Popen(
        [sys.executable, "-m", "qmljob", "run", "job.yaml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert command.stdout.readline().endswith("again\n")
        command.stdout.close()
        assert command.wait(60) == 141
        assert "Traceback" not in command.stderr.read()
