"""A status is read whatever was done to it: what is damaged is left out, and the rest is kept."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from qmljob_api import status
from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.progress import InferenceResult, Progress
from qmljob_api.sentences import Explained
from qmljob_api.status import (
    MAX_HISTORY,
    AttemptRecord,
    Condition,
    JobStatus,
    LastFailure,
    parse_status,
    progress_status,
    results_status,
    to_document,
)
from support.job_documents import statuses

PROPERTY = settings(derandomize=True, deadline=None, max_examples=200)
TIME = "2026-11-21T04:30:00Z"
MODELS = [
    value
    for value in vars(status).values()
    if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == status.__name__
]
GANG = {"attempt": 1, "generation": 1, "fingerprint": "ab", "complete": True, "startTime": TIME}

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(TIME)
_KEYS = st.sampled_from(["attempt", "type", "status", "worker", "time", "conditions", "gang", "[key]", "x"])
JSON = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4), max_leaves=8
)
ODD = st.sampled_from([b"x", {1}, object(), float("nan"), "\ud800", 10**400, {3: 4}, (1, 2), Condition, math])
FIELDS = st.sampled_from(
    list(to_document(parse_status({}))) + [field.alias for field in JobStatus.model_fields.values()]
)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_part_is_frozen_strict_and_open(model: type[BaseModel]) -> None:
    config = model.model_config
    assert (config.get("frozen"), config.get("strict"), config.get("extra")) == (True, True, "ignore")


@PROPERTY
@given(statuses())
def test_a_status_that_was_written_is_read_back(status: JobStatus) -> None:
    document = to_document(status)
    assert parse_status(document) == status
    assert parse_status(json.loads(json.dumps(document, allow_nan=False))) == status


@PROPERTY
@given(st.dictionaries(FIELDS, JSON | ODD) | JSON | ODD)
def test_reading_never_raises_and_what_is_left_is_a_status(raw: object) -> None:
    read = parse_status(raw)
    assert parse_status(to_document(read)) == read


@PROPERTY
@given(statuses(), FIELDS, JSON | ODD)
def test_damage_to_one_field_leaves_all_others_as_they_were(status: JobStatus, field: str, damage: object) -> None:
    read = to_document(parse_status({**to_document(status), field: damage}))
    assert read | {field: None} == to_document(status) | {field: None}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param({"attempt": "1", "restarts": 2}, {"restarts": 2}, id="text is no number"),
        pytest.param({"attempt": True, "restarts": 2}, {"restarts": 2}, id="true is no number"),
        pytest.param({"attempt": -1, "restarts": 2}, {"restarts": 2}, id="nothing counts below 0"),
        pytest.param({"phase": "Lost", "attempt": 1}, {"attempt": 1}, id="a phase of another version"),
        pytest.param({"startTime": "yesterday", "attempt": 1}, {"attempt": 1}, id="no time"),
        pytest.param({"future": {"deep": [1]}, "attempt": 1}, {"attempt": 1}, id="a field of another version"),
        pytest.param({"gang": {**GANG, "attempt": None}}, {}, id="a part without what it must have goes as a whole"),
        pytest.param({"gang": {**GANG, "succeeded": ["a", 1, "", "b"]}}, {"gang": {**GANG, "succeeded": ["a", "b"]}}),
        pytest.param(
            {"conditions": [{"type": "Running"}, 1, None, {"type": "Failed", "status": "True", "message": 1}]},
            {"conditions": [{"type": "Failed", "status": "True"}]},
            id="a damaged condition goes, a good one stays without its damaged part",
        ),
        pytest.param(
            {"replicaStatuses": {"worker": {"replicas": 2, "failed": "x"}, "boss": {}, 5: {}}},
            {"replicaStatuses": {"worker": {"replicas": 2, "running": 0, "succeeded": 0, "failed": 0}}},
            id="an unknown role goes",
        ),
        pytest.param({"progress": {"epoch": 3, "loss": float("nan")}}, {"progress": {"epoch": 3}}, id="NaN goes"),
        pytest.param({"history": [{"attempt": 1, "charged": 1}]}, {"history": [{"attempt": 1, "charged": False}]}),
    ],
)
def test_the_damaged_part_is_left_out(raw: dict[str, Any], expected: dict[str, Any]) -> None:
    assert to_document(parse_status(raw)) == to_document(JobStatus()) | expected


def test_a_status_that_contains_itself_is_read() -> None:
    raw: dict[str, Any] = {"attempt": 1}
    raw["gang"] = raw["conditions"] = raw
    assert parse_status(raw).attempt == 1


def test_zeros_and_false_are_written_and_what_is_empty_is_not() -> None:
    document = to_document(JobStatus(attempt=0, history=(AttemptRecord(attempt=0),)))
    assert document == {
        "attempt": 0,
        "restarts": 0,
        "disruptions": 0,
        "lostPeerAttempts": 0,
        "replicas": 0,
        "history": [{"attempt": 0, "charged": False}],
    }


def test_a_long_message_is_cut_where_it_says_least() -> None:
    condition = Condition(type=ConditionType.FAILED, status="True", message="why " + "x" * 5000)
    failure = LastFailure(replica="qcnn-worker-0", attempt=0, message="x" * 5000 + " the end")
    assert (len(condition.message), condition.message[:4], condition.message[-1]) == (1024, "why ", "…")
    assert (len(failure.message), failure.message[0], failure.message[-8:]) == (4096, "…", " the end")


def test_the_last_attempts_are_kept() -> None:
    history = tuple(AttemptRecord(attempt=number) for number in range(8))
    assert [record.attempt for record in JobStatus(history=history).history] == list(range(8 - MAX_HISTORY, 8))


def test_a_caller_s_mistake_is_an_error() -> None:
    with pytest.raises(ValidationError):
        JobStatus(attempt=-1)
    with pytest.raises(ValidationError):
        JobStatus(start_time="now")


def test_a_condition_is_found_by_its_type() -> None:
    failed = Condition(type=ConditionType.FAILED, status="True")
    running = Condition(type=ConditionType.RUNNING, status="Unknown")
    status = JobStatus(conditions=(running, failed))
    assert status.condition(ConditionType.FAILED) is failed
    assert status.condition(ConditionType.BLOCKED) is None
    assert [kind for kind in ConditionType if status.holds(kind)] == [ConditionType.FAILED]


PROGRESS = Progress(
    role="worker",
    index=0,
    attempt=1,
    epoch=3,
    epochs=50,
    step=48,
    loss=0.43218743801116943,
    sign_accuracy=1.0,
    val_loss=float("nan"),
    val_sign_accuracy=0.5,
    learning_rate=0.02,
    seconds=1.23456789e-7,
    validation_seconds=1.0,
    examples_per_second=123456.789,
)


def test_progress_is_kept_in_numbers_that_people_read() -> None:
    kept = to_document(JobStatus(progress=progress_status(PROGRESS, TIME)))["progress"]
    assert kept == {
        "attempt": 1,
        "epoch": 3,
        "epochs": 50,
        "step": 48,
        "loss": 0.432187,
        "signAccuracy": 1.0,
        "valSignAccuracy": 0.5,
        "learningRate": 0.02,
        "seconds": 1.23457e-07,
        "examplesPerSecond": 123457.0,
        "time": TIME,
    }


def test_a_program_s_nonsense_is_left_out() -> None:
    nonsense = PROGRESS.model_copy(update={"epoch": 10**30, "loss": float("-inf")})
    kept = progress_status(nonsense, TIME)
    assert (kept.epoch, kept.loss, kept.step) == (None, None, 48)
    result = InferenceResult(artifact="a" * 1024, mse=1 / 3, sign_accuracy=1.0, examples=10**30, fresh_seed=-1)
    found = results_status(result, TIME)
    assert (found.mse, found.examples, found.fresh_seed, len(found.artifact)) == (0.333333, None, None, 1024)


@pytest.mark.parametrize("word", [*Phase, *ConditionType])
def test_every_word_of_a_status_has_a_sentence(word: Explained) -> None:
    assert word.isalpha()
    assert word.sentence.endswith(".")
    assert type(word)(word.value) is word
