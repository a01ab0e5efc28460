"""Types are frozen, spelled in camelCase in a manifest, and strict."""

import pytest
from pydantic import BaseModel, ValidationError

from qmljob_api import types
from qmljob_api.reasons import Reason

MODELS = [
    value
    for name, value in vars(types).items()
    if isinstance(value, type) and issubclass(value, BaseModel) and value is not BaseModel and not name.startswith("_")
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_model_is_frozen_strict_and_closed(model: type[BaseModel]) -> None:
    config = model.model_config
    assert (config.get("frozen"), config.get("strict"), config.get("extra")) == (True, True, "forbid")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_list_and_text_of_a_manifest_is_bounded(model: type[BaseModel]) -> None:
    for name, schema in model.model_json_schema(by_alias=True)["properties"].items():
        for part in [schema, *schema.get("anyOf", [])]:
            if part.get("type") == "array":
                assert "maxItems" in part, name
            if part.get("type") == "string" and not {"const", "enum"} & part.keys():
                assert "maxLength" in part, name


def test_a_job_can_be_written_in_python() -> None:
    worker = types.ReplicaSpec(replicas=2, template={})
    spec = types.QMLJobSpec(
        replica_specs=types.ReplicaSpecs(worker=worker), run_policy=types.RunPolicy(backoff_limit=1)
    )
    job = types.QMLJob(metadata=types.Metadata(name="qcnn"), spec=spec)
    assert job.model_dump(by_alias=True)["spec"]["runPolicy"]["backoffLimit"] == 1
    with pytest.raises(ValidationError):
        types.RunPolicy(backoff_limit=True)


def test_roles_come_in_their_order() -> None:
    specs = types.ReplicaSpecs(
        evaluator=types.ReplicaSpec(template={}),
        worker=types.ReplicaSpec(template={}),
        chief=types.ReplicaSpec(template={}),
    )
    assert [role for role, _ in specs.present()] == [types.Role.CHIEF, types.Role.WORKER, types.Role.EVALUATOR]


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_one_word_and_has_a_sentence(reason: Reason) -> None:
    assert reason.isalpha()
    assert reason[0].isupper()
    assert reason.sentence.endswith(".")
    assert Reason(reason.value) is reason
