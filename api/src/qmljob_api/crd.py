"""The CustomResourceDefinition of QMLJob, made from its types.

Pydantic's JSON schema has references, unions with null and words that a structural schema does not; here
the one becomes the other. The rules that fields obey together come from `crd_rules`.
"""

import copy
from collections.abc import Mapping
from typing import Any

from qmljob_api import names
from qmljob_api.crd_rules import TEMPLATES, Place, rules
from qmljob_api.status import JobStatus
from qmljob_api.types import DNS_1123, MAX_CONTAINERS, MAX_LABELS, QMLJob

Schema = dict[str, Any]

_KEPT = (
    "type",
    "format",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)
"""What pydantic says of a node that is said to the API server as it is."""
_INT32 = 2**31 - 1

_COLUMNS: tuple[tuple[str, str, str, int, str], ...] = (
    ("Phase", "string", ".status.phase", 0, "The job's state in one word."),
    ("Ready", "string", ".status.ready", 0, "Replicas that run, of all."),
    ("Restarts", "integer", ".status.restarts", 0, "Restarts that were charged."),
    ("Epoch", "integer", ".status.progress.epoch", 0, "Epochs completed."),
    ("Loss", "number", ".status.progress.loss", 0, "Mean loss over the training split."),
    ("MSE", "number", ".status.results.mse", 0, "Mean squared error that inference found."),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Time since the job was created."),
    ("Attempt", "integer", ".status.attempt", 1, "The present attempt, from 0."),
    ("Disruptions", "integer", ".status.disruptions", 1, "Restarts that were not the job's fault."),
    ("Val-Loss", "number", ".status.progress.valLoss", 1, "Mean loss over the test split."),
    ("Reason", "string", '.status.conditions[?(@.status=="True")].reason', 1, "Why the job is in its phase."),
)


def build_crd() -> dict[str, Any]:
    """Returns the CustomResourceDefinition, fresh, as the API server takes it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{names.PLURAL}.{names.GROUP}",
            "labels": {"app.kubernetes.io/name": "qmljob"},
        },
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": [names.SHORT_NAME],
                "categories": ["all"],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": build_schema()},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicaSpecs.worker.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "selectableFields": [{"jsonPath": ".status.phase"}, {"jsonPath": ".spec.suspend"}],
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path, "priority": priority, "description": text}
                        for name, kind, path, priority, text in _COLUMNS
                    ],
                }
            ],
        },
    }


def build_schema() -> Schema:
    """Returns the structural schema of a QMLJob, its status included."""
    job = QMLJob.model_json_schema(by_alias=True)
    status = JobStatus.model_json_schema(by_alias=True)
    schema = _structural(job, job["$defs"])
    schema["properties"] |= {
        "apiVersion": {"type": "string", "description": f"{names.API_VERSION}."},
        "kind": {"type": "string", "description": f"{names.KIND}."},
        # A schema may speak of an object's name only: the API server judges the rest of its metadata itself.
        "metadata": {
            "type": "object",
            "properties": {
                "name": {
                    "type": "string",
                    "description": "The job's name. Its pods are <name>-<role>-<index>, in 63 characters at most.",
                    "maxLength": names.NAME_LIMIT,
                }
            },
        },
        "status": _without_defaults(_structural(status, status["$defs"])),
    }
    for place in TEMPLATES:
        _node(schema, place).update(_template())
    for place, found in rules().items():
        _node(schema, place)["x-kubernetes-validations"] = found
    return schema


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """Returns a node of pydantic's JSON schema, and all below it, in the words of a structural schema."""
    node = _resolved(node, definitions)
    schema: Schema = {"description": " ".join(node["description"].split())} if "description" in node else {}
    schema |= {key: copy.deepcopy(node[key]) for key in _KEPT if key in node}
    if node.get("type") == "integer":
        schema["format"] = "int32" if node.get("maximum", _INT32 + 1) <= _INT32 else "int64"
    elif node.get("type") == "number":
        schema["format"] = "double"
    if "items" in node:
        schema["items"] = _structural(node["items"], definitions)
    if "properties" in node:
        schema["properties"] = {key: _structural(part, definitions) for key, part in node["properties"].items()}
    elif isinstance(node.get("additionalProperties"), dict):
        schema["additionalProperties"] = _structural(node["additionalProperties"], definitions)
    schema |= _default(node, schema)
    return schema


def _default(node: Mapping[str, Any], schema: Schema) -> Schema:
    """Returns the default of a node, where stored objects shall show it: an empty or absent value needs none."""
    value = node.get("default")
    if isinstance(value, dict):
        # The fields inside have their own; this one brings about the object that they stand in.
        return {"default": {}} if any("default" in part for part in schema["properties"].values()) else {}
    return {} if value in (None, [], "") else {"default": value}


def _without_defaults(schema: Any) -> Any:
    """Returns a status' schema: what the operator did not write is not there."""
    if isinstance(schema, dict):
        return {key: _without_defaults(part) for key, part in schema.items() if key != "default"}
    return schema


def _resolved(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a node without reference and without null: what is absent is no value here, and has no default."""
    while "$ref" in node or "anyOf" in node:
        inner = definitions[node["$ref"].rsplit("/", 1)[1]] if "$ref" in node else None
        if inner is None:
            (inner,) = [part for part in node["anyOf"] if part != {"type": "null"}]
        node = {**inner, **{key: value for key, value in node.items() if key not in ("$ref", "anyOf")}}
    return node


def _node(schema: Schema, place: Place) -> Schema:
    for key in place:
        schema = schema["items"] if key == "[]" else schema["properties"][key]
    return schema


def _template() -> Schema:
    """Returns what is said of a pod template. All else in it is kept as it is, and Kubernetes' own to judge."""
    opened: Schema = {"x-kubernetes-preserve-unknown-fields": True}
    name = {
        "type": "string",
        "description": "The container's name.",
        "maxLength": names.NAME_LIMIT,
        "pattern": DNS_1123,
    }
    containers: Schema = {
        "type": "array",
        "description": "The containers. QMLJob speaks to the one named trainer or tensorflow, else to the first.",
        "minItems": 1,
        "maxItems": MAX_CONTAINERS,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "description": "A container.",
            "required": ["name"],
            "properties": {"name": name},
            **opened,
        },
    }
    labels = {
        "type": "object",
        "description": f"Labels of the pods; those of {names.GROUP}/ are QMLJob's own.",
        "maxProperties": MAX_LABELS,
        "additionalProperties": {"type": "string", "description": "The label's value.", "maxLength": names.NAME_LIMIT},
    }
    policy = {"type": "string", "description": "Never, or absent.", "maxLength": names.NAME_LIMIT}
    return {
        "required": ["spec"],
        "properties": {
            "metadata": {
                "type": "object",
                "description": "Labels and annotations of the pods.",
                "properties": {"labels": labels},
                **opened,
            },
            "spec": {
                "type": "object",
                "description": "What a pod is made of: `kubectl explain pod.spec`.",
                "required": ["containers"],
                "properties": {"containers": containers, "restartPolicy": policy},
                **opened,
            },
        },
        **opened,
    }
