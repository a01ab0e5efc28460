"""Stories of nodes that are lost: whose fault it is, what the job waits for, and how it goes on."""

from typing import Any

import pytest

from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.exitcodes import ExitCode
from qmljob_api.reasons import Reason
from support.stories import Scene, Step, Story, gang, step
from support.story_actions import (
    both,
    bring_back,
    create,
    delete_node,
    edit,
    finish,
    lose,
    made,
    make_node,
    nothing,
    remove,
    start,
)
from support.story_steps import RUNS, SUCCEEDED, restarts, runs, succeeds, template

B = "b"
"""The node of worker 1."""
WAITS = {ConditionType.WAITING_FOR_NODE: Reason.NODE_UNREACHABLE}
WAYS_OUT = (
    "The job goes on when the node is back, or when it is deleted or tainted node.kubernetes.io/out-of-service; "
    "runPolicy.forceDeleteUnreachable: true lets the operator delete such pods"
)
SHORT_GRACE = {"replicaSpecs": {"worker": {"replicas": 2, "template": template(terminationGracePeriodSeconds=1)}}}


def begins_on_two_nodes() -> list[Step]:
    return [
        step(
            "the job is made, and its replicas run on two nodes",
            both(make_node(B), create(), made(2), start("worker-0"), start("worker-1", node=B)),
            exists=True,
            phase=Phase.RUNNING,
            holds=RUNS,
            attempt=0,
            ready="2/2",
            pods=gang(0),
            services=frozenset(gang(0)),
            events=[Reason.STARTING, Reason.REPLICAS_RUNNING],
        )
    ]


def waits_for_the_node(**changes: Any) -> Step:
    """The survivor gives up, and the pod on the lost node can't go."""
    return restarts(
        "the node of worker 1 is lost, and worker 0 ended with a lost peer a while ago",
        both(lose(B), finish("worker-0", ExitCode.LOST_PEER, ago=8)),
        1,
        Reason.DISRUPTED,
        **{
            "phase": Phase.RESTARTING,
            "holds": WAITS,
            "disruptions": 1,
            "pods": {"worker-1": 0},
            "ready": "0/2",
            "ending": frozenset({"worker-1"}),
            "failure": ("worker-1", None, Reason.DISRUPTED),
            "events": [Reason.DISRUPTED, Reason.NODE_UNREACHABLE],
            **changes,
        },
    )


def goes_on(what: str, does: Any, **changes: Any) -> Step:
    """The next attempt's pods are made."""
    return step(what, does, phase=Phase.STARTING, holds={}, pods=gang(1), ending=frozenset(), **changes)


STORIES = [
    Story(
        "a survivor's lost peer is explained by the silent node, and the job goes on when the node is back",
        [
            *begins_on_two_nodes(),
            waits_for_the_node(says={ConditionType.WAITING_FOR_NODE: f"does not answer. {WAYS_OUT}"}),
            step("time passes", nothing),
            goes_on("the node is back", bring_back(B)),
            runs(1),
        ],
        spec={"runPolicy": {"backoffLimit": 0}},
    ),
    Story(
        "the job goes on when somebody says that the node is out of service, and its pod is collected",
        [
            *begins_on_two_nodes(),
            waits_for_the_node(says={ConditionType.WAITING_FOR_NODE: "qcnn-worker-1 can't be deleted: node "}),
            goes_on("its pod is collected", remove("worker-1")),
            runs(1),
        ],
    ),
    Story(
        "the job goes on when the node is deleted",
        [*begins_on_two_nodes(), waits_for_the_node(), goes_on("the node is deleted", delete_node(B)), runs(1)],
    ),
    Story(
        "a job that says so has the pod of a silent node deleted without its consent",
        [
            *begins_on_two_nodes(),
            restarts(
                "the node of worker 1 is lost, and worker 0 ends with a lost peer",
                both(lose(B), finish("worker-0", ExitCode.LOST_PEER)),
                1,
                Reason.DISRUPTED,
                disruptions=1,
                failure=("worker-1", None, Reason.DISRUPTED),
                events=[Reason.DISRUPTED, Reason.NODE_UNREACHABLE, Reason.FORCE_DELETED],
            ),
            runs(1),
        ],
        spec={"runPolicy": {"forceDeleteUnreachable": True}},
    ),
    Story(
        "a job that says so loses patience with a silent node before its peers do",
        [
            *begins_on_two_nodes(),
            restarts(
                "the node of worker 1 is lost",
                lose(B),
                1,
                Reason.DISRUPTED,
                phase=Phase.RESTARTING,
                holds=WAITS,
                disruptions=1,
                pods={"worker-1": 0},
                ready="0/2",
                ending=frozenset({"worker-1"}),
                failure=("worker-1", None, Reason.DISRUPTED),
                events=[Reason.DISRUPTED, Reason.NODE_UNREACHABLE],
            ),
            goes_on("the node is back", bring_back(B)),
        ],
        spec={"runPolicy": {"unreachableSeconds": 2}},
    ),
    Story(
        "both: no patience, and no consent asked for",
        [
            *begins_on_two_nodes(),
            restarts(
                "the node of worker 1 is lost",
                lose(B),
                1,
                Reason.DISRUPTED,
                disruptions=1,
                failure=("worker-1", None, Reason.DISRUPTED),
                events=[Reason.DISRUPTED, Reason.NODE_UNREACHABLE, Reason.FORCE_DELETED],
            ),
        ],
        spec={"runPolicy": {"unreachableSeconds": 2, "forceDeleteUnreachable": True}},
    ),
    Story(
        "a node that is silent for a moment is no reason for anything",
        [
            *begins_on_two_nodes(),
            step("a node is lost and is back", both(lose(B), bring_back(B))),
            step("its pod is ready again", lambda scene: scene.kubelet.start("qcnn-worker-1")),
        ],
        spec={"runPolicy": {"unreachableSeconds": 60}},
    ),
    Story(
        "a job that is suspended while a node is lost is so when its last pod is gone",
        [
            *begins_on_two_nodes(),
            step(
                "the node of worker 1 is lost, and the job is suspended",
                both(lose(B), edit(suspend=True)),
                phase=Phase.SUSPENDED,
                holds=WAITS,
                ready="0/2",
                pods={"worker-1": 0},
                ending=frozenset({"worker-1"}),
                events=[Reason.JOB_SUSPENDED, Reason.NODE_UNREACHABLE],
            ),
            step(
                "the node is back",
                bring_back(B),
                holds={ConditionType.SUSPENDED: Reason.JOB_SUSPENDED},
                pods={},
                ending=frozenset(),
            ),
        ],
        spec=SHORT_GRACE,
    ),
    Story(
        "a job that has succeeded says which node keeps it from cleaning up",
        [
            *begins_on_two_nodes(),
            succeeds(
                "the node of worker 1 is lost, and worker 0 ends with success",
                both(lose(B), finish("worker-0")),
                holds=SUCCEEDED | WAITS,
                ending=frozenset({"worker-1"}),
                services=frozenset(gang(0)),
                events=[Reason.TRAINING_SUCCEEDED, Reason.NODE_UNREACHABLE],
            ),
            step(
                "the node is back",
                bring_back(B),
                holds=SUCCEEDED,
                pods={"worker-0": 0},
                ending=frozenset(),
                services=frozenset(),
            ),
        ],
        spec=SHORT_GRACE,
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.promise)
def test_a_lost_node_is_dealt_with_as_promised(story: Story, stage: Scene) -> None:
    stage.tell(story)
