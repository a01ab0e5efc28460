"""What `make training` and `make inference` tell of a job: tools/cluster/jobs.py."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from qmljob_api.status import parse_status

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = {"type": "ADDED", "object": {"text": "a }\n{ b"}}


@pytest.fixture(scope="module")
def jobs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("jobs_tool", ROOT / "tools" / "cluster" / "jobs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up a class's module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("indent", [None, 4])
def test_a_stream_s_documents_are_told_apart_however_they_are_printed(jobs: ModuleType, indent: int | None) -> None:
    stream = f"{json.dumps(DOCUMENT, indent=indent)}\n" * 3
    assert list(jobs.documents(stream.splitlines(keepends=True))) == [DOCUMENT] * 3


def test_only_news_is_told(jobs: ModuleType) -> None:
    blocked = {"type": "Blocked", "status": "True", "reason": "Unschedulable", "message": "no node has room"}
    running: dict[str, Any] = {"phase": "Running", "ready": "2/2", "attempt": 0}
    restarted = {
        **running,
        "phase": "Restarting",
        "attempt": 1,
        "restarts": 1,
        "history": [
            {"attempt": 0, "charged": True, "message": "qcnn-worker-1 exited with 137", "reason": "ReplicaFailed"}
        ],
    }
    progress = {"attempt": 0, "epoch": 3, "epochs": 8, "loss": 0.5, "valLoss": 0.6}
    story = jobs.Story()
    told = [
        list(story.news(parse_status(status)))
        for status in (
            {},
            {"phase": "Starting", "ready": "0/2", "attempt": 0, "conditions": [blocked]},
            {"phase": "Starting", "ready": "1/2", "attempt": 0, "conditions": [blocked]},
            {**running, "conditions": [{**blocked, "status": "False"}]},
            {**running, "progress": progress},
            {**running, "progress": progress},
            {**restarted, "progress": progress},
        )
    ]
    assert told == [
        [],
        ["Starting, 0/2 replicas run", "Blocked: no node has room"],
        [],
        ["Running, 2/2 replicas run"],
        ["epoch 3/8  loss 0.5  validation loss 0.6"],
        [],
        ["attempt 1 after: qcnn-worker-1 exited with 137 (1 restart(s) charged, 0 disruption(s))", "Restarting"],
    ]


def test_images_are_looked_for_where_they_were_pushed(jobs: ModuleType) -> None:
    document = jobs.read(ROOT / "manifests" / "samples" / "inference.yaml", "registry.example/team")
    (container,) = document["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("registry.example/team/inference:")
