"""The inference program: its error is computed from the weights, and a bad artifact is one line."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import cirq
import h5py
import numpy as np
import pytest

from qmljob_api.artifact import ArtifactManifest
from qmljob_api.exitcodes import ExitCode
from qmljob_training.digest import data_file
from qmljob_training.workloads import cluster_excitation, qcnn_circuits
from support.programs import SMALL, Ended, infer, train

QUBITS = 4


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    folder = tmp_path_factory.mktemp("trained")
    ended = train(*SMALL, "--epochs=5", f"--artifact=file://{folder}/weights.h5")
    assert ended.code == 0, ended.stderr
    return folder, ended


@pytest.fixture
def copy(trained: tuple[Path, Ended], tmp_path: Path) -> Path:
    """A copy of the artifact, to be damaged."""
    return Path(shutil.copytree(trained[0], tmp_path / "artifact"))


def artifact(folder: Path) -> str:
    return f"--artifact=file://{folder}/weights.h5"


def manifest(folder: Path) -> ArtifactManifest:
    return ArtifactManifest.model_validate_json((folder / "weights.json").read_bytes())


def rewrite(folder: Path, change: Callable[[dict[str, object]], None]) -> None:
    document = json.loads((folder / "weights.json").read_text())
    change(document)
    (folder / "weights.json").write_text(json.dumps(document))


class TestResult:
    def test_the_error_on_the_artifacts_test_split_is_the_validation_loss(
        self, trained: tuple[Path, Ended], tmp_path: Path
    ) -> None:
        output = tmp_path / "result.json"
        ended = infer(artifact(trained[0]), f"--output={output}", "--fresh-examples=30", "--fresh-seed=5")
        assert ended.code == 0, ended.stderr
        result = ended.result
        assert result is not None
        last = trained[1].progress[-1]
        assert result.mse == pytest.approx(last.val_loss, abs=1e-6)
        assert result.sign_accuracy == last.val_sign_accuracy
        assert result.examples == 12
        assert (result.fresh_examples, result.fresh_seed) == (30, 5)
        assert result.fresh_mse != result.mse
        assert output.read_text() == ended.stdout
        assert f"Mean squared error: {result.mse:.6f}" in ended.stderr

    def test_the_error_does_not_come_from_the_manifest(self, copy: Path, trained: tuple[Path, Ended]) -> None:
        rewrite(copy, lambda document: document.pop("metrics"))
        result = infer(artifact(copy), "--fresh-examples=0").result
        assert result is not None
        assert result.mse == pytest.approx(trained[1].progress[-1].val_loss, abs=1e-6)
        assert result.fresh_mse is None

    def test_another_weight_gives_another_error(self, copy: Path, trained: tuple[Path, Ended]) -> None:
        name = manifest(copy).weights.name
        with h5py.File(copy / name, "r+") as file:
            file["output/output/bias:0"][0] += 0.25
        file_now = data_file("weights", ".h5", (copy / name).read_bytes())
        (copy / name).rename(copy / file_now.name)
        rewrite(copy, lambda document: document.update(weights=file_now.model_dump()))
        result = infer(artifact(copy), "--fresh-examples=0").result
        assert result is not None
        assert abs(result.mse - trained[1].progress[-1].val_loss) > 1e-3

    def test_five_examples_agree_with_cirqs_simulator(self, trained: tuple[Path, Ended]) -> None:
        folder = trained[0]
        split = np.load(io.BytesIO((folder / manifest(folder).test_split.name).read_bytes()))
        with h5py.File(folder / manifest(folder).weights.name) as file:
            symbols, hidden, hidden_bias, output, output_bias = (
                file[name][()].astype(np.float64)
                for name in (
                    "quantum/quantum/symbols:0",
                    "hidden/hidden/kernel:0",
                    "hidden/hidden/bias:0",
                    "output/output/kernel:0",
                    "output/output/bias:0",
                )
            )
        bits = cluster_excitation.register(QUBITS)
        circuit = cluster_excitation.encoding(bits) + qcnn_circuits.multi_readout(bits)
        observables = [cirq.Z(bit) for bit in bits[QUBITS // 2 :]]
        trained_symbols = dict(zip(manifest(folder).model.symbols, map(float, symbols), strict=True))
        expected = []
        for features in split["features"][:5]:
            angles = dict(zip(cluster_excitation.feature_symbols(QUBITS), map(float, features), strict=True))
            values = cirq.Simulator(dtype=np.complex128).simulate_expectation_values(
                circuit, observables, param_resolver={**trained_symbols, **angles}
            )
            expected.append(((np.real(values) @ hidden + hidden_bias) @ output + output_bias).item())
        ended = infer(artifact(folder), "--predictions", "--fresh-examples=0")
        lines = [line for line in ended.stderr.splitlines() if line.startswith("label ")]
        assert len(lines) == 12
        np.testing.assert_allclose([float(line.split()[-1]) for line in lines[:5]], expected, atol=1e-5)


class TestBadArtifacts:
    def test_missing(self, tmp_path: Path) -> None:
        infer(artifact(tmp_path)).check_refusal(ExitCode.BAD_ARTIFACT, "weights.json is missing", "wait for training")

    def test_truncated(self, copy: Path) -> None:
        path = copy / manifest(copy).weights.name
        path.write_bytes(path.read_bytes()[:-100])
        infer(artifact(copy)).check_refusal(ExitCode.BAD_ARTIFACT, path.name, "damaged", "train again")

    def test_a_flipped_bit(self, copy: Path) -> None:
        path = copy / manifest(copy).test_split.name
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        infer(artifact(copy)).check_refusal(ExitCode.BAD_ARTIFACT, path.name, "damaged", "train again")

    def test_a_damaged_manifest(self, copy: Path) -> None:
        (copy / "weights.json").write_text('{"kind": "qmljob-artifact"')
        infer(artifact(copy)).check_refusal(ExitCode.BAD_ARTIFACT, "manifest is damaged")

    def test_of_another_model(self, copy: Path) -> None:
        rewrite(copy, lambda document: document["model"].update(workload="qcnn-pure"))  # type: ignore[attr-defined]
        infer(artifact(copy)).check_refusal(ExitCode.BAD_ARTIFACT, "qcnn-pure", "use the version that wrote it")

    def test_of_another_register(self, copy: Path) -> None:
        rewrite(copy, lambda document: document["model"].update(qubits=5))  # type: ignore[attr-defined]
        infer(artifact(copy)).check_refusal(ExitCode.BAD_ARTIFACT, "parameters", "use the version that wrote it")

    def test_from_a_newer_format(self, copy: Path) -> None:
        rewrite(copy, lambda document: document.update(format=99))
        infer(artifact(copy)).check_refusal(ExitCode.BAD_ARTIFACT, "format 99", "upgrade")

    def test_no_location(self) -> None:
        infer().check_refusal(ExitCode.INVALID_CONFIGURATION, "--artifact is missing")
