"""Workloads, strategies and engines by entry points: found, checked on entry, refused in one line."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qmljob_api.exitcodes import ExitCode
from qmljob_training import plugins
from qmljob_training.engines.protocol import Engine
from qmljob_training.errors import ConfigurationError
from qmljob_training.strategies.protocol import Strategy
from qmljob_training.workloads.protocol import Workload
from support.programs import Ended, finish, infer, start, train, variables

PACKAGE = Path(__file__).parents[1] / "support" / "plugin_package"
OURS = {
    plugins.WORKLOADS: (Workload, ("qcnn", "qcnn-pure")),
    plugins.STRATEGIES: (Strategy, ("multi-worker-mirrored",)),
    plugins.ENGINES: (Engine, ("auto", "lightcone", "tfq")),
}


def install(folder: Path, distribution: str, source: str, points: str) -> Path:
    """Writes a module, `<distribution>` with underscores, and its metadata as an installer would."""
    module = distribution.replace("-", "_")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(points.format(module=module))
    return folder


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Installs a distribution that this process sees until the test ends."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(distribution: str, source: str, points: str) -> None:
        install(tmp_path, distribution, source, points)
        monkeypatch.delitem(sys.modules, distribution.replace("-", "_"), raising=False)

    return add


def refusal_of(group: str, name: str, protocol: type) -> str:
    with pytest.raises(ConfigurationError) as refusal:
        plugins.load(group, name, protocol)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize("group", OURS)
def test_our_own_are_registered_and_keep_their_protocols(group: str) -> None:
    protocol, expected = OURS[group]
    assert set(expected) <= set(plugins.names(group))
    if group != plugins.ENGINES:  # which import TensorFlow
        assert all(isinstance(plugins.load(group, name, protocol), protocol) for name in expected)


def test_every_load_gives_a_new_instance() -> None:
    strategies = [plugins.load(plugins.STRATEGIES, "multi-worker-mirrored", Strategy) for _ in range(2)]
    assert strategies[0] is not strategies[1]


@pytest.mark.parametrize(
    ("group", "flag"),
    [(plugins.WORKLOADS, "--workload"), (plugins.STRATEGIES, "--strategy"), (plugins.ENGINES, "--engine")],
)
def test_an_unknown_name_lists_the_known_ones(group: str, flag: str) -> None:
    protocol, known = OURS[group]
    refusal = refusal_of(group, "unheard-of", protocol)
    assert refusal.startswith(f"{flag} unheard-of: unknown; choose one of: ")
    assert all(name in refusal for name in known)
    with pytest.raises(ConfigurationError, match="choose one of"):
        plugins.check_known(group, "unheard-of")


# A stranger's module -> what the one line says of it.
BROKEN = [
    pytest.param(
        "raise ValueError('no licence\\nfound')", "broken can't be loaded (ValueError: no licence);", id="raises"
    ),
    pytest.param("import not_installed_anywhere", "(ModuleNotFoundError: No module named", id="lacks a library"),
    pytest.param("def Thing(:", "can't be loaded (SyntaxError: ", id="does not parse"),
    pytest.param("Other = int", "can't be loaded (AttributeError: ", id="lacks the class"),
    pytest.param(
        "class Thing:\n    def __init__(self): raise RuntimeError", "(RuntimeError: no reason given)", id="no reason"
    ),
    pytest.param(
        "class Thing:\n    def __init__(self, x): pass", "can't be loaded (TypeError: ", id="wants an argument"
    ),
    pytest.param(
        "class Thing:\n    name = 'thing'\n    def connect(self, rendezvous): pass",
        "broken:Thing of broken lacks check, exchange, trainer; see qmljob_training.strategies.protocol.Strategy",
        id="lacks members",
    ),
    pytest.param("Thing = dict", "lacks check, connect, exchange, name, trainer;", id="is something else"),
]


@pytest.mark.parametrize(("source", "message"), BROKEN)
def test_a_plugin_that_cannot_work_is_named_in_a_line(
    installed: Callable[[str, str, str], None], source: str, message: str
) -> None:
    installed("broken", source, "[qmljob.strategies]\nbroken = {module}:Thing\n")
    refusal = refusal_of(plugins.STRATEGIES, "broken", Strategy)
    assert refusal.startswith("--strategy broken: ")
    assert message in refusal


def test_two_packages_that_claim_a_name_are_both_named(installed: Callable[[str, str, str], None]) -> None:
    for distribution in ("one-package", "other-package"):
        installed(distribution, "class Thing: pass", "[qmljob.engines]\ntwice = {module}:Thing\n")
    assert refusal_of(plugins.ENGINES, "twice", Engine) == (
        "--engine twice: claimed by one-package (one_package:Thing) and other-package (other_package:Thing); "
        "uninstall one of them"
    )


def test_a_package_that_claims_a_name_of_ours_does_not_replace_it(installed: Callable[[str, str, str], None]) -> None:
    installed("impostor", "class Thing: pass", "[qmljob.workloads]\nqcnn = {module}:Thing\n")
    refusal = refusal_of(plugins.WORKLOADS, "qcnn", Workload)
    assert "claimed by impostor (impostor:Thing) and qmljob-training (" in refusal


@pytest.mark.parametrize(
    ("source", "points", "flag", "words"),
    [
        pytest.param("", "", "--engine=unheard-of", ("--engine unheard-of: unknown", "tfq"), id="an unknown engine"),
        pytest.param(
            "1 / 0", "[qmljob.workloads]\nbad = {module}:X\n", "--workload=bad", ("ZeroDivisionError",), id="raises"
        ),
        pytest.param(
            "class X: pass",
            "[qmljob.strategies]\nbad = {module}:X\n",
            "--strategy=bad",
            ("lacks check",),
            id="lacks members",
        ),
        pytest.param(
            "class X: pass",
            "[qmljob.workloads]\nqcnn = {module}:X\n",
            "--workload=qcnn",
            ("claimed by",),
            id="claims ours",
        ),
    ],
)
def test_the_program_ends_with_one_line_and_invalid_configuration(
    tmp_path: Path, source: str, points: str, flag: str, words: tuple[str, ...]
) -> None:
    folder = install(tmp_path / "site", "bad-plugins", source, points)
    ended = train(flag, "--epochs=1", env={"PYTHONPATH": str(folder)})
    ended.check_refusal(ExitCode.INVALID_CONFIGURATION, *words)
    assert ended.stdout == ""


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the test package is installed, built from its source as pip would, without network."""
    folder = tmp_path_factory.mktemp("toys")
    source = shutil.copytree(PACKAGE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    command = [
        str(Path(sys.prefix) / "bin" / "uv"), "pip", "install", "--quiet", "--offline", "--no-deps",
        "--no-build-isolation", "--python", sys.executable, "--target", str(folder / "site"), str(source),
    ]  # fmt: skip
    env = {**os.environ, "UV_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder / "site"


TOYS = ("--workload=toy", "--strategy=toy-strategy", "--engine=toy-engine", "--progress=json", "--qubits=3")


def test_a_package_outside_of_the_tree_trains_resumes_and_infers(toys: Path, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(toys)}
    artifact, checkpoints = f"{tmp_path}/toy.h5", f"--checkpoint-location={tmp_path}/checkpoints"
    flags = (*TOYS, "--learning-rate=0.1", checkpoints, f"--artifact={artifact}", f"--logdir={tmp_path}/logs")

    first = train(*flags, "--epochs=2", env=env)
    assert first.code == 0, first.stderr
    assert [line.epoch for line in first.progress] == [1, 2]
    assert first.progress[1].loss < first.progress[0].loss

    second = train(*flags, "--epochs=4", env=env)
    assert second.code == 0, second.stderr
    assert [line.epoch for line in second.progress] == [2, 3, 4], "the last line again, then new ones"

    result = infer(f"--artifact={artifact}", env=env)
    assert result.code == 0, result.stderr
    assert result.result is not None
    assert result.result.mse == pytest.approx(second.progress[-1].val_loss, abs=1e-6)


def test_what_a_plugin_refuses_is_a_line_too(toys: Path) -> None:
    env = {"PYTHONPATH": str(toys)}
    train(*TOYS, "--examples=3", env=env).check_refusal(
        ExitCode.INVALID_CONFIGURATION, "--examples 3: toy needs 4 or more"
    )


def test_a_plugin_of_one_kind_works_with_ours_of_the_others(toys: Path) -> None:
    # The toy engine is asked for a circuit that it does not know: the refusal is its own.
    flags = ("--workload=qcnn", "--qubits=3", "--strategy=toy-strategy", "--engine=toy-engine")
    train(*flags, env={"PYTHONPATH": str(toys)}).check_refusal(
        ExitCode.INVALID_CONFIGURATION, "engine toy-engine knows two rotations about X and nothing else; use tfq"
    )


CONTRACT = """
from qmljob_training import plugins, runtime
runtime.prepare_environment()
from qmljob_training.testing.workload_contract import WorkloadCase, assert_workload_contract
from qmljob_training.workloads.protocol import Workload, WorkloadOptions
workload = plugins.load(plugins.WORKLOADS, "toy", Workload)
assert_workload_contract(WorkloadCase(workload, WorkloadOptions(qubits=3, examples=20, seed=1), engine=None))
print("kept")
"""


def test_its_author_can_run_the_contract(toys: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CONTRACT], env=variables(PYTHONPATH=str(toys)), stdout=subprocess.PIPE, text=True
    )
    ended: Ended = finish(process)
    assert (ended.code, ended.stdout) == (0, "kept\n")


def test_help_lists_it_beside_ours(toys: Path) -> None:
    ended = finish(start("qmljob_training", ["--help"], variables(PYTHONPATH=str(toys))))
    assert ended.code == 0
    assert "qcnn, qcnn-pure, toy" in " ".join(ended.stdout.split())
