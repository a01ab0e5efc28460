"""The CustomResourceDefinition is made from the types: a schema that the API server takes and people can read."""

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from qmljob_api import names
from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.crd import build_crd, build_schema
from qmljob_api.crd_rules import TEMPLATES, rules
from qmljob_api.exitcodes import ExitCode
from qmljob_api.reasons import Reason
from qmljob_api.status import JobStatus
from qmljob_api.types import CleanPodPolicy, CodeOperator, FailureAction, QMLJobSpec, Role, SuccessPolicy

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT / "manifests" / "crd" / "qmljobs.qml.dev.yaml"
KIBIBYTE = 1024

ALLOWED = {
    "type", "format", "description", "enum", "pattern", "default", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "maxProperties", "required", "properties", "additionalProperties", "items",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
}  # fmt: skip
"""No $ref, no union, nothing nullable: what a structural schema may say, and this one does."""


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields every node of a schema with its path."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from nodes(part, f"{path}.{name}".lstrip("."))
    for key, ending in (("items", "[]"), ("additionalProperties", ".*")):
        if key in schema:
            yield from nodes(schema[key], path + ending)


def in_template(path: str) -> bool:
    """Whether a path is that of a pod template, or of something in one."""
    return any(f"{path}.".startswith(f"{template}.") for template in TEMPLATE_PATHS)


NODES = dict(nodes(build_schema()))
TEMPLATE_PATHS = [".".join(place) for place in TEMPLATES]


def test_every_node_is_typed() -> None:
    types = {"object", "array", "string", "integer", "number", "boolean"}
    assert [path for path, node in NODES.items() if node["type"] not in types] == []


def test_no_node_says_what_a_structural_schema_must_not() -> None:
    assert {path: node.keys() - ALLOWED for path, node in NODES.items() if node.keys() - ALLOWED} == {}


def test_what_is_required_is_there() -> None:
    absent = [
        (path, name)
        for path, node in NODES.items()
        for name in node.get("required", [])
        if name not in node["properties"]
    ]
    assert absent == []


def test_every_field_is_described_in_sentences() -> None:
    # The API server takes no description of the metadata: it has its own.
    texts = {path: node.get("description", "") for path, node in NODES.items() if path != "metadata"}
    assert [path for path, text in texts.items() if not text.endswith(".") or "\n" in text] == []


def test_every_list_map_and_text_is_bounded() -> None:
    bounds = {"array": {"maxItems"}, "string": {"maxLength", "enum"}, "object": {"properties", "maxProperties"}}
    unbounded = [path for path, node in NODES.items() if not bounds.get(node["type"], node.keys()) & node.keys()]
    assert unbounded == ["apiVersion", "kind"]


def test_every_number_has_a_format_and_every_count_its_bounds() -> None:
    counts = {path: node for path, node in NODES.items() if node["type"] == "integer"}
    numbers = {path: node for path, node in NODES.items() if node["type"] == "number"}
    assert [path for path, node in counts.items() if node["format"] not in ("int32", "int64")] == []
    assert [path for path, node in numbers.items() if node["format"] != "double"] == []
    # Exit codes have rules of their own, with words for each mistake.
    unbounded = [path for path, node in counts.items() if not {"minimum", "maximum"} <= node.keys()]
    assert unbounded == ["spec.failurePolicy.rules[].onExitCodes.values[]"]


def test_only_pod_templates_and_what_is_in_them_are_open() -> None:
    opened = {path for path, node in NODES.items() if "x-kubernetes-preserve-unknown-fields" in node}
    assert set(TEMPLATE_PATHS) <= opened
    assert [path for path in opened if not in_template(path)] == []


def test_nothing_is_defaulted_in_a_template_or_a_status() -> None:
    defaulted = [path for path, node in NODES.items() if "default" in node]
    assert "spec.port" in defaulted
    assert [path for path in defaulted if path.startswith("status") or in_template(path)] == []


def test_every_rule_says_what_is_wrong_and_what_to_do() -> None:
    placed = [rule for node in NODES.values() for rule in node.get("x-kubernetes-validations", [])]
    assert {key for rule in placed for key in rule} == {"rule", "message", "messageExpression", "fieldPath"}
    assert [rule["message"] for rule in placed if ";" not in rule["message"] or "\n" in str(rule.values())] == []


def test_every_rule_has_found_its_place() -> None:
    placed = [rule for node in NODES.values() for rule in node.get("x-kubernetes-validations", [])]
    assert sorted(map(repr, placed)) == sorted(repr(rule) for found in rules().values() for rule in found)


def test_what_no_status_may_do_is_said_at_the_root() -> None:
    # A rule of the status itself would not be asked where all of the status is taken away.
    transitions = [path for path, node in NODES.items() if "oldSelf" in str(node.get("x-kubernetes-validations"))]
    assert transitions == [""]


@pytest.mark.parametrize(("model", "path"), [(QMLJobSpec, "spec"), (JobStatus, "status")], ids=["spec", "status"])
def test_the_fields_are_those_of_the_types(model: type[BaseModel], path: str) -> None:
    assert list(NODES[path]["properties"]) == [field.alias for field in model.model_fields.values()]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("spec.successPolicy", SuccessPolicy),
        ("spec.runPolicy.cleanPodPolicy", CleanPodPolicy),
        ("spec.failurePolicy.rules[].action", FailureAction),
        ("spec.failurePolicy.rules[].onExitCodes.operator", CodeOperator),
        ("status.phase", Phase),
        ("status.conditions[].type", ConditionType),
    ],
)
def test_a_choice_is_explained_where_it_is_made(path: str, words: Any) -> None:
    assert [word for word in words if word not in NODES[path]["description"]] == []


def test_an_operator_may_say_new_words() -> None:
    # It may be newer than the CRD that it meets: what it observes is no choice of the user's.
    assert [path for path, node in NODES.items() if path.startswith("status") and "enum" in node] == [
        "status.conditions[].status"
    ]


def test_roles_differ_in_their_rules_only() -> None:
    def bare(role: Role) -> str:
        node = NODES[f"spec.replicaSpecs.{role}"] | {"description": ""}
        text = json.dumps(node | {"properties": node["properties"] | {"replicas": {}}})
        return re.sub(rf"-{role}-", "", text)

    assert len({bare(role) for role in Role}) == 1


def test_the_names_are_those_that_all_rooms_use() -> None:
    crd = build_crd()
    spec = crd["spec"]
    assert crd["metadata"]["name"] == f"{names.PLURAL}.{names.GROUP}"
    assert (spec["group"], spec["versions"][0]["name"]) == (names.GROUP, names.VERSION)
    assert spec["names"] == {
        "kind": names.KIND,
        "listKind": "QMLJobList",
        "plural": names.PLURAL,
        "singular": "qmljob",
        "shortNames": [names.SHORT_NAME],
        "categories": ["all"],
    }


def test_scale_columns_and_selectors_read_fields_that_exist() -> None:
    version = build_crd()["spec"]["versions"][0]
    paths = [
        *version["subresources"]["scale"].values(),
        *(column["jsonPath"] for column in version["additionalPrinterColumns"]),
        *(field["jsonPath"] for field in version["selectableFields"]),
    ]
    plain = [re.sub(r"\[\?.*?\]", "[]", path).lstrip(".") for path in paths if not path.startswith(".metadata")]
    assert [path for path in plain if path not in NODES] == []


def test_a_definition_is_fresh_and_shares_nothing() -> None:
    first = build_crd()
    first["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"].append("x")
    assert build_crd() != first
    roles = NODES["spec.replicaSpecs"]["properties"]
    assert roles["worker"]["required"] is not roles["ps"]["required"]


def test_it_fits_the_annotation_of_kubectl_apply() -> None:
    # kubectl keeps what was applied in an annotation, and all annotations together may have 256 KiB.
    assert len(json.dumps(build_crd())) < 64 * KIBIBYTE
    assert len(CRD.read_bytes()) < 64 * KIBIBYTE


def test_the_committed_definition_is_the_generated_one() -> None:
    assert yaml.safe_load(CRD.read_text("utf-8")) == build_crd()


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Returns tools/manifests.py, for a repository that is empty."""
    spec = importlib.util.spec_from_file_location("manifests_tool", ROOT / "tools" / "manifests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def run(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["manifests.py", *arguments])
    code: int = tool.main()
    return code


def test_generated_files_are_checked_and_written(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    stale = (
        "manifests: manifests/crd/qmljobs.qml.dev.yaml and docs/api.md: not what the API's types give; "
        "run `make manifests`\n"
    )
    assert run(tool, monkeypatch, "--check") == 1
    assert capsys.readouterr().err == stale
    assert list(tmp_path.iterdir()) == []
    assert run(tool, monkeypatch) == 0
    assert capsys.readouterr().out == "manifests/crd/qmljobs.qml.dev.yaml\ndocs/api.md\n"
    assert run(tool, monkeypatch, "--check") == 0
    assert run(tool, monkeypatch) == 0
    assert capsys.readouterr() == ("", "")
    for path in tool.generated():
        assert (tmp_path / path).read_text("utf-8") == (ROOT / path).read_text("utf-8")


def test_the_reference_has_every_field_reason_condition_and_exit_code(tool: ModuleType) -> None:
    text: str = tool.reference_text()
    fields = {path.rsplit(".", 1)[-1].removesuffix("[]") for path in NODES if path.startswith(("spec.", "status."))}
    closed = {path for path in NODES if in_template(path) and path not in TEMPLATE_PATHS}
    hidden = {path.rsplit(".", 1)[-1].removesuffix("[]") for path in closed}
    words = {*Reason, *ConditionType, *Phase, *(fields - hidden - {"*"})}
    assert [word for word in sorted(words) if f"| `{word}` |" not in text] == []
    assert [code for code in ExitCode if f"| {code.value} | {code.sentence} |" not in text] == []
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count(" | ") for line in rows} <= {1, 3}
