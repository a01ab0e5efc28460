"""Attempts, step by step: given these objects and this clock, exactly these writes follow; run again, none follow."""

from dataclasses import replace

import pytest

from qmljob_api.conditions import Phase
from support.planning_steps import (
    GO,
    QUIET,
    both,
    counted,
    create,
    deletions,
    ends,
    fail,
    nothing,
    pods,
    recreate,
    restart,
    run,
    service_deletions,
)
from support.planning_stories import Step, Story, tell
from support.world import World

PS = ("worker-0", "worker-1", "ps-0", "evaluator-0")
PS_JOB = {"roles": {"worker": 2, "ps": 1, "evaluator": 1}}
PS_START = [create(*PS, roles="2 workers, 1 ps, 1 evaluator"), run(replicas=4)]
START = [create(), run()]
EVICTED = "Restart, not charged (attempt 1 in 8 s): qcnn-worker-1 was taken away (Eviction API: evicting)"
OOM = "qcnn-worker-1 exited with 137 (out of memory)"
NODE_AWAY = (
    "qcnn-worker-1 can't be deleted: node node-b does not answer. The job goes on when the node is back, or when it is "
    "deleted or tainted node.kubernetes.io/out-of-service; runPolicy.forceDeleteUnreachable: true lets the operator "
    "delete such pods"
)
LOST = "Restart, not charged (attempt 1 in 8 s): qcnn-worker-1 was taken away (its node node-b does not answer)"


def on_two_nodes(world: World) -> None:
    world.start("worker-0", node="node-a")
    world.start("worker-1", node="node-b")


TWO_NODES = [create(), replace(run(), act=on_two_nodes)]

STORIES = {
    "a failure is charged once it has settled, and the job goes on to its success": Story(
        World,
        [
            *START,
            QUIET,
            counted("worker-1 runs out of memory", ends("worker-1", 137, reason="OOMKilled")),
            restart("nobody explains it", nothing, f"Restart 1 of 3 (attempt 1 in 8 s): {OOM}", time=65),
            GO,
            recreate(),
            run(1),
            Step(
                "worker 0 ends with 0",
                ends("worker-0", 0),
                ["status: Succeeded"],
                ["Training succeeded in attempt 1"],
                Phase.SUCCEEDED,
                60,
            ),
            Step(
                "worker 1 ends, too",
                ends("worker-1", 0),
                ["status: Succeeded", *service_deletions()],
                time=2,
            ),
            QUIET,
        ],
    ),
    "no settle time where everybody has ended; who lost a peer is not at fault": Story(
        World,
        [
            *START,
            restart(
                "worker-1 crashes and worker-0 loses it",
                both(ends("worker-0", 69), ends("worker-1", 1)),
                "Restart 1 of 3 (attempt 1 in 8 s): qcnn-worker-1 exited with 1",
                # Ended pods are gone at once: nobody has to let them go.
            ),
            recreate(),
        ],
    ),
    "a failure that comes late is explained by what comes later": Story(
        World,
        [
            *START,
            counted("worker-0 loses its peer", ends("worker-0", 69)),
            restart("the eviction shows", lambda world: world.disrupt("worker-1"), EVICTED, "worker-0", time=20),
            GO,
            recreate(),
        ],
    ),
    "an eviction restarts the gang at once, free": Story(
        lambda: World(runPolicy={"backoffLimit": 0}),
        [
            *START,
            restart("worker-1 is evicted", lambda world: world.disrupt("worker-1"), EVICTED, "worker-0"),
            GO,
            recreate(),
        ],
    ),
    "a deleted pod restarts the gang, free, with the names of before": Story(
        World,
        [
            *START,
            restart(
                "somebody deletes worker-1",
                lambda world: world.delete("worker-1"),
                "Restart, not charged (attempt 1 in 8 s): qcnn-worker-1 was taken away (its pod was deleted)",
                "worker-0",
            ),
            GO,
            recreate(),
            run(1),
        ],
    ),
    "a pod that vanished is one that was deleted": Story(
        World,
        [
            *START,
            restart(
                "worker-1 is deleted by force",
                lambda world: world.vanish("worker-1"),
                "Restart, not charged (attempt 1 in 8 s): qcnn-worker-1 was taken away (its pod was deleted)",
                "worker-0",
            ),
        ],
    ),
    "no pod of the new attempt while one of the old exists": Story(
        World,
        [
            *START,
            restart("worker-1 is evicted", lambda world: world.disrupt("worker-1"), EVICTED, "worker-0"),
            Step("both take their time", nothing, time=15),
            Step("worker-0 goes", lambda world: world.vanish("worker-0")),
            Step(
                "worker-1 goes",
                lambda world: world.vanish("worker-1"),
                [*pods(), "status: Starting"],
                (),
                Phase.STARTING,
            ),
        ],
    ),
    "with no restart left the job fails": Story(
        lambda: World(runPolicy={"backoffLimit": 0}),
        [
            *START,
            fail(
                "worker-1 crashes",
                both(ends("worker-0", 69), ends("worker-1", 1)),
                "qcnn-worker-1 exited with 1 in attempt 0, and all restarts of runPolicy.backoffLimit (0) are used up",
                *service_deletions(),
            ),
            QUIET,
        ],
    ),
    "what can never work fails at once; what still runs is stopped, what ended stays": Story(
        World,
        [
            *START,
            counted("worker-1 is configured wrongly", ends("worker-1", 64)),
            fail(
                "it settles",
                nothing,
                "qcnn-worker-1 exited with 64 (invalid configuration) in attempt 0",
                *deletions("worker-0", grace=None),
                "status: Failed",
                time=65,
            ),
            Step("worker-0 goes", World.let_go, ["status: Failed", *service_deletions()]),
            QUIET,
        ],
    ),
    "lost peers alone are not charged, and end the job at the third time": Story(
        lambda: World(runPolicy={"backoffLimit": 0}),
        [
            *START,
            *(
                step
                for attempt, seconds in ((1, 8), (2, 17))
                for step in (
                    restart(
                        "both lose each other",
                        both(ends("worker-0", 69), ends("worker-1", 69)),
                        f"Restart, not charged (attempt {attempt} in {seconds} s): "
                        "qcnn-worker-0 exited with 69 (lost peer)",
                    ),
                    recreate(seconds=20),
                    run(attempt),
                )
            ),
            fail(
                "both lose each other",
                both(ends("worker-0", 69), ends("worker-1", 69)),
                "3 attempts in a row ended with lost peers only: check the network between replicas",
                *service_deletions(),
            ),
        ],
    ),
    "a silent node explains why its peers failed, and the job waits for it": Story(
        World,
        [
            *TWO_NODES,
            counted(
                "worker-1's node dies, and worker-0 loses its peer",
                both(lambda world: world.silence("node-b"), ends("worker-0", 69)),
            ),
            restart("it settles, and the node is looked at", nothing, LOST, time=65),
            Step("the pod can't be deleted", nothing, ["status: Restarting"], [NODE_AWAY], time=26),
            QUIET,
            Step(
                "the node is back",
                lambda world: world.revive("node-b"),
                ["status: Restarting", *pods(), "status: Starting"],
                phase=Phase.STARTING,
            ),
            run(1),
        ],
    ),
    "runPolicy.forceDeleteUnreachable goes on without the node": Story(
        lambda: World(runPolicy={"forceDeleteUnreachable": True, "unreachableSeconds": 100}),
        [
            *TWO_NODES,
            Step("worker-1's node dies", lambda world: world.silence("node-b"), time=60),
            restart("its time is over", nothing, LOST, time=100),
            Step("worker-0 goes", World.let_go),
            Step(
                "worker-1 can't be deleted, and is forced to",
                nothing,
                [
                    "status: Restarting",
                    "delete pods/qcnn-worker-1 (0 s)",
                    "status: Restarting",
                    *pods(),
                    "status: Starting",
                ],
                [
                    NODE_AWAY,
                    "qcnn-worker-1 is deleted without the consent of node node-b, which has not answered for 100 s; "
                    "its writes to the store are refused from now on",
                ],
                Phase.STARTING,
                25,
            ),
        ],
    ),
    "a node that was deleted takes its pods with it": Story(
        lambda: World(runPolicy={"unreachableSeconds": 100}),
        [
            *TWO_NODES,
            Step("worker-1's node dies", lambda world: world.silence("node-b"), time=60),
            restart("its time is over", nothing, LOST, time=100),
            Step(
                "worker-0 goes, worker-1's node is deleted",
                both(World.let_go, lambda world: world.remove_node("node-b")),
            ),
            Step("nobody waits for a node that does not exist", nothing, time=60),
            Step(
                "the pod is collected",
                lambda world: world.vanish("worker-1"),
                [*pods(), "status: Starting"],
                (),
                Phase.STARTING,
            ),
        ],
    ),
    "out of memory is the program's own fault, whatever its node does then": Story(
        World,
        [
            *TWO_NODES,
            counted(
                "worker-1 runs out of memory, and its node dies",
                both(ends("worker-1", 137, reason="OOMKilled"), lambda world: world.silence("node-b")),
            ),
            restart("it settles", nothing, f"Restart 1 of 3 (attempt 1 in 8 s): {OOM}", time=65),
        ],
    ),
    "a signal from a node that went down is not": Story(
        World,
        [
            *TWO_NODES,
            counted(
                "worker-1's node goes down in an orderly way",
                both(ends("worker-1", 143), lambda world: world.silence("node-b")),
            ),
            restart(
                "it settles",
                nothing,
                "Restart, not charged (attempt 1 in 8 s): qcnn-worker-1 was taken away (its node node-b went down)",
                time=65,
            ),
        ],
    ),
    "a failure while a peer never ran is not charged": Story(
        lambda: World(runPolicy={"backoffLimit": 0}),
        [
            create(),
            Step(
                "worker-1 finds no node",
                lambda world: world.unschedulable("worker-1"),
                ["status: Starting"],
                ["qcnn-worker-1: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."],
            ),
            Step("worker-0 starts", lambda world: world.start("worker-0"), ["status: Starting"], time=5),
            Step("worker-0 gives up", ends("worker-0", 1), ["status: Starting"], time=300),
            restart(
                "worker-1 had its time",
                nothing,
                "Restart, not charged (attempt 1 in 8 s): qcnn-worker-0 exited with 1",
                time=65,
            ),
            recreate(),
        ],
    ),
    "an attempt that does not get going fails the job": Story(
        lambda: World(runPolicy={"startupDeadlineSeconds": 600}),
        [
            create(),
            Step("worker-0 starts", lambda world: world.start("worker-0"), ["status: Starting"]),
            fail(
                "worker-1 never does",
                nothing,
                "qcnn-worker-1 did not start within runPolicy.startupDeadlineSeconds (600 s)",
                *deletions("worker-0", "worker-1", grace=None),
                "status: Failed",
                time=600,
            ),
            Step("worker-0 goes", World.let_go, ["status: Failed", *service_deletions()]),
        ],
    ),
    "the job's deadline counts all its attempts": Story(
        lambda: World(runPolicy={"activeDeadlineSeconds": 1000}),
        [
            *START,
            restart("worker-1 is evicted", lambda world: world.disrupt("worker-1"), EVICTED, "worker-0", time=900),
            GO,
            recreate(),
            run(1),
            fail(
                "its time is over",
                nothing,
                "the job took longer than runPolicy.activeDeadlineSeconds (1000 s)",
                *deletions(grace=None),
                "status: Failed",
                time=80,
            ),
        ],
    ),
    "a replica that its node refuses is started again, later each time": Story(
        World,
        [
            create(),
            *(
                step
                for attempt, seconds in ((1, 8), (2, 17), (3, 37))
                for step in (
                    restart(
                        "worker-1's node has no room",
                        lambda world: world.refuse("worker-1"),
                        f"Restart, not charged (attempt {attempt} in {seconds} s): qcnn-worker-1 was taken away "
                        "(OutOfcpu: Node didn't have enough resource)",
                        time=1,
                    ),
                    recreate(seconds=40),
                )
            ),
        ],
    ),
    "an ignored failure leaves the others running": Story(
        lambda: World(failurePolicy={"rules": [{"onExitCodes": {"values": [3]}, "action": "Ignore"}]}),
        [*START, counted("worker-1 ends with a code that is ignored", ends("worker-1", 3)), QUIET],
    ),
    "AllReplicas: a success is kept when its pod is collected": Story(
        lambda: World(successPolicy="AllReplicas"),
        [
            *START,
            counted("worker-0 ends with 0", ends("worker-0", 0)),
            Step("its pod is collected", lambda world: world.vanish("worker-0"), ["status: Running"]),
            QUIET,
            Step(
                "worker-1 ends with 0",
                ends("worker-1", 0),
                ["status: Succeeded", *service_deletions()],
                ["Training succeeded in attempt 0"],
                Phase.SUCCEEDED,
            ),
        ],
    ),
    "an evaluator is replaced alone, whatever it costs it; nobody is charged": Story(
        lambda: World(**PS_JOB, runPolicy={"backoffLimit": 1, "startupDeadlineSeconds": 100}),
        [
            *PS_START,
            counted("the evaluator crashes", ends("evaluator-0", 1), time=600),
            Step(
                "it settles",
                nothing,
                ["status: Starting", *deletions("evaluator-0")],
                ["qcnn-evaluator-0 exited with 1 and starts anew alone (not charged)"],
                Phase.STARTING,
                65,
            ),
            Step("the delay is over", nothing, pods("evaluator-0"), time=10),
            replace(run(replicas=4), time=60),
            counted("it crashes again", ends("evaluator-0", 1)),
            QUIET,
        ],
    ),
    "a worker of a job with ps is replaced alone and charged": Story(
        lambda: World(**PS_JOB, runPolicy={"backoffLimit": 1}),
        [
            *PS_START,
            counted("worker-1 crashes", ends("worker-1", 1)),
            Step(
                "it settles",
                nothing,
                ["status: Starting", *deletions("worker-1"), "status: Starting"],
                ["qcnn-worker-1 exited with 1 and starts anew alone (restart 1 of 1)"],
                Phase.STARTING,
                65,
            ),
            Step("the delay is over", nothing, [*pods("worker-1"), "status: Starting"], time=10),
            run(replicas=4),
            counted("it crashes again", ends("worker-1", 1)),
            fail(
                "it settles",
                nothing,
                "qcnn-worker-1 exited with 1 in attempt 0, and all restarts of runPolicy.backoffLimit (1) are used up",
                *deletions("worker-0", "ps-0", "evaluator-0", grace=None),
                "status: Failed",
                time=65,
            ),
        ],
    ),
    "a worker of a job with ps that was evicted is replaced at once": Story(
        lambda: World(**PS_JOB),
        [
            *PS_START,
            Step(
                "worker-1 is evicted",
                lambda world: world.disrupt("worker-1"),
                ["status: Starting"],
                ["qcnn-worker-1 was taken away (Eviction API: evicting) and starts anew alone (not charged)"],
                Phase.STARTING,
                60,
            ),
            Step("it goes", World.let_go, ["status: Starting"], time=5),
            Step("the delay is over", nothing, [*pods("worker-1"), "status: Starting"], time=5),
            run(replicas=4),
        ],
    ),
    "a lost ps restarts the gang, and explains its workers": Story(
        lambda: World(**PS_JOB),
        [
            *PS_START,
            restart(
                "the ps is evicted, workers fail",
                both(ends("worker-1", 1), lambda world: world.disrupt("ps-0")),
                "Restart, not charged (attempt 1 in 8 s): qcnn-ps-0 was taken away (Eviction API: evicting)",
                "worker-0",
                "worker-1",
                "evaluator-0",
            ),
        ],
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_the_writes_of_an_attempt(story: Story) -> None:
    tell(story)
