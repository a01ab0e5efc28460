"""Objects of others in a case's namespace, as near to the job's own as they come: nothing may happen to them.

A Pod, a Service and a Job of a ReplicaSet that carry the job's label, so that the operator's watches show them; and
another QMLJob, which has ended, with a pod of its own.
"""

import time

from qmljob_api import names
from qmljob_api.conditions import ConditionType
from qmljob_api.reasons import Reason
from qmljob_api.testing import manifest
from qmljob_api.timestamps import format_time
from support.api_client import MERGE_PATCH, Object
from support.control_plane import ControlPlane
from support.story_actions import STRANGER
from support.timeline import PATHS
from support.world import World

NAME = "bystander"
_CONTAINER = {"name": "trainer", "image": "x"}
_PORT = {"port": 80}


def make_bystanders(plane: ControlPlane, namespace: str, job: str) -> frozenset[str]:
    """Makes them in a namespace beside a job of this name, and returns their uids."""
    made = [
        _create(plane, namespace, "pods", _of_a_stranger(job, {"containers": [_CONTAINER]})),
        _create(plane, namespace, "services", _of_a_stranger(job, {"ports": [_PORT]})),
        _create(plane, namespace, "jobs", _of_a_stranger(job, {"suspend": True, "template": _template()})),
    ]
    ended = _create(plane, namespace, names.PLURAL, manifest({"name": NAME}, runPolicy={"cleanPodPolicy": "None"}))
    body = {"status": _ended_status(ended)}
    path = f"{PATHS[names.PLURAL].format(namespace)}/{NAME}/status"
    plane.call("PATCH", path, body, content_type=MERGE_PATCH)
    owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": NAME, "uid": ended["metadata"]["uid"]}
    labels = {names.LABEL_JOB: NAME, names.LABEL_ROLE: "worker", names.LABEL_INDEX: "0", names.LABEL_ATTEMPT: "0"}
    pod = {
        "metadata": {"name": f"{NAME}-worker-0", "labels": labels, "ownerReferences": [{**owner, "controller": True}]},
        "spec": {"containers": [_CONTAINER], "restartPolicy": "Never"},
    }
    return frozenset(each["metadata"]["uid"] for each in [*made, ended, _create(plane, namespace, "pods", pod)])


def _create(plane: ControlPlane, namespace: str, kind: str, body: Object) -> Object:
    created: Object = plane.call("POST", PATHS[kind].format(namespace), body)
    return created


def _of_a_stranger(job: str, spec: Object) -> Object:
    return {"metadata": {"name": NAME, "labels": {names.LABEL_JOB: job}, "ownerReferences": [STRANGER]}, "spec": spec}


def _template() -> Object:
    return {"spec": {"containers": [_CONTAINER], "restartPolicy": "Never"}}


def _ended_status(job: Object) -> Object:
    """Returns the status of a job that has succeeded, to which the operator has nothing to add."""
    now = format_time(time.time())
    condition = {
        "type": ConditionType.SUCCEEDED.value,
        "status": "True",
        "reason": Reason.TRAINING_SUCCEEDED.value,
        "message": "Training succeeded in attempt 0",
        "lastTransitionTime": now,
        "observedGeneration": 1,
    }
    world = World()
    status = {"attempt": 0, "startTime": now, "completionTime": now, "conditions": [condition]}
    world.job = {**job, "status": status}
    world.settle()
    assert world.job is not None
    settled: Object = world.job["status"]
    return settled
