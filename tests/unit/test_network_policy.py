"""A job's NetworkPolicy: who may connect to a replica; that it is there before the first pod, and stays right."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from qmljob_api.conditions import Phase
from qmljob_api.parse import parse_job
from qmljob_operator.observation import Answer, Verdict
from qmljob_operator.resources.inference import build_inference_job
from qmljob_operator.resources.networkpolicy import build_network_policy
from qmljob_operator.resources.pod import build_pod
from qmljob_operator.topology import build_topology, service_addresses
from support.planning_steps import POLICY, QUIET, beginning, create, nothing, pods, run, services
from support.planning_stories import Act, Step, Story, tell
from support.world import World

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "a", "app.kubernetes.io/component": "tensorboard"}},
    "spec": {"containers": [{"name": "a"}]},
}
MANIFEST: dict[str, Any] = {
    "apiVersion": "qml.dev/v1alpha1",
    "kind": "QMLJob",
    "metadata": {"name": "qcnn", "namespace": "lab", "uid": "u-1"},
    "spec": {
        "replicaSpecs": {"worker": {"replicas": 2, "template": TEMPLATE}, "evaluator": {"template": TEMPLATE}},
        "inference": {"template": TEMPLATE},
    },
}
REPLICAS = {
    "matchLabels": {"qml.dev/job": "qcnn"},
    "matchExpressions": [{"key": "qml.dev/role", "operator": "Exists"}],
}
AMONG_REPLICAS = {"from": [{"podSelector": REPLICAS}]}
TENSORBOARD = {"qml.dev/job": "qcnn", "app.kubernetes.io/component": "tensorboard"}
TO_PROFILER = {
    "from": [
        {"podSelector": {"matchLabels": TENSORBOARD}},
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "qmljob-system"}}},
    ],
    "ports": [{"port": 2299, "protocol": "TCP"}],
}


def policy(ports: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    document = copy.deepcopy(MANIFEST)
    document["spec"]["ports"] = ports or []
    job = parse_job(document).job
    assert job is not None
    return build_network_policy(job)


@pytest.mark.parametrize(
    ("ports", "ingress"),
    [
        ([], [AMONG_REPLICAS]),
        ([{"name": "metrics", "port": 9000}], [AMONG_REPLICAS]),
        ([{"name": "metrics", "port": 9000}, {"name": "profiler", "port": 2299}], [AMONG_REPLICAS, TO_PROFILER]),
    ],
    ids=["no ports", "a port of another name", "a profiler"],
)
def test_replicas_reach_each_other_and_only_a_profiler_is_reached_from_elsewhere(
    ports: list[dict[str, Any]], ingress: list[dict[str, Any]]
) -> None:
    built = policy(ports)
    assert (built["apiVersion"], built["kind"]) == ("networking.k8s.io/v1", "NetworkPolicy")
    assert (built["metadata"]["namespace"], built["metadata"]["name"]) == ("lab", "qcnn")
    (owner,) = built["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("u-1", True)
    # No word on egress: where a policy names that type, a replica could not even ask for its peers' addresses.
    assert built["spec"] == {"podSelector": REPLICAS, "policyTypes": ["Ingress"], "ingress": ingress}


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Returns whether a pod is selected, as far as `policy` goes in selecting."""
    exist = all(expression["key"] in labels for expression in selector.get("matchExpressions", ()))
    return exist and selector["matchLabels"].items() <= labels.items()


def test_it_guards_every_replica_of_the_job_in_every_attempt_and_lets_it_in_whatever_labels_a_template_has() -> None:
    job = parse_job(MANIFEST).job
    assert job is not None
    topology = build_topology(job)
    addresses = service_addresses(job, topology)
    for attempt in (0, 5):
        for replica in topology.replicas:
            pod = build_pod(job, topology, replica, attempt=attempt, restarts=0, addresses=addresses)
            assert selects(REPLICAS, pod["metadata"]["labels"])
    inference = build_inference_job(job)["spec"]["template"]["metadata"]["labels"]
    assert inference["qml.dev/job"] == "qcnn"
    assert not selects(REPLICAS, inference)


# Writes

START = [create(), run()]
NOTE = "NetworkPolicy qcnn was edited and is put right (2027-01-15T08:00:05Z)"


def edited(**spec: Any) -> Act:
    def act(world: World) -> None:
        found = world.policies["qcnn"]
        world.policies["qcnn"] = {**found, "spec": {**found["spec"], **spec}}

    return act


def deleted(world: World) -> None:
    del world.policies["qcnn"]


def stranger(world: World) -> None:
    """Somebody else has a policy with the job's name, which carries the label by which it is seen."""
    metadata = {"name": "qcnn", "uid": "stranger", "labels": {"qml.dev/job": "qcnn"}}
    world.policies["qcnn"] = {"kind": "NetworkPolicy", "metadata": metadata, "spec": {"podSelector": {}}}


def strangers() -> World:
    world = World()
    stranger(world)
    return world


def refusing() -> World:
    world = World()
    world.admission = lambda document: (
        Answer(Verdict.FORBIDDEN, "exceeded quota: policies") if document["kind"] == "NetworkPolicy" else None
    )
    return world


def accepting(world: World) -> None:
    world.admission = lambda _document: None


def repaired(what: str, act: Act) -> Step:
    return Step(what, act, ["repair networkpolicies/qcnn"], [NOTE])


STORIES: dict[str, Story] = {
    "no pod is created while the policy can't be": Story(
        refusing,
        [
            Step(
                "the job is created",
                nothing,
                ["status: Starting", f"{POLICY}: forbidden", *services(), "status: Starting"],
                ["Attempt 0 starts: 2 workers", "NetworkPolicy qcnn: exceeded quota: policies"],
                Phase.STARTING,
            ),
            Step("there is room", accepting, time=1),
            Step("it is tried again", nothing, [POLICY, *pods(), "status: Starting"], time=5),
            run(),
            QUIET,
        ],
    ),
    "a policy of somebody else is left alone, and no pod is created without one": Story(
        strangers,
        [
            Step(
                "the job is created",
                nothing,
                ["status: Starting", *services()],
                [
                    "Attempt 0 starts: 2 workers",
                    "NetworkPolicy qcnn exists and has no owner: delete or rename it, or name the job otherwise; it is "
                    "never touched",
                ],
                Phase.STARTING,
            ),
            QUIET,
            Step("it is deleted", deleted, ["status: Starting", POLICY, *pods(), "status: Starting"]),
        ],
    ),
    "a policy that is deleted is made again": Story(World, [*START, Step("it is deleted", deleted, [POLICY]), QUIET]),
    "one that lets everybody in is put right": Story(World, [*START, repaired("edited", edited(ingress=[{}])), QUIET]),
    "so is one that lets one more in": Story(
        World,
        [*START, repaired("edited", edited(ingress=[AMONG_REPLICAS, {"from": [{"podSelector": {}}]}])), QUIET],
    ),
    "so is one that shuts replicas off from what they connect to": Story(
        World, [*START, repaired("edited", edited(policyTypes=["Ingress", "Egress"], egress=[])), QUIET]
    ),
    "so is one that selects nobody": Story(
        World,
        [
            *START,
            repaired("edited", edited(podSelector={**REPLICAS, "matchLabels": {"qml.dev/job": "qcnn", "a": "b"}})),
            QUIET,
        ],
    ),
    "a suspended job keeps it, and has it again before it goes on": Story(
        lambda: World(suspend=True),
        [
            Step("it begins suspended", nothing, ["status: Suspended"], ["The job is suspended"], Phase.SUSPENDED),
            Step(
                "it is resumed",
                lambda world: world.edit(suspend=False),
                beginning(),
                ["Attempt 0 starts: 2 workers"],
                Phase.STARTING,
            ),
            run(),
        ],
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_the_policy_is_there_before_the_pods_and_stays_right(story: Story) -> None:
    tell(story)


@pytest.mark.parametrize(
    ("broken", "write"),
    [(deleted, POLICY), (edited(ingress=[{}]), "repair networkpolicies/qcnn")],
    ids=["deleted", "edited"],
)
def test_pods_that_run_on_after_the_end_are_guarded_still(broken: Callable[[World], None], write: str) -> None:
    world = World(runPolicy={"cleanPodPolicy": "None"})
    world.settle()
    world.start()
    world.settle()
    world.end("worker-0", 0)
    world.settle()
    assert world.status.phase is Phase.SUCCEEDED
    broken(world)
    assert world.settle() == [write]
    world.end("worker-1", 0)
    world.settle()
    broken(world)
    assert world.settle() == []
