"""Stories of edits: what somebody changes of a job or of its objects, and what follows from it."""

import pytest

from qmljob_api import names
from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.reasons import Reason
from support.stories import Scene, Story, gang, step
from support.story_actions import (
    both,
    create,
    edit,
    evict,
    finish,
    let_go,
    made_anew,
    patch,
    policy_made_anew,
    undone,
    undone_policy,
)
from support.story_steps import CONTAINER, RUNS, begins, restarts, runs, succeeds, template

NOBODYS_SERVICE = {"spec": {"selector": {"app": "another"}}}
OPEN_POLICY = {
    "ingress": [{}],
    "policyTypes": ["Ingress", "Egress"],
    "egress": [],
    "podSelector": {"matchLabels": {"a": "b"}},
}
WITHOUT_ITS_VOLUME = template(containers=[CONTAINER | {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}])
NO_VOLUME = 'spec.replicaSpecs.worker.template.spec.containers[0].volumeMounts[0].name: Not found: "data"'
INVALID = {ConditionType.INVALID: Reason.INVALID_SPEC}
SUSPENDED = {ConditionType.SUSPENDED: Reason.JOB_SUSPENDED}


def workers(**spec: object) -> dict[str, object]:
    return {"replicaSpecs": {"worker": spec}}


STORIES = [
    Story(
        "an edit of what pods are made from is a planned restart; another edit is none",
        [
            *begins(),
            step("the backoff limit is edited", edit(runPolicy={"backoffLimit": 7})),
            restarts("the port is edited", edit(port=2300), 1, Reason.SPEC_CHANGED),
            runs(1),
            restarts("a port is added", edit(ports=[{"name": "profiler", "port": 2223}]), 2, Reason.SPEC_CHANGED),
            runs(2),
            restarts(
                "the image is edited",
                edit(**workers(template=template(containers=[CONTAINER | {"image": "y"}]))),
                3,
                Reason.SPEC_CHANGED,
            ),
            runs(3),
        ],
    ),
    Story(
        "more replicas are a planned restart with a larger gang, fewer one with a smaller",
        [
            *begins(),
            restarts(
                "a third worker is asked for",
                edit(**workers(replicas=3)),
                1,
                Reason.SPEC_CHANGED,
                pods=gang(1, worker=3),
                services=frozenset(gang(1, worker=3)),
            ),
            restarts(
                "fewer are asked for before it runs",
                edit(**workers(replicas=1)),
                2,
                Reason.SPEC_CHANGED,
                pods=gang(2, worker=1),
                services=frozenset(gang(2, worker=1)),
            ),
        ],
    ),
    Story(
        "an edit that is taken back before anybody saw it restarts nothing",
        [
            *begins(),
            step(
                "the port is edited and edited back while no operator runs",
                both(lambda scene: scene.operator.kill(), edit(port=2300), edit(port=2222)),
            ),
            step("an operator starts", lambda scene: scene.operator.start()),
        ],
    ),
    Story(
        "an edit comes with a failure: the new attempt is made from it",
        [
            *begins(),
            restarts(
                "worker 1 is evicted and a third one asked for while no operator runs",
                both(
                    lambda scene: scene.operator.kill(),
                    evict("worker-1"),
                    edit(**workers(replicas=3)),
                    lambda scene: scene.operator.start(),
                ),
                1,
                Reason.SPEC_CHANGED,
                pods=gang(1, worker=3),
                services=frozenset(gang(1, worker=3)),
            ),
        ],
    ),
    Story(
        "a Service that somebody edits or deletes is put back, and the gang goes on",
        [
            *begins(),
            step(
                "somebody adds to its selector",
                patch("services", "worker-0", NOBODYS_SERVICE),
                events=[Reason.REPAIRED],
            ),
            step(
                "somebody changes its ports",
                patch("services", "worker-1", {"spec": {"ports": [{"name": "a", "port": 1}]}}),
                events=[Reason.REPAIRED],
            ),
            step("somebody deletes one", made_anew("services", "worker-1")),
            step(
                "somebody takes away the label by which the operator finds it",
                undone("services", "worker-0", {"metadata": {"labels": {names.LABEL_JOB: None}}}),
            ),
        ],
    ),
    Story(
        "a NetworkPolicy that somebody edits or deletes is put back, and the gang goes on",
        [
            *begins(),
            step(
                "somebody lets everybody in, shuts the replicas off, and has it select one more label",
                undone_policy({"spec": OPEN_POLICY}),
                events=[Reason.REPAIRED],
            ),
            step("somebody deletes it", policy_made_anew),
            step(
                "somebody takes away the label by which the operator finds it",
                undone_policy({"metadata": {"labels": {names.LABEL_JOB: None}}}),
            ),
        ],
    ),
    Story(
        "a Service's label that somebody takes away is put back",
        [
            *begins(),
            step(
                "somebody takes away its component's name",
                undone("services", "worker-0", {"metadata": {"labels": {"app.kubernetes.io/name": None}}}),
                events=[Reason.REPAIRED],
            ),
        ],
    ),
    Story(
        "a pod's labels that somebody edits are put back, and the gang goes on",
        [
            *begins(),
            step(
                "somebody edits its role and index",
                undone("pods", "worker-1", {"metadata": {"labels": {names.LABEL_ROLE: "ps", names.LABEL_INDEX: "7"}}}),
            ),
            step("somebody adds one", patch("pods", "worker-1", {"metadata": {"labels": {"team": "qml"}}})),
        ],
    ),
    Story(
        "a job whose pods the API server refuses is invalid in its own words, and starts when it is edited",
        [
            step(
                "the job is made",
                create(),
                exists=True,
                phase=Phase.INVALID,
                holds=INVALID,
                events=[Reason.INVALID_SPEC],
                says={ConditionType.INVALID: NO_VOLUME},
            ),
            step(
                "it is edited",
                edit(**workers(template=template(volumes=[{"name": "data", "emptyDir": {}}]))),
                phase=Phase.STARTING,
                holds={},
                attempt=0,
                ready="0/2",
                pods=gang(0),
                services=frozenset(gang(0)),
                events=[Reason.STARTING],
            ),
        ],
        spec=workers(replicas=2, template=WITHOUT_ITS_VOLUME),
    ),
    Story(
        "an edit that can't run changes nothing but the condition that says so",
        [
            *begins(),
            step(
                "the template becomes invalid",
                edit(**workers(template=WITHOUT_ITS_VOLUME)),
                holds=RUNS | INVALID,
                events=[Reason.INVALID_SPEC],
                says={ConditionType.INVALID: f"{NO_VOLUME} (attempt 0 goes on as it was built)"},
            ),
            succeeds(),
        ],
    ),
    Story(
        "an edit that can't run and is edited back leaves the attempt as it is",
        [
            *begins(),
            step(
                "the template becomes invalid",
                edit(**workers(template=WITHOUT_ITS_VOLUME)),
                holds=RUNS | INVALID,
                events=[Reason.INVALID_SPEC],
            ),
            step("it becomes valid again", edit(**workers(template=template(containers=[CONTAINER]))), holds=RUNS),
        ],
        spec=workers(replicas=2, template=template()),
    ),
    Story(
        "suspend deletes pods and keeps state; the job goes on with a new attempt",
        [
            *begins(),
            step(
                "the job is suspended",
                edit(suspend=True),
                phase=Phase.SUSPENDED,
                holds=SUSPENDED,
                ready="0/2",
                pods={},
                events=[Reason.JOB_SUSPENDED],
            ),
            step("it is edited meanwhile", edit(**workers(replicas=3))),
            restarts(
                "it is resumed",
                edit(suspend=False),
                1,
                Reason.JOB_RESUMED,
                pods=gang(1, worker=3),
                services=frozenset(gang(1, worker=3)),
            ),
            runs(1, 3),
        ],
    ),
    Story(
        "a job that is made suspended starts when it is resumed",
        [
            step(
                "the job is made",
                create(),
                exists=True,
                phase=Phase.SUSPENDED,
                holds=SUSPENDED,
                events=[Reason.JOB_SUSPENDED],
            ),
            step(
                "it is resumed",
                edit(suspend=False),
                phase=Phase.STARTING,
                holds={},
                attempt=0,
                ready="0/2",
                pods=gang(0),
                services=frozenset(gang(0)),
                events=[Reason.STARTING],
            ),
            runs(0),
        ],
        spec={"suspend": True},
    ),
    Story(
        "a success that comes before a suspension is one",
        [
            *begins(),
            succeeds(
                "worker 0 ends, and the job is suspended while no operator runs",
                both(
                    lambda scene: scene.operator.kill(),
                    finish("worker-1"),
                    finish("worker-0"),
                    edit(suspend=True),
                    lambda scene: scene.operator.start(),
                ),
            ),
            step("it is resumed", edit(suspend=False)),
        ],
    ),
    Story(
        "a finished job is not started anew by an edit",
        [
            *begins(),
            succeeds(),
            step("a third worker is asked for", edit(**workers(replicas=3))),
            step("it is suspended", edit(suspend=True)),
            step("it is resumed", edit(suspend=False)),
        ],
    ),
    Story(
        "an edit while an attempt waits for the pods of the one before makes that attempt another one",
        [
            *begins(),
            restarts(
                "worker 1 is evicted, and both take their time",
                evict("worker-1"),
                1,
                Reason.DISRUPTED,
                phase=Phase.RESTARTING,
                disruptions=1,
                pods=gang(0),
                ending=frozenset(gang(0)),
                failure=("worker-1", None, Reason.DISRUPTED),
            ),
            step(
                "a third one is asked for",
                edit(**workers(replicas=3)),
                attempt=2,
                ready="0/3",
                services=frozenset(gang(2, worker=3)),
                events=[Reason.SPEC_CHANGED],
            ),
            step(
                "the pods go",
                let_go("worker-0", "worker-1"),
                phase=Phase.STARTING,
                pods=gang(2, worker=3),
                ending=frozenset(),
            ),
        ],
        kubelet=None,
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.promise)
def test_an_edit_has_the_effect_that_is_promised(story: Story, stage: Scene) -> None:
    stage.tell(story)
