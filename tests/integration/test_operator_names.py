"""Stories of names that are taken: what belongs to somebody else is never adopted and never touched."""

from typing import Any

import pytest

from qmljob_api import names
from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.reasons import Reason
from support.kubelet import starts_and_goes
from support.stories import JOB, Action, Scene, Step, Story, gang, step
from support.story_actions import both, create, delete, delete_job, finish, let_go, make, occupy, start, until
from support.story_steps import RUNS, SUCCEEDED, TEMPLATE, begins, runs, succeeds, template

TAKEN = {ConditionType.BLOCKED: Reason.NAME_TAKEN}
HEADLESS = {"clusterIP": "None", "ports": [{"port": 1}]}
SUSPENDED_JOB = {"suspend": True, "template": template(restartPolicy="Never")}
NEVER_TOUCHED = "delete or rename it, or name the job otherwise; it is never touched"
OWNED = "exists and belongs to ReplicaSet web (uid 1b9d)"
UNOWNED = "exists and has no owner"


def is_blocked(does: Action, words: str, **changes: Any) -> Step:
    """The job is made, and finds a name taken."""
    return step(
        "the job is made",
        both(does, create()),
        exists=True,
        phase=Phase.STARTING,
        holds=TAKEN,
        attempt=0,
        events=[Reason.STARTING, Reason.NAME_TAKEN],
        says={ConditionType.BLOCKED: f"{words}: {NEVER_TOUCHED}"},
        **{"ready": "0/2", "services": frozenset(gang(0)), **changes},
    )


def is_free(kind: str, name: str) -> list[Step]:
    """The other object is deleted, and the job goes on."""
    return [
        step(
            "the other one is deleted",
            delete(kind, name),
            holds={},
            pods=gang(0),
            services=frozenset(gang(0)),
        ),
        runs(0),
    ]


def delete_policy(stage: Scene) -> None:
    stage.plane.call("DELETE", f"{stage.path('networkpolicies')}/{JOB}")


STORIES = [
    Story(
        "a pod of nobody has the name of a replica",
        [
            is_blocked(
                occupy("pods", "worker-1", TEMPLATE["spec"]),
                f"Pod qcnn-worker-1 {UNOWNED}",
                pods={"worker-0": 0, "worker-1": None},
            ),
            *is_free("pods", "worker-1"),
        ],
    ),
    Story(
        "another owner's pod has the name and the label of a replica",
        [
            is_blocked(
                occupy("pods", "worker-1", TEMPLATE["spec"], owned=True, labelled=True),
                f"Pod qcnn-worker-1 {OWNED}",
                pods={"worker-1": None},
            ),
            *is_free("pods", "worker-1"),
        ],
    ),
    Story(
        "a Service of nobody has the name of a replica's",
        [
            is_blocked(occupy("services", "worker-0", HEADLESS), f"Service qcnn-worker-0 {UNOWNED}"),
            *is_free("services", "worker-0"),
        ],
    ),
    Story(
        "another owner's Service has the name and the label of a replica's",
        [
            is_blocked(
                occupy("services", "worker-0", HEADLESS, owned=True, labelled=True), f"Service qcnn-worker-0 {OWNED}"
            ),
            *is_free("services", "worker-0"),
        ],
    ),
    Story(
        "a NetworkPolicy of nobody has the job's name",
        [
            is_blocked(
                make("apis/networking.k8s.io/v1/{}/networkpolicies", JOB, spec={"podSelector": {}}),
                f"NetworkPolicy qcnn {UNOWNED}",
            ),
            step("it is deleted", delete_policy, phase=Phase.STARTING, holds={}, pods=gang(0)),
            runs(0),
        ],
    ),
    *(
        Story(
            f"a Job {words} has the name of inference's",
            [
                *begins(),
                succeeds(
                    does=both(
                        occupy("jobs", "inference", SUSPENDED_JOB, owned=owned, labelled=owned),
                        finish("worker-1"),
                        finish("worker-0"),
                    ),
                    holds=SUCCEEDED | TAKEN,
                    jobs=frozenset({"inference"}),
                    events=[Reason.TRAINING_SUCCEEDED, Reason.INFERENCE_STARTED, Reason.NAME_TAKEN],
                    says={ConditionType.BLOCKED: f"Job qcnn-inference {OWNED if owned else UNOWNED}: {NEVER_TOUCHED}"},
                ),
                step(
                    "the other one is deleted",
                    delete("jobs", "inference"),
                    holds=SUCCEEDED,
                    pods=gang(0) | {"inference-0": None},
                ),
            ],
            spec={"inference": {"template": TEMPLATE}},
        )
        for words, owned in (("of nobody", False), ("of another owner", True))
    ),
    Story(
        "a name that somebody takes while the job runs is asked for when it is needed",
        [
            *begins(),
            step(
                "worker 1 is deleted, and its name is taken at once",
                both(
                    delete("pods", "worker-1"),
                    until(ending=frozenset(gang(0))),
                    let_go("worker-1"),
                    occupy("pods", "worker-1", TEMPLATE["spec"]),
                    let_go("worker-0"),
                ),
                phase=Phase.RESTARTING,
                holds=TAKEN,
                attempt=1,
                disruptions=1,
                ready="0/2",
                pods={"worker-0": 1, "worker-1": None},
                failure=("worker-1", None, Reason.DISRUPTED),
                events=[Reason.DISRUPTED, Reason.NAME_TAKEN],
            ),
            step(
                "it is free again",
                delete("pods", "worker-1"),
                phase=Phase.STARTING,
                holds={},
                pods=gang(1),
            ),
        ],
        kubelet=None,
    ),
    Story(
        "the pods of a job that was deleted are another job's, also where that has the same name",
        [
            *begins(),
            step(
                "the job is deleted, and its pods take their time",
                delete_job(),
                exists=False,
                phase=None,
                holds={},
                attempt=None,
                ready="",
                ending=frozenset(gang(0)),
                services=frozenset(),
            ),
            step(
                "it is made again",
                create(),
                exists=True,
                phase=Phase.STARTING,
                holds=TAKEN,
                attempt=0,
                ready="0/2",
                services=frozenset(gang(0)),
                events=[Reason.STARTING, Reason.NAME_TAKEN],
                says={ConditionType.BLOCKED: "Pod qcnn-worker-0 is left from an earlier job qcnn (uid "},
            ),
            step(
                "one of the old pods goes",
                let_go("worker-0"),
                pods={"worker-1": 0},
                ending=frozenset({"worker-1"}),
            ),
            step("the other one goes", let_go("worker-1"), holds={}, pods=gang(0), ending=frozenset()),
            step(
                "they run",
                start(),
                phase=Phase.RUNNING,
                holds=RUNS,
                ready="2/2",
                events=[Reason.REPLICAS_RUNNING],
            ),
        ],
        kubelet=None,
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.promise)
def test_what_is_somebody_elses_stays_so(story: Story, stage: Scene) -> None:
    stage.tell(story)


def test_a_job_that_is_deleted_and_made_again_at_once_starts_anew(stage: Scene) -> None:
    """Whatever is left of the old one at that moment."""
    with stage.playing(Story("", [], kubelet=starts_and_goes)):
        for number in range(5):
            create()(stage)
            stage.reach(f"round {number}", phase=Phase.RUNNING, attempt=0)
            delete_job()(stage)
        create()(stage)
        stage.reach("the last one", phase=Phase.RUNNING, attempt=0, holds=RUNS, pods=gang(0), ending=frozenset())
        job = stage.job()
        assert job is not None
        owners = {
            item["metadata"]["ownerReferences"][0]["uid"]
            for kind in ("pods", "services")
            for item in stage.timeline.present(kind)
        }
        assert owners == {job["metadata"]["uid"]}
    stage.check_promises()


def test_a_job_that_is_deleted_while_its_pods_are_made_leaves_none(stage: Scene) -> None:
    workers = 40
    spec = {"replicaSpecs": {"worker": {"replicas": workers, "template": TEMPLATE}}}
    with stage.playing(Story("", [], spec=spec)):
        create()(stage)
        assert stage.timeline.until(lambda: any(stage.timeline.present("pods")))
        delete_job()(stage)
        stage.reach("nothing is left", exists=False, pods={}, services=frozenset())
        mark = stage.plane.audit_mark()
        other = {**stage.manifest, "metadata": {"name": "other"}}
        stage.plane.call("POST", stage.path(names.PLURAL), other)
        assert stage.timeline.until(lambda: len(stage.timeline.present("pods")) == workers)
        late = [each["objectRef"].get("name", "") for each in stage.operator.writes(stage.namespace, since=mark)]
        assert [name for name in late if name.startswith(JOB)] == []
    stage.check_promises()
