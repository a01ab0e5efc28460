"""The whole way through a bucket: real programs, google-cloud-storage over HTTP, an emulator with preconditions."""

from collections.abc import Iterator

import pytest
import requests

from qmljob_api.exitcodes import ExitCode
from support.fault_proxy import Answer, CutAnswer, FaultProxy, fault_proxy
from support.gcs_emulator import Emulator, running_emulator
from support.programs import SMALL, infer, train_gang

PLACES = (
    "--weights-gcs-bucket=qmljob",
    "--weights-gcs-path=models/qcnn_weights.h5",
    "--checkpoint-location=gs://qmljob/checkpoints",
    "--logdir=gs://qmljob/logs",
)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with running_emulator(tmp_path_factory.mktemp("emulator") / "log.txt") as emulator:
        yield emulator


@pytest.fixture
def proxy(emulator: Emulator) -> Iterator[FaultProxy]:
    with fault_proxy(emulator.host, emulator.port) as proxy:
        yield proxy


def test_two_workers_train_into_a_bucket_through_faults_and_inference_reads_from_it(
    emulator: Emulator, proxy: FaultProxy
) -> None:
    requests.post(f"{emulator.url}/storage/v1/b", json={"name": "qmljob"}, timeout=30).raise_for_status()
    proxy.plan(Answer(503), method="POST", times=2)
    proxy.plan(CutAnswer(), method="POST", times=1)
    proxy.plan(Answer(429), contains="checkpoint.json", times=1)
    proxy.plan(CutAnswer(), contains="qcnn_weights", times=1)
    env = {"STORAGE_EMULATOR_HOST": proxy.url}
    trained = train_gang(2, *SMALL, "--epochs=3", *PLACES, env=env)
    assert [each.code for each in trained] == [0, 0], trained
    assert proxy.unused == 0
    listed = requests.get(f"{emulator.url}/storage/v1/b/qmljob/o", timeout=30).json()["items"]
    names = {str(item["name"]) for item in listed}
    assert {"models/qcnn_weights.h5", "models/qcnn_weights.json"} <= names
    assert any(name.startswith("logs/worker-0/events.out.tfevents") for name in names)
    assert any(name.endswith("/checkpoint.json") for name in names)
    result = infer(*PLACES[:2], env=env).result
    assert result is not None
    assert result.mse == pytest.approx(trained[0].progress[-1].val_loss, abs=1e-6)


def test_a_bucket_that_does_not_exist_is_one_line(emulator: Emulator) -> None:
    env = {"STORAGE_EMULATOR_HOST": emulator.url}
    ended = train_gang(1, *SMALL, "--weights-gcs-bucket=nowhere", "--weights-gcs-path=a.h5", env=env)[0]
    ended.check_refusal(ExitCode.INVALID_CONFIGURATION, "nowhere", "bucket")
