"""What nobody should send, and somebody will: nothing crashes, nothing is asked again and again, nothing is lost."""

import copy
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from qmljob_api import names
from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.reasons import Reason
from qmljob_api.testing import manifest
from support.api_client import Object, Response
from support.control_plane import ControlPlane
from support.kubelet import Kubelet, starts_and_goes
from support.operator_process import OperatorProcess
from support.stories import Scene, Step, Story, gang, scene, step
from support.story_actions import both, create, edit, edit_status, finish, kill_operator, start, start_operator, until
from support.story_steps import CONTAINER, begins, restarts, runs, succeeds, template
from support.timeline import running_timeline

FAR = "2100-01-01T00:00:00Z"
MANY = 200
WITHOUT_ITS_VOLUME = template(containers=[CONTAINER | {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}])


def starts_anew(what: str, attempt: int, /, **status: Any) -> Step:
    """Somebody edits the status so that it no longer describes the pods that are there."""
    return restarts(what, edit_status(**status), attempt, Reason.STATUS_LOST)


def gang_of(attempt: int, **parts: Any) -> Object:
    return {"attempt": attempt, "generation": 1, "fingerprint": "x", "startTime": FAR, **parts}


STATUSES = [
    Story(
        "what only tells is told again",
        [
            *begins(),
            step("the phase is edited", edit_status(phase="Failed")),
            step("a phase that nobody knows", edit_status(phase="Dreaming")),
            step("the conditions are taken away", edit_status(conditions=None)),
            step("counts and times are edited", edit_status(ready="9/9", replicas=9, nextAttemptTime=FAR)),
            step("a generation of the future", edit_status(observedGeneration=99)),
            step("a condition that nobody knows", edit_status(conditions=[{"type": "Happy", "status": "True"}])),
            succeeds(),
        ],
    ),
    Story(
        "an attempt that never was is gone beyond",
        [*begins(), starts_anew("the attempt is raised", 8, attempt=7), runs(8), succeeds(pods=gang(8))],
    ),
    Story(
        "a gang that is taken away is made anew, with another number",
        [*begins(), starts_anew("the gang is taken away", 1, gang=None), runs(1), succeeds(pods=gang(1))],
    ),
    Story(
        "a gang of another size than the job's is made anew",
        [*begins(), starts_anew("another size is written", 1, gang={"roles": {"worker": 9}}), runs(1)],
    ),
    Story(
        "a gang without anybody is made anew",
        [*begins(), starts_anew("all roles are taken away", 1, gang={"roles": None}), runs(1)],
    ),
    Story(
        "a gang of another attempt is made anew",
        [*begins(), starts_anew("another attempt is written", 6, gang=gang_of(5)), runs(6)],
    ),
    Story(
        "a status that is edited while no operator runs is no better",
        [
            *begins(),
            restarts(
                "the attempt is raised and the gang taken away",
                both(kill_operator, edit_status(attempt=3, gang=None), start_operator),
                4,
                Reason.STATUS_LOST,
            ),
        ],
    ),
    Story(
        "the attempt of a job that was never started counts, too",
        [
            step(
                "the job is made",
                create(),
                exists=True,
                phase=Phase.SUSPENDED,
                holds={ConditionType.SUSPENDED: Reason.JOB_SUSPENDED},
                events=[Reason.JOB_SUSPENDED],
            ),
            step("an attempt is written", edit_status(attempt=4), attempt=4),
            restarts(
                "the job is resumed",
                edit(suspend=False),
                5,
                Reason.STATUS_LOST,
                services=frozenset(gang(5)),
            ),
        ],
        spec={"suspend": True},
    ),
]


@pytest.mark.parametrize("story", STATUSES, ids=lambda story: story.promise)
def test_a_status_that_somebody_edits_loses_no_attempt(story: Story, stage: Scene) -> None:
    stage.tell(story)


# Another version of the kind


@contextmanager
def another_kind(kubelet: Kubelet, operator: OperatorProcess, edit: Callable[[Object], None]) -> Iterator[Scene]:
    """A scene where the kind has another schema, until the block ends.

    A watch goes on by the schema that it began with, so the operator starts when the new one is in force, and ends
    with it.
    """
    plane = kubelet.plane
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.PLURAL}.{names.GROUP}"
    original = plane.call("GET", path)["spec"]
    edited = copy.deepcopy(original)
    edit(edited["versions"][0]["schema"]["openAPIV3Schema"]["properties"])
    operator.kill()
    try:
        _define(plane, path, edited, True)
        operator.start()
        with scene(plane, kubelet, operator) as stage:
            yield stage
    finally:
        operator.kill()
        _define(plane, path, original, False)


def _define(plane: ControlPlane, path: str, spec: Object, open_to_colors: bool) -> None:
    """Replaces the definition of the kind, and waits until the server goes by it."""
    jobs = f"/apis/{names.API_VERSION}/namespaces/default/{names.PLURAL}"
    plane.call("PUT", path, {**plane.call("GET", path), "spec": spec})

    def in_force(answer: Response) -> bool:
        return answer.ok and ("color" in answer.body["spec"]) is open_to_colors

    probe = {"body": manifest({"name": "probe"}, color="blue"), "query": {"dryRun": "All"}}
    plane.wait_until("POST", jobs, in_force, what="the schema is in force", **probe)


def keep_unknown(properties: Object) -> None:
    for part in (properties["spec"], properties["spec"]["properties"]["runPolicy"], properties["status"]):
        part["x-kubernetes-preserve-unknown-fields"] = True


def test_fields_of_a_newer_version_are_ignored_with_one_warning_and_stay(
    kubelet: Kubelet, operator: OperatorProcess
) -> None:
    story = Story(
        "a job with fields that nobody knows here",
        [
            step(
                "the job is made",
                create(),
                exists=True,
                phase=Phase.STARTING,
                attempt=0,
                ready="0/2",
                pods=gang(0),
                services=frozenset(gang(0)),
                events=[Reason.STARTING, Reason.UNKNOWN_FIELDS],
                notes=[
                    "Attempt 0 starts: 2 workers",
                    "The job has fields that this operator does not know, and ignores: spec.color, spec.runPolicy.mood",
                ],
            ),
            runs(0),
            step("one of them is edited", edit(color="green")),
            step("a newer operator wrote something", edit_status(weather="fine")),
            succeeds(),
        ],
        spec={"color": "blue", "runPolicy": {"mood": 7}},
    )
    with another_kind(kubelet, operator, keep_unknown) as stage:
        stage.tell(story)
        job = stage.job()
        assert job is not None
        assert (job["spec"]["color"], job["spec"]["runPolicy"]["mood"]) == ("green", 7)
        assert job["status"]["weather"] == "fine"


def forget(properties: Object) -> None:
    properties["spec"]["x-kubernetes-preserve-unknown-fields"] = True  # by which it is seen that it is in force
    for field in ("progress", "results", "lastFailure", "history", "replicaStatuses", "lostPeerAttempts", "ready"):
        del properties["status"]["properties"][field]


def test_a_kind_of_an_older_version_that_keeps_less_of_the_status_is_enough(
    kubelet: Kubelet, operator: OperatorProcess
) -> None:
    story = Story("", [], spec={"runPolicy": {"backoffLimit": 1}})
    with another_kind(kubelet, operator, forget) as stage, stage.playing(story):
        both(create(), until(pods=gang(0)), start(), until(phase=Phase.RUNNING))(stage)
        both(finish("worker-0", 1), finish("worker-1", 1), until(attempt=1, pods=gang(1), restarts=1))(stage)
        both(start(), until(phase=Phase.RUNNING))(stage)
        mark = stage.plane.audit_mark()
        for _ in range(5):
            stage.touch()
        assert len(stage.operator.writes(stage.namespace, since=mark)) <= 6
        both(finish("worker-1"), finish("worker-0"), until(phase=Phase.SUCCEEDED, services=frozenset()))(stage)
        stage.check_promises()


# Many at once


def test_two_hundred_jobs_that_are_invalid_at_once_are_told_so_once(
    control_plane: ControlPlane, kubelet: Kubelet, operator: OperatorProcess
) -> None:
    namespace = kubelet.namespace
    jobs = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
    spec = {"replicaSpecs": {"worker": {"replicas": 2, "template": WITHOUT_ITS_VOLUME}}}
    begin = control_plane.audit_mark()

    def make(number: int) -> None:
        control_plane.call("POST", jobs, manifest({"name": f"bad-{number}"}, **spec))

    def of_bad_jobs(mark: int) -> list[str]:
        requests = operator.requests(namespace, since=mark)
        return [each["verb"] for each in requests if not re.search("good", str(each.get("objectRef")))]

    def phases(kind: str) -> list[str]:
        # Asked at each of hundreds of events, so nothing is parsed here.
        present = timeline.present(names.PLURAL)
        return [
            (each.get("status") or {}).get("phase") for each in present if each["metadata"]["name"].startswith(kind)
        ]

    with running_timeline(control_plane, namespace) as timeline, kubelet.playing(starts_and_goes):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(make, range(MANY)))
        assert timeline.until(lambda: phases("bad") == [Phase.INVALID] * MANY)
        assert timeline.until(lambda: len(timeline.present("events")) == MANY)
        assert len(of_bad_jobs(begin)) <= 3 * MANY  # a dry run, a status and an event
        mark = control_plane.audit_mark()
        control_plane.call("POST", jobs, manifest({"name": "good"}))
        assert timeline.until(lambda: phases("good") == [Phase.RUNNING])
        assert operator.metric("qmljob_queue_depth") == 0
        # All that the good one needs, whose pods, Services and events carry its name; its dry run carries none.
        assert of_bad_jobs(mark) == ["create"]
    assert operator.get("/healthz")[0] == 200


def test_a_job_in_a_namespace_that_ends_says_so_and_leaves_nothing(stage: Scene) -> None:
    """What the namespace's own controller does is done here by hand: pods first, the job last."""
    with stage.playing(Story("", [], kubelet=starts_and_goes)):
        both(create(), until(phase=Phase.RUNNING))(stage)
        place = f"/api/v1/namespaces/{stage.namespace}"
        stage.plane.call("DELETE", place)
        stage.plane.call("DELETE", f"{place}/pods")
        stage.reach("no pod may be made", attempt=1, holds={ConditionType.BLOCKED: Reason.FORBIDDEN}, pods={})
        blocked = stage.status().condition(ConditionType.BLOCKED)
        assert blocked is not None
        assert "because it is being terminated" in blocked.message
        stage.come_to_rest()
        stage.plane.call("DELETE", stage.job_path(), {"propagationPolicy": "Background"})
        stage.reach("nothing is left", exists=False, pods={}, services=frozenset())
    stage.check_promises()
