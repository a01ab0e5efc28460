"""TF_CONFIG as we build it is what TensorFlow's own resolver takes."""

import json
import subprocess
import sys

import pytest

from qmljob_api.tfconfig import build_tf_config

_PROGRAM = """
import json, os, sys
import tensorflow as tf

answers = []
for text in json.load(sys.stdin):
    os.environ["TF_CONFIG"] = text
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    answers.append([resolver.cluster_spec().as_dict(), resolver.task_type, resolver.task_id])
print(json.dumps(answers))
"""

TWO = {"worker": ("qcnn-worker-0.lab.svc:2222", "qcnn-worker-1.lab.svc:2222")}
CASES = {
    "worker 0": (TWO, "worker", 0),
    "worker 1": (TWO, "worker", 1),
    "one replica": ({"worker": ("qcnn-worker-0.lab.svc:2222",)}, "worker", 0),
    "a chief": ({"chief": ("qcnn-chief-0.lab.svc:2222",), **TWO}, "chief", 0),
    "a worker beside a chief": ({"chief": ("qcnn-chief-0.lab.svc:2222",), **TWO}, "worker", 1),
    "a ps": ({**TWO, "ps": ("qcnn-ps-0.lab.svc:2222",)}, "ps", 0),
    "an evaluator": (TWO, "evaluator", 0),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, tuple[dict[str, list[str]], str, int]]:
    texts = [build_tf_config(*case) for case in CASES.values()]
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_tensorflow_reads_what_we_meant(name: str, answers: dict[str, tuple[dict[str, list[str]], str, int]]) -> None:
    cluster, role, index = CASES[name]
    assert answers[name] == [{key: list(value) for key, value in cluster.items()}, role, index]
