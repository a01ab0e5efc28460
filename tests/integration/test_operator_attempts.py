"""Stories of attempts: what restarts a gang, what it is charged for, and what ends the job."""

import pytest

from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.exitcodes import ExitCode
from qmljob_api.reasons import Reason
from support.stories import Scene, Story, gang, step
from support.story_actions import both, create, delete, evict, finish, let_go, made, start, unschedulable
from support.story_steps import begins, fails, restarts, runs, succeeds

BOTH_LOSE_THEIR_PEER = both(finish("worker-0", ExitCode.LOST_PEER), finish("worker-1", ExitCode.LOST_PEER))
BOTH_FAIL = both(finish("worker-0", 1), finish("worker-1", 1))


def rule(action: str, *codes: int, **more: object) -> dict[str, object]:
    return {"onExitCodes": {"values": list(codes), **more}, "action": action}


STORIES = [
    Story(
        "a failed replica restarts the gang as one, for one charge",
        [
            *begins(),
            restarts(
                "a survivor ends with a lost peer, and then it is known which one failed",
                both(finish("worker-0", ExitCode.LOST_PEER), finish("worker-1", 1, "boom", ago=8)),
                1,
                Reason.REPLICA_FAILED,
                restarts=1,
                failure=("worker-1", 1, Reason.REPLICA_FAILED),
            ),
            runs(1),
        ],
    ),
    Story(
        "a failure whose peers still run is acted on after the settle time",
        [
            *begins(),
            restarts(
                "worker 1 fails",
                finish("worker-1", 1, "boom"),
                1,
                Reason.REPLICA_FAILED,
                restarts=1,
                failure=("worker-1", 1, Reason.REPLICA_FAILED),
            ),
        ],
    ),
    Story(
        "no pod of an attempt is created while one of an older attempt is Terminating",
        [
            *begins(),
            restarts(
                "worker 1 is evicted, and worker 0 takes its time",
                both(evict("worker-1"), let_go("worker-1")),
                1,
                Reason.DISRUPTED,
                phase=Phase.RESTARTING,
                disruptions=1,
                ready="0/2",
                pods={"worker-0": 0},
                ending=frozenset({"worker-0"}),
                failure=("worker-1", None, Reason.DISRUPTED),
            ),
            step("worker 0 goes", let_go("worker-0"), phase=Phase.STARTING, pods=gang(1), ending=frozenset()),
            runs(1),
        ],
        kubelet=None,
    ),
    Story(
        "a disruption is not charged, whoever causes it",
        [
            *begins(),
            *(
                each
                for number, by in enumerate(("api", "scheduler", "taint-manager", "kubelet"), start=1)
                for each in (
                    restarts(
                        f"worker 1 is taken away by {by}",
                        evict("worker-1", by),
                        number,
                        Reason.DISRUPTED,
                        disruptions=number,
                        failure=("worker-1", None, Reason.DISRUPTED),
                    ),
                    runs(number),
                )
            ),
        ],
        spec={"runPolicy": {"backoffLimit": 0}},
    ),
    Story(
        "a pod that somebody deletes is a disruption",
        [
            *begins(),
            restarts(
                "somebody deletes worker 1",
                delete("pods", "worker-1"),
                1,
                Reason.DISRUPTED,
                disruptions=1,
                failure=("worker-1", None, Reason.DISRUPTED),
            ),
        ],
    ),
    Story(
        "a program that answers SIGTERM with 75 was taken away, whatever the pod says",
        [
            *begins(),
            restarts(
                "both save their work and end",
                both(finish("worker-0", ExitCode.PREEMPTED), finish("worker-1", ExitCode.PREEMPTED)),
                1,
                Reason.DISRUPTED,
                disruptions=1,
                failure=("worker-0", ExitCode.PREEMPTED, Reason.DISRUPTED),
            ),
        ],
    ),
    Story(
        "a disruption explains a failure beside it, also one that came first",
        [
            *begins(),
            restarts(
                "worker 0 fails, and worker 1 is evicted",
                both(finish("worker-0", 1), evict("worker-1")),
                1,
                Reason.DISRUPTED,
                disruptions=1,
                failure=("worker-1", None, Reason.DISRUPTED),
            ),
        ],
    ),
    Story(
        "the backoff limit ends a job that keeps failing",
        [
            *begins(),
            restarts(
                "it fails within the limit",
                BOTH_FAIL,
                1,
                Reason.REPLICA_FAILED,
                restarts=1,
                failure=("worker-0", 1, Reason.REPLICA_FAILED),
            ),
            runs(1),
            fails(
                "it fails once more",
                BOTH_FAIL,
                Reason.BACKOFF_LIMIT_EXCEEDED,
                failure=("worker-0", 1, Reason.BACKOFF_LIMIT_EXCEEDED),
            ),
        ],
        spec={"runPolicy": {"backoffLimit": 1}},
    ),
    Story(
        "with a backoff limit of 0 the first failure is the end",
        [
            *begins(),
            fails(
                "it fails",
                BOTH_FAIL,
                Reason.BACKOFF_LIMIT_EXCEEDED,
                failure=("worker-0", 1, Reason.BACKOFF_LIMIT_EXCEEDED),
            ),
        ],
        spec={"runPolicy": {"backoffLimit": 0}},
    ),
    Story(
        "three attempts in a row that end with lost peers only fail the job",
        [
            *begins(),
            *(
                each
                for number in (1, 2)
                for each in (
                    restarts(
                        f"all lose their peers, {number}",
                        BOTH_LOSE_THEIR_PEER,
                        number,
                        Reason.LOST_PEERS_ONLY,
                        failure=("worker-0", ExitCode.LOST_PEER, Reason.LOST_PEERS_ONLY),
                    ),
                    runs(number),
                )
            ),
            fails("all lose their peers once more", BOTH_LOSE_THEIR_PEER, Reason.LOST_PEERS_ONLY),
        ],
    ),
    Story(
        "a failure while a replica never ran is not charged",
        [
            step(
                "the job is made, and one replica finds no node",
                both(create(), made(2), unschedulable("worker-1"), start("worker-0")),
                exists=True,
                phase=Phase.STARTING,
                holds={ConditionType.BLOCKED: Reason.UNSCHEDULABLE},
                attempt=0,
                ready="1/2",
                pods=gang(0),
                services=frozenset(gang(0)),
                events=[Reason.STARTING, Reason.UNSCHEDULABLE],
            ),
            restarts(
                "the other one fails",
                finish("worker-0", 1),
                1,
                Reason.REPLICA_NEVER_STARTED,
                failure=("worker-0", 1, Reason.REPLICA_NEVER_STARTED),
            ),
        ],
        spec={"runPolicy": {"backoffLimit": 0}},
    ),
    *(
        Story(
            f"{what} fails the job at once, whatever is left of the backoff limit",
            [
                *begins(),
                fails(
                    "both workers end with it",
                    both(finish("worker-0", code), finish("worker-1", code)),
                    why,
                    failure=("worker-0", code, why),
                ),
            ],
        )
        for what, code, why in (
            ("an invalid configuration", ExitCode.INVALID_CONFIGURATION, Reason.INVALID_CONFIGURATION),
            ("a bad artifact", ExitCode.BAD_ARTIFACT, Reason.BAD_ARTIFACT),
        )
    ),
    Story(
        "a rule makes an exit code the end of the job",
        [
            *begins(),
            fails(
                "worker 1 ends with it",
                finish("worker-1", 3),
                Reason.FAILURE_RULE,
                pods={"worker-1": 0},
                failure=("worker-1", 3, Reason.FAILURE_RULE),
            ),
        ],
        spec={"failurePolicy": {"rules": [rule("FailJob", 3)]}},
    ),
    Story(
        "a rule makes the gang restart where the job would have failed, for a charge",
        [
            *begins(),
            restarts(
                "both workers refuse their flags",
                both(
                    finish("worker-0", ExitCode.INVALID_CONFIGURATION),
                    finish("worker-1", ExitCode.INVALID_CONFIGURATION),
                ),
                1,
                Reason.REPLICA_FAILED,
                restarts=1,
                failure=("worker-0", ExitCode.INVALID_CONFIGURATION, Reason.REPLICA_FAILED),
            ),
        ],
        spec={
            "failurePolicy": {"rules": [rule("RestartGang", ExitCode.INVALID_CONFIGURATION), rule("FailJob", 64, 65)]}
        },
    ),
    Story(
        "a replica whose failure is ignored counts as ended, and the others go on",
        [
            *begins(),
            step("worker 1 ends with the code that a rule ignores", finish("worker-1", 5), ready="1/2"),
            succeeds("worker 0 ends with success", finish("worker-0")),
        ],
        spec={"successPolicy": "AllReplicas", "failurePolicy": {"rules": [rule("Ignore", 5)]}},
    ),
    Story(
        "the chief's failure can't be ignored",
        [
            *begins(),
            restarts(
                "worker 0 ends with the code that a rule ignores",
                both(finish("worker-0", 5), finish("worker-1", ExitCode.LOST_PEER)),
                1,
                Reason.REPLICA_FAILED,
                restarts=1,
                failure=("worker-0", 5, Reason.REPLICA_FAILED),
            ),
        ],
        spec={"failurePolicy": {"rules": [rule("Ignore", 5)]}},
    ),
    Story(
        "a rule may be about all codes but some, and about some roles",
        [
            *begins(),
            fails(
                "worker 1 ends with a code that the rule does not list",
                finish("worker-1", 7),
                Reason.FAILURE_RULE,
                pods={"worker-1": 0},
                failure=("worker-1", 7, Reason.FAILURE_RULE),
            ),
        ],
        spec={"failurePolicy": {"rules": [rule("FailJob", 1, 2, operator="NotIn", roles=["worker"])]}},
    ),
    Story(
        "under AllReplicas the last success is the job's, and one that was seen counts when its pod is gone",
        [
            *begins(),
            step("worker 0 ends with success", finish("worker-0"), ready="1/2"),
            step("somebody deletes its pod", delete("pods", "worker-0"), pods={"worker-1": 0}),
            succeeds("worker 1 ends with success", finish("worker-1")),
        ],
        spec={"successPolicy": "AllReplicas"},
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.promise)
def test_an_attempt_ends_as_promised(story: Story, stage: Scene) -> None:
    stage.tell(story)
