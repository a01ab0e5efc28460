"""Plays the controllers of a cluster that jobs rely on, in one namespace: the garbage collector and the Job controller.

Each looks at everything again whenever something has changed, so no order of events matters.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from qmljob_api import names
from qmljob_api.timestamps import format_time
from support.api_client import LIMIT_SECONDS, MERGE_PATCH, Object, Refused, Watch
from support.control_plane import ControlPlane

_JOBS = "apis/batch/v1/namespaces/{}/jobs"
_PODS = "api/v1/namespaces/{}/pods"
_OWNERS = (f"apis/{names.GROUP}/{names.VERSION}/namespaces/{{}}/{names.PLURAL}", _JOBS)
_DEPENDENTS = (
    _PODS,
    "api/v1/namespaces/{}/services",
    _JOBS,
    "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
)
_OWNER_KINDS = frozenset({names.KIND, "Job"})
_FOREGROUND = "foregroundDeletion"
_JOB_LABEL = "batch.kubernetes.io/job-name"
_ENDED = frozenset({"Complete", "Failed"})


@contextmanager
def running_controllers(plane: ControlPlane, namespace: str) -> Iterator[None]:
    """Plays both controllers until the block ends. What they raise, the block raises."""
    changed, stop = threading.Event(), threading.Event()
    failures: list[BaseException] = []
    playing = Controllers(plane, namespace)

    def follow() -> None:
        try:
            while changed.wait() and not stop.is_set():
                changed.clear()
                playing.collect_garbage()
                playing.run_jobs()
        except BaseException as error:
            failures.append(error)

    worker = threading.Thread(target=follow, name="controllers", daemon=True)
    with ExitStack() as stack:
        for template in {*_OWNERS, *_DEPENDENTS}:
            watch = stack.enter_context(plane.watch(f"/{template.format(namespace)}"))
            threading.Thread(target=_tell, args=(watch, changed), daemon=True).start()
        worker.start()
        try:
            yield
        finally:
            stop.set()
            changed.set()
            worker.join(LIMIT_SECONDS)
    if failures:
        raise failures[0]


def _tell(watch: Watch, changed: threading.Event) -> None:
    for _ in watch:
        changed.set()


@dataclass(frozen=True)
class Controllers:
    """Both controllers, each a look at everything."""

    plane: ControlPlane
    namespace: str

    def collect_garbage(self) -> None:
        """Deletes what has lost its owner, and lets owners go that wait for their dependents."""
        # Owners are there before their dependents, so they are listed after them: a missing one is gone.
        dependents = [(path, item) for path in _DEPENDENTS for item in self._list(path)]
        owners = [(path, item) for path in _OWNERS for item in self._list(path)]
        alive = {owner["metadata"]["uid"] for _, owner in owners}
        waiting = {_uid(owner) for _, owner in owners if _waits_for_dependents(owner)}
        owned = [(path, item, _owner_uids(item)) for path, item in dependents]
        for path, item, uids in owned:
            if uids and (not uids & alive or uids & waiting) and not item["metadata"].get("deletionTimestamp"):
                self._delete(path, item)
        for path, owner in owners:
            if _uid(owner) in waiting and not any(_uid(owner) in uids for _, _, uids in owned):
                finalizers = [each for each in owner["metadata"]["finalizers"] if each != _FOREGROUND]
                self._patch(path, owner, {"metadata": {"uid": _uid(owner), "finalizers": finalizers or None}})

    def run_jobs(self) -> None:
        """Gives each Job its pod, and its end when the pod has ended; a failed pod is tried again up to the limit."""
        for job in self._list(_JOBS):
            conditions = (job.get("status") or {}).get("conditions") or []
            ended = any(each["type"] in _ENDED for each in conditions) or job["metadata"].get("deletionTimestamp")
            if ended or job["spec"].get("suspend"):
                continue
            pods = [pod for pod in self._list(_PODS) if _uid(job) in _owner_uids(pod)]
            failed = [pod for pod in pods if pod["status"]["phase"] == "Failed"]
            if any(pod["status"]["phase"] == "Succeeded" for pod in pods):
                self._end_job(job, failed=len(failed), succeeded=1)
            elif any(_is_hopeless(job, pod) for pod in failed):
                self._end_job(job, failed=len(failed), succeeded=0, reason="PodFailurePolicy")
            elif len(failed) > job["spec"].get("backoffLimit", 6):
                self._end_job(job, failed=len(failed), succeeded=0)
            elif len(failed) == len(pods):
                self._create_pod(job, len(pods))

    def _create_pod(self, job: Object, number: int) -> None:
        name = job["metadata"]["name"]
        template = job["spec"]["template"]
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": _uid(job)}
        metadata = {
            **(template.get("metadata") or {}),
            "name": f"{name}-{number}",
            "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
        }
        metadata.pop("creationTimestamp", None)
        metadata["labels"] = {**metadata.get("labels", {}), _JOB_LABEL: name}
        body = {"metadata": metadata, "spec": template["spec"]}
        created = self.plane.request("POST", f"/{_PODS.format(self.namespace)}", body)
        if not created.ok and created.status != 409:
            raise Refused("POST", _PODS, created)
        now = format_time(time.time())
        self._patch(
            _JOBS, job, {"status": {"active": 1, "startTime": job["status"].get("startTime") or now}}, "/status"
        )

    def _end_job(self, job: Object, *, failed: int, succeeded: int, reason: str = "BackoffLimitExceeded") -> None:
        now = format_time(time.time())
        kinds = ("SuccessCriteriaMet", "Complete") if succeeded else ("FailureTarget", "Failed")
        reason = "CompletionsReached" if succeeded else reason
        status: Object = {
            "conditions": [
                {"type": kind, "status": "True", "reason": reason, "lastProbeTime": now, "lastTransitionTime": now}
                for kind in kinds
            ],
            "active": 0,
            "failed": failed,
            "succeeded": succeeded,
            "startTime": job["status"].get("startTime") or now,
        }
        if succeeded:
            status["completionTime"] = now
        self._patch(_JOBS, job, {"status": status}, "/status")

    def _list(self, template: str) -> list[Object]:
        items: list[Object] = self.plane.call("GET", f"/{template.format(self.namespace)}")["items"]
        return items

    def _delete(self, template: str, item: Object) -> None:
        options = {"propagationPolicy": "Background", "preconditions": {"uid": _uid(item)}}
        self._send("DELETE", template, item, options)

    def _patch(self, template: str, item: Object, body: Object, subresource: str = "") -> None:
        self._send("PATCH", template, item, body, subresource)

    def _send(self, method: str, template: str, item: Object, body: Object, subresource: str = "") -> None:
        path = f"/{template.format(self.namespace)}/{item['metadata']['name']}{subresource}"
        response = self.plane.request(method, path, body, content_type=MERGE_PATCH if method == "PATCH" else "")
        if not response.ok and response.status not in {404, 409}:  # it has moved on, and its next event comes
            raise Refused(method, path, response)


def _uid(item: Object) -> str:
    return str(item["metadata"]["uid"])


def _is_hopeless(job: Object, pod: Object) -> bool:
    """Whether a rule of the Job's podFailurePolicy says that a pod's exit code fails the Job at once."""
    ended = {each["name"]: each["state"].get("terminated", {}) for each in pod["status"].get("containerStatuses") or ()}
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or []
    named = [rule["onExitCodes"] for rule in rules if rule["action"] == "FailJob" and "onExitCodes" in rule]
    return any(
        code.get("exitCode") in codes["values"]
        for codes in named
        for name, code in ended.items()
        if name == codes.get("containerName", name) and codes["operator"] == "In"
    )


def _owner_uids(item: Mapping[str, Object]) -> set[str]:
    references = item["metadata"].get("ownerReferences") or []
    return {reference["uid"] for reference in references if reference["kind"] in _OWNER_KINDS}


def _waits_for_dependents(owner: Object) -> bool:
    metadata = owner["metadata"]
    return bool(metadata.get("deletionTimestamp")) and _FOREGROUND in (metadata.get("finalizers") or ())
