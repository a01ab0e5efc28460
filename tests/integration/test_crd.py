"""The CustomResourceDefinition on a real API server: what it refuses, with which words, and what it shows.

The parser and the server judge the same documents. Where they may differ is listed here, and nowhere else.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings

from qmljob_api import names
from qmljob_api.crd import build_schema
from qmljob_api.parse import parse_job
from qmljob_api.status import JobStatus, parse_status, to_document
from qmljob_api.testing import TEMPLATE, manifest, parsed
from qmljob_api.tree import MAX_DEPTH, MAX_VALUES
from qmljob_api.types import MAX_CONTAINERS, MAX_LABELS
from support.api_client import MERGE_PATCH, Response
from support.control_plane import ControlPlane
from support.job_documents import damaged_jobs, jobs, statuses

PROPERTY = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TIME = "2026-11-21T04:30:00Z"
DRY_RUN = {"dryRun": "All", "fieldValidation": "Strict"}
Document = dict[str, Any]


class Jobs:
    """The jobs of a namespace, as the API server has them."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.plane = control_plane
        self.path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"

    def judge(self, document: Document) -> Response:
        """Returns what the server says of a new job, without making it."""
        return self.plane.request("POST", self.path, document, query=DRY_RUN)

    def make(self, document: Document) -> Document:
        made: Document = self.plane.call("POST", self.path, document, query={"fieldValidation": "Strict"})
        return made

    def get(self, name: str = "qcnn") -> Document:
        found: Document = self.plane.call("GET", f"{self.path}/{name}")
        return found

    def put_status(self, status: Document | None, name: str = "qcnn") -> Response:
        """Replaces a job's status, or takes it away."""
        document = {key: value for key, value in self.get(name).items() if key != "status"}
        document |= {} if status is None else {"status": status}
        return self.plane.request("PUT", f"{self.path}/{name}/status", document)


@pytest.fixture
def served(control_plane: ControlPlane, namespace: str, crd: str) -> Jobs:
    return Jobs(control_plane, namespace)


def role(replicas: int = 1, template: Any = TEMPLATE) -> Document:
    return {"replicas": replicas, "template": copy.deepcopy(template)}


def with_template(**parts: Any) -> Document:
    return manifest(replicaSpecs={"worker": role(1, {**copy.deepcopy(TEMPLATE), **parts})})


def with_pod(**fields: Any) -> Document:
    return with_template(spec={**copy.deepcopy(TEMPLATE["spec"]), **fields})


def with_container(**fields: Any) -> Document:
    return with_pod(containers=[{"name": "trainer", **fields}])


def with_rule(*values: Any) -> Document:
    return manifest(failurePolicy={"rules": [{"onExitCodes": {"values": list(values)}, "action": "Ignore"}]})


def with_ports(*ports: tuple[str, int]) -> Document:
    return manifest(ports=[{"name": name, "port": number} for name, number in ports])


def deep() -> list[Any]:
    tree: list[Any] = []
    for _ in range(MAX_DEPTH):
        tree = [tree]
    return tree


# --- The same verdict ---


def test_the_definition_is_established_and_as_it_was_sent(control_plane: ControlPlane, crd: str) -> None:
    stored = control_plane.call("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}")
    conditions = {condition["type"]: condition["status"] for condition in stored["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


@settings(PROPERTY, max_examples=150)
@given(document=jobs())
def test_server_and_parser_accept_the_same_jobs(served: Jobs, document: Document) -> None:
    assert_same_verdict(served, document)


@settings(PROPERTY, max_examples=400)
@given(document=damaged_jobs())
def test_server_and_parser_refuse_the_same_damage(served: Jobs, document: Document) -> None:
    assert_same_verdict(served, document)


FULL = manifest(
    suspend=False,
    runPolicy={
        "backoffLimit": 1,
        "activeDeadlineSeconds": 1,
        "startupDeadlineSeconds": 1,
        "ttlSecondsAfterFinished": 1,
        "cleanPodPolicy": "All",
        "unreachableSeconds": 1,
        "forceDeleteUnreachable": True,
    },
    successPolicy="Chief",
    failurePolicy={"rules": [{"onExitCodes": {"operator": "In", "values": [1], "roles": ["ps"]}, "action": "FailJob"}]},
    port=2000,
    ports=[{"name": "profiler", "port": 2223}],
    replicaSpecs={name: {"replicas": 1, "template": TEMPLATE} for name in ("chief", "worker", "ps", "evaluator")},
    inference={"template": TEMPLATE},
)
"""A job with a value for every field."""


def edges(node: Document, path: tuple[str | int, ...] = ("spec",)) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yields values at and beyond the bounds of every field below a node of the schema, each with its place."""
    match node:
        case {"enum": choices}:
            yield from ((path, value) for value in [*choices, choices[0].lower(), ""])
        case {"type": "integer"}:
            bounds = (node.get("minimum", 1), node.get("maximum", 255))
            yield from ((path, value) for bound in bounds for value in (bound - 1, bound, bound + 1))
        case {"type": "string"}:
            yield from ((path, "a" * length) for length in (0, 1, node["maxLength"], node["maxLength"] + 1))
        case {"type": "array"}:
            yield (path, [])
            yield from edges(node["items"], (*path, 0))
    for name, part in node.get("properties", {}).items():
        if name not in ("template", "metadata"):
            yield from edges(part, (*path, name))


def test_server_and_parser_draw_every_bound_at_the_same_place(served: Jobs) -> None:
    places = list(edges(build_schema()["properties"]["spec"]))
    assert len(places) > 100
    for path, value in places:
        document = copy.deepcopy(FULL)
        parent: Any = document
        for key in path[:-1]:
            parent = parent[key]
        assert path[-1] in parent if isinstance(parent, dict) else parent
        parent[path[-1]] = value
        answer, result = served.judge(document), parse_job(document)
        assert answer.ok is (result.job is not None), (path, value, answer.message, result.errors)


def assert_same_verdict(served: Jobs, document: Document) -> None:
    answer, result = served.judge(document), parse_job(document)
    note(f"server: {answer.status} {answer.message if not answer.ok else ''}")
    note(f"parser: {[str(error) for error in result.errors]}")
    assert answer.status in (201, 400, 422)
    assert answer.ok is (result.job is not None)


ONLY_THE_PARSER_REFUSES: dict[str, Document] = {
    "an empty value: the server takes it for an absent one": manifest(runPolicy={"activeDeadlineSeconds": None}),
    "a role without a value: the server takes it for an absent one": manifest(
        replicaSpecs={"worker": role(), "ps": None}
    ),
    "a whole number written as a fraction: JSON does not tell them apart": manifest(port=2225.0),
    "a name that the server is to choose: what is made from it can't be known": {
        **manifest(),
        "metadata": {"generateName": "qcnn-"},
    },
    "a number inside a pod that no reader may keep": with_pod(future=2**70),
    "more values than a job of a few pages has": with_container(args=["x"] * MAX_VALUES),
    "a deeper tree than a job has": with_pod(affinity=deep()),
    "a label without a value: the server drops it": with_template(metadata={"labels": {"team": None}}),
    "an annotation that is no text": with_template(metadata={"annotations": {"note": 1}}),
    "init containers that are no list": with_pod(initContainers={}),
    "an init container with the name of a container": with_pod(initContainers=[{"name": "trainer"}]),
    "a command that is no list": with_container(command="python"),
    "an argument that is no text": with_container(args=[1]),
    "a variable without a name": with_container(env=[{"value": "x"}]),
    "a variable that is no text": with_container(env=[{"name": "A", "value": 1}]),
    "ports of a container that are no list": with_container(ports={}),
    "a security context that is no mapping": with_container(securityContext=[]),
    "capabilities that are no mapping": with_container(securityContext={"capabilities": []}),
    "added capabilities that are no list": with_container(securityContext={"capabilities": {"add": "ALL"}}),
}
"""What a schema can't say, or leaves to Kubernetes where it is the inside of a pod: the dry run of a pod finds it."""


@pytest.mark.parametrize("document", ONLY_THE_PARSER_REFUSES.values(), ids=ONLY_THE_PARSER_REFUSES)
def test_what_only_the_parser_refuses(served: Jobs, document: Document) -> None:
    answer = served.judge(document)
    assert answer.status == 201, answer.message
    assert parse_job(document).job is None


ONLY_THE_SERVER_REFUSES: dict[str, Document] = {
    "a label that no object may have": manifest({"labels": {"team": "a b"}}),
    "a pod's label that is longer than any may be": with_template(metadata={"labels": {"team": "x" * 64}}),
    "a field of the status that is unknown: a reader's own is no part of a manifest": manifest() | {"status": {"x": 1}},
}


@pytest.mark.parametrize("document", ONLY_THE_SERVER_REFUSES.values(), ids=ONLY_THE_SERVER_REFUSES)
def test_what_only_the_server_refuses(served: Jobs, document: Document) -> None:
    assert served.judge(document).status in (400, 422)
    assert parse_job(document).job is not None


# --- The same words ---

SAME_WORDS: dict[str, Document] = {
    "no role that leads": manifest(replicaSpecs={"ps": role()}),
    "two chiefs": manifest(replicaSpecs={"chief": role(2)}),
    "two evaluators": manifest(replicaSpecs={"worker": role(), "evaluator": role(2)}),
    "too many replicas": manifest(replicaSpecs={"worker": role(500), "ps": role(13)}),
    "a port that is the rendezvous": with_ports(("a", 2222)),
    "a port that is the rendezvous that was chosen": manifest(port=3, ports=[{"name": "a", "port": 3}]),
    "a number twice": with_ports(("a", 3), ("b", 4), ("c", 4)),
    "the name of the rendezvous": with_ports(("rendezvous", 3)),
    "a port's name without a letter": with_ports(("123", 3)),
    "success as a failure": with_rule(1, 0),
    "no exit code": with_rule(256),
    "an exit code below 0": with_rule(-9),
    "a lost peer as a cause": with_rule(69),
    "a name that begins with a digit": manifest({"name": "3qubits"}),
    "a name with a dot": manifest({"name": "qcnn.v2"}),
    "a worker's name too long by one": manifest({"name": "a" * 55}),
    "a worker's name too long by its digits": manifest({"name": "a" * 53}, replicaSpecs={"worker": role(101)}),
    "a chief's name too long": manifest({"name": "a" * 60}, replicaSpecs={"chief": role()}),
    "an evaluator's name too long": manifest({"name": "a" * 53}, replicaSpecs={"chief": role(), "evaluator": role()}),
    "an inference Job's name too long": manifest({"name": "a" * 50}, inference={"template": TEMPLATE}),
    "a restart policy": with_pod(restartPolicy="OnFailure"),
    "an inference Job's restart policy": manifest(
        inference={"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Always"}}}
    ),
    "a label of ours": with_template(metadata={"labels": {"qml.dev/index": "7"}}),
}


@pytest.mark.parametrize("document", SAME_WORDS.values(), ids=SAME_WORDS)
def test_a_rule_speaks_as_the_parser_does(served: Jobs, document: Document) -> None:
    (error,) = parse_job(document).errors
    answer = served.judge(document)
    assert answer.status == 422
    (cause,) = answer.body["details"]["causes"]
    # The parser adds a name to take instead where it knows one, and the place in a list.
    assert f"{error.message}; {error.hint.split(', for example')[0]}" in cause["message"]
    assert error.path.startswith(cause["field"])


BOUNDS: dict[str, tuple[Document, str]] = {
    "an unknown field": (manifest(runPolicy={"backofLimit": 1}), 'unknown field "spec.runPolicy.backofLimit"'),
    "an exit code twice": (with_rule(3, 3), "spec.failurePolicy.rules[0].onExitCodes.values[1]: Duplicate value: 3"),
    "a port's name twice": (with_ports(("a", 3), ("a", 4)), 'spec.ports[1]: Duplicate value: {"name":"a"}'),
    "a container's name twice": (with_pod(containers=[{"name": "a"}] * 2), "containers[1]: Duplicate value"),
    "no container": (with_pod(containers=[]), "spec.containers in body should have at least 1 items"),
    "too many containers": (
        with_pod(containers=[{"name": f"c{number}"} for number in range(MAX_CONTAINERS + 1)]),
        "Too many: 129: must have at most 128 items",
    ),
    "too many labels": (
        with_template(metadata={"labels": {f"l{number}": "x" for number in range(MAX_LABELS + 1)}}),
        "Too many: 257: must have at most 256 items",
    ),
    "a template without a spec": (manifest(replicaSpecs={"worker": {"template": {}}}), "template.spec: Required value"),
    "an unknown choice": (manifest(successPolicy="All"), 'supported values: "Chief", "AllReplicas"'),
    "a number beyond all": (manifest(port=2**70), "spec.port in body must be of type integer"),
    "text for a number": (manifest(port="2222"), "spec.port in body must be of type integer"),
}


@pytest.mark.parametrize(("document", "words"), BOUNDS.values(), ids=BOUNDS)
def test_what_a_schema_says_is_refused_in_the_server_s_own_words(served: Jobs, document: Document, words: str) -> None:
    answer = served.judge(document)
    assert answer.status in (400, 422)
    assert words in answer.message
    assert parse_job(document).job is None


# --- What is stored ---


def test_the_server_s_defaults_are_the_parser_s(served: Jobs) -> None:
    made = served.make(manifest())
    written = manifest()["spec"]
    assert {key: value for key, value in made["spec"].items() if key not in written} == {
        "suspend": False,
        "runPolicy": {"backoffLimit": 3, "cleanPodPolicy": "Running", "forceDeleteUnreachable": False},
        "successPolicy": "Chief",
        "port": 2222,
    }
    assert parsed(made).spec == parsed(manifest()).spec


@settings(PROPERTY, max_examples=100)
@given(document=jobs())
def test_a_stored_job_is_read_as_the_job_that_was_written(served: Jobs, document: Document) -> None:
    answer = served.judge(document)
    if answer.ok:
        assert parsed(answer.body).spec == parsed(document).spec


def test_a_template_is_kept_as_it_was_written(served: Jobs) -> None:
    template = {
        "metadata": {"annotations": {"a": "b"}, "future": 1},
        "spec": {"containers": [{"name": "x", "future": {"deep": [1, "2", None]}}], "future": [], "terminal": {}},
        "future": False,
    }
    made = served.make(manifest(replicaSpecs={"worker": {"template": template}}))
    assert made["spec"]["replicaSpecs"]["worker"] == {"replicas": 1, "template": template}


def test_an_edit_counts_as_a_generation_and_a_status_does_not(served: Jobs) -> None:
    assert served.make(manifest())["metadata"]["generation"] == 1
    assert served.put_status({"attempt": 0}).body["metadata"]["generation"] == 1
    edited = served.plane.call("PATCH", f"{served.path}/qcnn", {"spec": {"suspend": True}}, content_type=MERGE_PATCH)
    assert (edited["metadata"]["generation"], edited["status"]) == (2, {"attempt": 0})


def test_a_status_that_comes_with_a_new_job_is_not_kept(served: Jobs) -> None:
    assert "status" not in served.make(manifest() | {"status": {"attempt": 7, "phase": "Succeeded"}})


@settings(PROPERTY, max_examples=60)
@given(status=statuses())
def test_every_status_that_an_operator_may_write_is_stored(served: Jobs, status: JobStatus) -> None:
    served.make(manifest())
    try:
        answer = served.put_status(to_document(status))
        assert answer.ok, answer.message
        # Not as documents: where 2.0 was written the server answers 2.
        assert parse_status(answer.body["status"]) == status
    finally:
        served.plane.call("DELETE", f"{served.path}/qcnn")


def test_a_status_of_a_newer_operator_is_stored_without_what_is_unknown(served: Jobs) -> None:
    served.make(manifest())
    status = {"phase": "Hibernating", "conditions": [{"type": "Frozen", "status": "True"}], "attempt": 1}
    assert served.put_status({**status, "temperature": 3}).body["status"] == status


# --- What a status may never do ---

RUNNING = {"type": "Running", "status": "True"}
SUCCEEDED = {"type": "Succeeded", "status": "True"}
FAILED = {"type": "Failed", "status": "True"}
NEVER_DOWN = "status.attempt never goes down nor away; delete the job and create it again to start from attempt 0"
NEVER_AGAIN = "a job that has ended stays so; delete it and create it again to run it once more"
ONE_END = "a job can't have both succeeded and failed; leave the condition that came first"
Change = tuple[Document, Document | None, str]

TRANSITIONS: dict[str, Change] = {
    "the next attempt": ({"attempt": 0}, {"attempt": 1}, ""),
    "the same attempt": ({"attempt": 3}, {"attempt": 3, "restarts": 1}, ""),
    "the first attempt": ({"restarts": 0}, {"attempt": 0}, ""),
    "an end": ({"attempt": 0, "conditions": [RUNNING]}, {"attempt": 0, "conditions": [SUCCEEDED]}, ""),
    "an end that keeps its message": (
        {"conditions": [SUCCEEDED]},
        {"conditions": [RUNNING | {"status": "False"}, SUCCEEDED | {"message": "x"}]},
        "",
    ),
    "a condition that ends": ({"conditions": [RUNNING]}, {"conditions": [RUNNING | {"status": "False"}]}, ""),
    "a failure that was none yet": ({"conditions": [FAILED | {"status": "False"}]}, {"conditions": []}, ""),
    "an attempt goes down": ({"attempt": 2}, {"attempt": 1}, NEVER_DOWN),
    "an attempt disappears": ({"attempt": 0}, {"restarts": 0}, NEVER_DOWN),
    "all of the status disappears": ({"attempt": 0}, None, NEVER_DOWN),
    "a success is taken back": (
        {"conditions": [SUCCEEDED]},
        {"conditions": [SUCCEEDED | {"status": "False"}]},
        NEVER_AGAIN,
    ),
    "a success disappears": ({"conditions": [SUCCEEDED, RUNNING]}, {"conditions": [RUNNING]}, NEVER_AGAIN),
    "a failure disappears with all conditions": ({"conditions": [FAILED]}, {"restarts": 1}, NEVER_AGAIN),
    "a failure disappears with all of the status": ({"conditions": [FAILED]}, None, NEVER_AGAIN),
    "a success becomes a failure": ({"conditions": [SUCCEEDED]}, {"conditions": [FAILED]}, NEVER_AGAIN),
    "both ends": ({"conditions": [SUCCEEDED]}, {"conditions": [FAILED, SUCCEEDED]}, ONE_END),
}


@pytest.mark.parametrize(("before", "after", "words"), TRANSITIONS.values(), ids=TRANSITIONS)
def test_a_status_goes_forward_only(served: Jobs, before: Document, after: Document | None, words: str) -> None:
    served.make(manifest())
    assert served.put_status(before).ok
    answer = served.put_status(after)
    assert (answer.status, words in answer.message) == (422 if words else 200, True)
    assert words or answer.body["status"] == after


@pytest.mark.parametrize("content_type", [MERGE_PATCH, "application/json-patch+json"])
def test_a_patch_can_not_take_a_status_away(served: Jobs, content_type: str) -> None:
    served.make(manifest())
    served.put_status({"attempt": 1, "conditions": [FAILED]})
    patch = {"status": None} if content_type == MERGE_PATCH else [{"op": "remove", "path": "/status"}]
    answer = served.plane.request("PATCH", f"{served.path}/qcnn/status", patch, content_type=content_type)
    assert answer.status == 422
    assert NEVER_DOWN in answer.message
    assert NEVER_AGAIN in answer.message


@pytest.mark.parametrize(
    "damage", [{"attempt": "1"}, {"startTime": "yesterday"}, {"conditions": [{}]}, {"replicas": -1}]
)
def test_a_status_of_wrong_types_is_refused(served: Jobs, damage: Document) -> None:
    served.make(manifest())
    assert served.put_status(damage).status == 422


def test_a_job_that_has_ended_can_still_be_edited(served: Jobs) -> None:
    served.make(manifest())
    served.put_status({"attempt": 1, "conditions": [SUCCEEDED]})
    patch = {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 60}}, "metadata": {"labels": {"team": "qml"}}}
    assert served.plane.request("PATCH", f"{served.path}/qcnn", patch, content_type=MERGE_PATCH).ok


# --- What people see ---


def test_a_table_has_the_columns_that_people_ask_for(served: Jobs) -> None:
    served.make(manifest())
    status = {
        "phase": "Running",
        "ready": "2/2",
        "restarts": 1,
        "attempt": 3,
        "disruptions": 2,
        "conditions": [{**FAILED, "status": "False", "reason": "Resolved"}, {**RUNNING, "reason": "ReplicasRunning"}],
        "progress": {"epoch": 7, "loss": 0.432187, "valLoss": 0.5},
        "results": {"mse": 0.123457},
    }
    assert served.put_status(status).ok
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    table = served.plane.call("GET", served.path, headers=accept)
    (row,) = table["rows"]
    cells = dict(zip([column["name"] for column in table["columnDefinitions"]], row["cells"], strict=True))
    assert cells.pop("Age")
    assert cells == {
        "Name": "qcnn",
        "Phase": "Running",
        "Ready": "2/2",
        "Restarts": 1,
        "Epoch": 7,
        "Loss": 0.432187,
        "MSE": 0.123457,
        "Attempt": 3,
        "Disruptions": 2,
        "Val-Loss": 0.5,
        "Reason": "ReplicasRunning",
    }
    wide = [column["name"] for column in table["columnDefinitions"] if column["priority"] > 0]
    assert wide == ["Attempt", "Disruptions", "Val-Loss", "Reason"]


def test_jobs_are_found_by_their_phase_and_by_suspension(served: Jobs) -> None:
    for name, phase in (("one", "Running"), ("two", "Failed"), ("three", "Running")):
        served.make(manifest({"name": name}, suspend=name == "three"))
        served.put_status({"phase": phase}, name)

    def found(selector: str) -> list[str]:
        listed = served.plane.call("GET", served.path, query={"fieldSelector": selector})
        return sorted(item["metadata"]["name"] for item in listed["items"])

    assert found("status.phase=Running") == ["one", "three"]
    assert found("status.phase!=Running") == ["two"]
    assert found("status.phase=Running,spec.suspend=false") == ["one"]


def test_workers_are_scaled_like_anything_else(served: Jobs) -> None:
    served.make(manifest())
    served.put_status({"replicas": 2, "selector": "qml.dev/job=qcnn,qml.dev/role=worker"})
    path = f"{served.path}/qcnn/scale"
    scale = served.plane.call("GET", path)
    assert (scale["spec"], scale["status"]["replicas"]) == ({"replicas": 2}, 2)
    assert scale["status"]["selector"] == "qml.dev/job=qcnn,qml.dev/role=worker"
    served.plane.call("PUT", path, {**scale, "spec": {"replicas": 3}})
    assert served.get()["spec"]["replicaSpecs"]["worker"]["replicas"] == 3
    scale = served.plane.call("GET", path)
    assert served.plane.request("PUT", path, {**scale, "spec": {"replicas": 0}}).status == 422


def test_containers_and_ports_of_two_owners_are_merged(served: Jobs) -> None:
    def apply(manager: str, **spec: Any) -> Document:
        return served.plane.call(
            "PATCH",
            f"{served.path}/qcnn",
            manifest(**spec),
            content_type="application/apply-patch+yaml",
            query={"fieldManager": manager},
        )

    apply("author", ports=[{"name": "profiler", "port": 2223}])
    sidecar = {"spec": {"containers": [{"name": "sidecar", "image": "x"}]}}
    merged = apply("team", ports=[{"name": "http", "port": 8080}], replicaSpecs={"worker": {"template": sidecar}})
    assert [port["name"] for port in merged["spec"]["ports"]] == ["profiler", "http"]
    containers = merged["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
    assert [container["name"] for container in containers] == ["trainer", "sidecar"]


def test_kubectl_explain_has_a_description_for_every_field(control_plane: ControlPlane, crd: str) -> None:
    def described(answer: Response) -> bool:
        return answer.ok and "dev.qml.v1alpha1.QMLJob" in answer.body["components"]["schemas"]

    # Published some time after the kind is served.
    path = f"/openapi/v3/apis/{names.API_VERSION}"
    answer = control_plane.wait_until("GET", path, described, what="the description of QMLJob")
    schema = answer.body["components"]["schemas"]["dev.qml.v1alpha1.QMLJob"]
    assert schema["description"].startswith("A job: trains a model")
    assert undescribed({key: schema["properties"][key] for key in ("spec", "status")}) == []
    limit = schema["properties"]["spec"]["properties"]["runPolicy"]["properties"]["backoffLimit"]
    assert limit["description"].startswith("How many restarts may be charged before the job fails.")


def undescribed(properties: dict[str, Any], path: str = "") -> list[str]:
    found = []
    for name, node in properties.items():
        here = f"{path}.{name}"
        found += [] if node.get("description") else [here]
        found += undescribed(node.get("properties", {}), here)
        found += undescribed(node.get("items", {}).get("properties", {}), here)
    return found
