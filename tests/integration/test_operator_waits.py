"""Stories of jobs that wait: for room, for an account, for an image, for a node; each says what for, and goes on."""

from typing import Any

import pytest

from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.reasons import Reason
from support.stories import Action, Scene, Step, Story, gang, step
from support.story_actions import (
    both,
    create,
    edit,
    enforce,
    finish,
    made,
    make_account,
    nothing,
    remove_webhook,
    set_quota,
    set_webhook,
    start,
    unschedulable,
    waiting,
)
from support.story_steps import RUNS, SUCCEEDED, TEMPLATE, begins, runs, succeeds, template

FORBIDDEN = {ConditionType.BLOCKED: Reason.FORBIDDEN}


def workers(**spec: Any) -> dict[str, Any]:
    return {"replicaSpecs": {"worker": {"replicas": 2, "template": template(**spec)}}}


def waits(does: Action, words: str, **changes: Any) -> Step:
    """The job is made, and the API server takes none of its pods."""
    return step(
        "the job is made",
        both(does, create()),
        exists=True,
        phase=Phase.PENDING,
        holds=FORBIDDEN,
        events=[Reason.FORBIDDEN],
        says={ConditionType.BLOCKED: words},
        **changes,
    )


def begins_at_last(what: str, does: Action) -> list[Step]:
    """What the job waited for is there."""
    return [
        step(
            what,
            does,
            phase=Phase.STARTING,
            holds={},
            attempt=0,
            ready="0/2",
            pods=gang(0),
            services=frozenset(gang(0)),
            events=[Reason.STARTING],
        ),
        runs(0),
    ]


def can_not_start(does: Action, why: Reason, words: str) -> Step:
    """The job is made, and one of its replicas can't start."""
    return step(
        "the job is made, and worker 1 can't start",
        both(create(), made(2), does, start("worker-0")),
        exists=True,
        phase=Phase.STARTING,
        holds={ConditionType.BLOCKED: why},
        attempt=0,
        ready="1/2",
        pods=gang(0),
        services=frozenset(gang(0)),
        events=[Reason.STARTING, why],
        notes=["Attempt 0 starts: 2 workers", words],
        says={ConditionType.BLOCKED: words},
    )


STORIES = [
    Story(
        "a missing ServiceAccount",
        [
            waits(nothing, 'serviceaccount "trainer" not found'),
            *begins_at_last("it is made", make_account("trainer")),
        ],
        spec=workers(serviceAccountName="trainer"),
    ),
    Story(
        "a missing PriorityClass, and an edit that does without",
        [
            waits(nothing, "no PriorityClass with name urgent was found"),
            *begins_at_last(
                "the job is edited", edit(replicaSpecs={"worker": {"template": {"spec": {"priorityClassName": None}}}})
            ),
        ],
        spec=workers(priorityClassName="urgent"),
    ),
    Story(
        "Pod Security, until the namespace is less strict",
        [
            waits(
                enforce("restricted"),
                'violates PodSecurity "restricted:latest"',
            ),
            *begins_at_last(
                "the namespace allows more",
                enforce("privileged"),
            ),
        ],
    ),
    Story(
        "an admission webhook that is away",
        [
            waits(set_webhook, 'failed calling webhook "consent.example.com"'),
            *begins_at_last("nobody's consent is needed any more", remove_webhook),
        ],
    ),
    Story(
        "no room at all",
        [
            waits(
                set_quota(hard=5, used=5),
                "exceeded quota: pods, requested: pods=1, used: pods=5, limited: pods=5",
            ),
            *begins_at_last("there is room", set_quota(hard=7, used=5)),
        ],
    ),
    Story(
        "an edit in a namespace that the job itself has filled",
        [
            step("there is room for two pods", set_quota(hard=2, used=0)),
            *begins(),
            step(
                "the port is edited, and the room of the old pods is not counted as free yet",
                both(set_quota(hard=2, used=2), edit(port=2300)),
                phase=Phase.STARTING,
                attempt=1,
                ready="0/2",
                holds=FORBIDDEN,
                pods={},
                events=[Reason.SPEC_CHANGED, Reason.FORBIDDEN],
            ),
            step("it is counted as free", set_quota(hard=2, used=0), holds={}, pods=gang(1)),
        ],
    ),
    Story(
        "no room for inference, when training has succeeded",
        [
            *begins(),
            succeeds(
                does=both(set_quota(hard=0, used=0, kind="jobs"), finish("worker-1"), finish("worker-0")),
                holds=SUCCEEDED | FORBIDDEN,
                events=[Reason.TRAINING_SUCCEEDED, Reason.INFERENCE_STARTED, Reason.FORBIDDEN],
                says={ConditionType.BLOCKED: 'Job qcnn-inference: jobs.batch "qcnn-inference" is forbidden: exceeded'},
            ),
            step(
                "there is room",
                set_quota(hard=1, used=0, kind="jobs"),
                holds=SUCCEEDED,
                pods=gang(0) | {"inference-0": None},
                jobs=frozenset({"inference"}),
            ),
        ],
        spec={"inference": {"template": TEMPLATE}},
    ),
    Story(
        "an image that does not exist",
        [
            can_not_start(
                waiting("worker-1", "ErrImagePull", 'failed to resolve "x": not found'),
                Reason.IMAGE_UNAVAILABLE,
                'qcnn-worker-1: ErrImagePull: failed to resolve "x": not found',
            ),
            step(
                "kubelet says the same in other words",
                waiting("worker-1", "ImagePullBackOff", 'Back-off pulling image "x"'),
                says={ConditionType.BLOCKED: "ErrImagePull"},
            ),
            step(
                "there is one",
                start(),
                phase=Phase.RUNNING,
                holds=RUNS,
                ready="2/2",
                events=[Reason.REPLICAS_RUNNING],
            ),
        ],
    ),
    Story(
        "a ConfigMap that does not exist",
        [
            can_not_start(
                waiting("worker-1", "CreateContainerConfigError", 'configmap "flags" not found'),
                Reason.CONTAINER_CANNOT_START,
                'qcnn-worker-1: CreateContainerConfigError: configmap "flags" not found',
            ),
        ],
    ),
    Story(
        "a node with room",
        [
            can_not_start(
                unschedulable("worker-1"),
                Reason.UNSCHEDULABLE,
                "qcnn-worker-1: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
            ),
            step(
                "there is one",
                start(),
                phase=Phase.RUNNING,
                holds=RUNS,
                ready="2/2",
                events=[Reason.REPLICAS_RUNNING],
            ),
        ],
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.promise)
def test_a_job_says_what_it_waits_for(story: Story, stage: Scene) -> None:
    stage.tell(story)


def test_a_job_waits_with_the_replicas_for_which_there_is_room(stage: Scene) -> None:
    """Which of them are first is chance."""
    with stage.playing(Story("", [])):
        both(set_quota(hard=6, used=5), create())(stage)
        stage.reach("there is room for one", phase=Phase.STARTING, attempt=0, holds=FORBIDDEN)
        assert len(stage.seen().pods) == 1
        blocked = stage.status().condition(ConditionType.BLOCKED)
        assert blocked is not None
        assert "exceeded quota: pods, requested: pods=1, used: pods=6, limited: pods=6" in blocked.message
        set_quota(hard=7, used=6)(stage)
        stage.reach("there is room for both", attempt=0, holds={}, pods=gang(0), again=frozenset())
    stage.check_promises()
