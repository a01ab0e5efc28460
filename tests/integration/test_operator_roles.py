"""Stories of roles: chief, ps and evaluator, and which replicas start anew alone."""

import pytest

from qmljob_api.conditions import Phase
from qmljob_api.exitcodes import ExitCode
from qmljob_api.reasons import Reason
from support.stories import Scene, Step, Story, gang, step
from support.story_actions import both, delete, edit, evict, finish, kill_operator, start, start_operator
from support.story_steps import RUNS, begins, fails, restarts, roles, runs, succeeds

WITH_PS = {"replicaSpecs": roles(ps=1, worker=2)}
WITH_EVALUATOR = {"replicaSpecs": roles(worker=2, evaluator=1)}
WITH_CHIEF = {"replicaSpecs": roles(chief=1, worker=1)}
WORKER_1 = frozenset({"worker-1"})
EVALUATOR = frozenset({"evaluator-0"})


def starts_alone(what: str, does: object, why: Reason = Reason.REPLICA_REPLACED, **changes: object) -> Step:
    """One of three replicas starts anew, and nobody else does."""
    alone = {"phase": Phase.STARTING, "holds": {}, "ready": "2/3", "events": [why]}
    return step(what, does, **{**alone, **changes})


def is_back(**changes: object) -> Step:
    """All three run again. That they did was told of this attempt before."""
    return step("it runs", start(), **{"phase": Phase.RUNNING, "holds": RUNS, "ready": "3/3", **changes})


STORIES = [
    Story(
        "in a job with ps a worker that fails starts anew alone, for one charge",
        [
            *begins(ps=1),
            starts_alone(
                "worker 1 fails",
                finish("worker-1", 1),
                restarts=1,
                again=WORKER_1,
                failure=("worker-1", 1, Reason.REPLICA_REPLACED),
            ),
            is_back(),
            starts_alone(
                "it fails again",
                finish("worker-1", 2, ago=8),
                restarts=2,
                failure=("worker-1", 2, Reason.REPLICA_REPLACED),
            ),
            is_back(),
            fails(
                "it fails once more than it may",
                finish("worker-1", 3, ago=8),
                Reason.BACKOFF_LIMIT_EXCEEDED,
                ready="0/3",
                pods={"worker-1": 0},
                failure=("worker-1", 3, Reason.BACKOFF_LIMIT_EXCEEDED),
            ),
        ],
        spec={**WITH_PS, "runPolicy": {"backoffLimit": 2}},
    ),
    Story(
        "in a job with ps a worker that is taken away starts anew alone, for no charge",
        [
            *begins(ps=1),
            starts_alone(
                "worker 1 is evicted",
                evict("worker-1"),
                Reason.DISRUPTED,
                disruptions=1,
                again=WORKER_1,
                failure=("worker-1", None, Reason.DISRUPTED),
            ),
            is_back(),
            starts_alone("somebody deletes it", delete("pods", "worker-1"), Reason.DISRUPTED, disruptions=2),
            is_back(),
        ],
        spec={**WITH_PS, "runPolicy": {"backoffLimit": 0}},
    ),
    Story(
        "in a job with ps a worker that lost a peer starts anew alone, for no charge",
        [
            *begins(ps=1),
            starts_alone(
                "worker 1 ends with a lost peer",
                finish("worker-1", ExitCode.LOST_PEER),
                again=WORKER_1,
                failure=("worker-1", ExitCode.LOST_PEER, Reason.REPLICA_REPLACED),
            ),
            is_back(),
        ],
        spec=WITH_PS,
    ),
    Story(
        "a replica that starts anew alone does so once, also where the operator is killed meanwhile",
        [
            *begins(ps=1),
            starts_alone(
                "worker 1 is evicted while no operator runs",
                both(kill_operator, evict("worker-1"), start_operator),
                Reason.DISRUPTED,
                disruptions=1,
                again=WORKER_1,
                failure=("worker-1", None, Reason.DISRUPTED),
            ),
            step("another operator takes over", both(kill_operator, start_operator)),
            is_back(),
        ],
        spec=WITH_PS,
    ),
    *(
        Story(
            f"in a job with ps a lost {replica} restarts the gang",
            [
                *begins(ps=1),
                restarts(
                    f"{replica} fails",
                    finish(replica, 1, ago=8),
                    1,
                    Reason.REPLICA_FAILED,
                    restarts=1,
                    pods=gang(1, ps=1),
                    failure=(replica, 1, Reason.REPLICA_FAILED),
                ),
                runs(1, 3),
                restarts(
                    f"{replica} is evicted",
                    evict(replica),
                    2,
                    Reason.DISRUPTED,
                    disruptions=1,
                    pods=gang(2, ps=1),
                    failure=(replica, None, Reason.DISRUPTED),
                ),
            ],
            spec=WITH_PS,
        )
        for replica in ("ps-0", "worker-0")
    ),
    Story(
        "an evaluator that fails starts anew alone, never restarts the gang, and in the end is left alone",
        [
            *begins(evaluator=1),
            starts_alone(
                "the evaluator fails",
                finish("evaluator-0", 1),
                again=EVALUATOR,
                failure=("evaluator-0", 1, Reason.REPLICA_REPLACED),
            ),
            is_back(),
            starts_alone(
                "it is evicted",
                evict("evaluator-0"),
                Reason.DISRUPTED,
                disruptions=1,
                failure=("evaluator-0", None, Reason.DISRUPTED),
            ),
            is_back(),
            step("it fails again, and was replaced often enough", finish("evaluator-0", 1), ready="2/3"),
            succeeds("training ends", both(finish("worker-1"), finish("worker-0")), ready="0/3"),
        ],
        spec={**WITH_EVALUATOR, "runPolicy": {"backoffLimit": 2}},
    ),
    Story(
        "an evaluator that can't run as it is configured fails the job",
        [
            *begins(evaluator=1),
            fails(
                "the evaluator refuses its flags",
                finish("evaluator-0", ExitCode.INVALID_CONFIGURATION),
                Reason.INVALID_CONFIGURATION,
                ready="0/3",
                pods={"evaluator-0": 0},
                failure=("evaluator-0", ExitCode.INVALID_CONFIGURATION, Reason.INVALID_CONFIGURATION),
            ),
        ],
        spec=WITH_EVALUATOR,
    ),
    Story(
        "an evaluator that has done its work is done, and one that runs on ends with the job",
        [
            *begins(evaluator=1),
            succeeds(
                "the workers end",
                both(finish("worker-1"), finish("worker-0")),
                ready="0/3",
                pods=gang(0),
            ),
        ],
        spec={**WITH_EVALUATOR, "successPolicy": "AllReplicas"},
    ),
    Story(
        "where there is a chief its success is the job's, and a worker's is not",
        [
            *begins(worker=1, chief=1),
            step("worker 0 ends with success", finish("worker-0"), ready="1/2"),
            succeeds("the chief ends with success", finish("chief-0")),
        ],
        spec=WITH_CHIEF,
    ),
    Story(
        "where there is a chief a worker's failure restarts both",
        [
            *begins(worker=1, chief=1),
            restarts(
                "worker 0 fails",
                both(finish("chief-0", ExitCode.LOST_PEER), finish("worker-0", 1, ago=8)),
                1,
                Reason.REPLICA_FAILED,
                restarts=1,
                pods=gang(1, worker=1, chief=1),
                failure=("worker-0", 1, Reason.REPLICA_FAILED),
            ),
            runs(1),
        ],
        spec=WITH_CHIEF,
    ),
    Story(
        "a job of one replica restarts like any other",
        [
            *begins(worker=1),
            restarts(
                "worker 0 fails",
                finish("worker-0", 1),
                1,
                Reason.REPLICA_FAILED,
                restarts=1,
                pods=gang(1, worker=1),
                failure=("worker-0", 1, Reason.REPLICA_FAILED),
            ),
        ],
        spec={"replicaSpecs": roles(worker=1)},
    ),
    Story(
        "a role that is taken out of the job goes with a planned restart",
        [
            *begins(ps=1),
            restarts(
                "the ps is taken out",
                edit(replicaSpecs={"ps": None}),
                1,
                Reason.SPEC_CHANGED,
                pods=gang(1),
                services=frozenset(gang(1)),
            ),
        ],
        spec=WITH_PS,
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.promise)
def test_a_role_is_what_it_promises(story: Story, stage: Scene) -> None:
    stage.tell(story)
