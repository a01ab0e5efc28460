"""A cluster in a dictionary: an operator's passes over one job, and all that may happen to the job meanwhile.

    world = World(runPolicy={"backoffLimit": 1})
    world.settle()                          # the operator makes passes until it has nothing to write
    world.start("worker-0", "worker-1")
    world.end("worker-1", 137, reason="OOMKilled")
    assert world.settle() == ["status: Restarting", "delete pods/qcnn-worker-0 (10 s)", ...]

A pass is made exactly as the operator makes it: observe, plan (and answer what the plan asks), then write the status,
delete, relabel, repair, create. Pods go through the documents of `pod_documents`; a running pod that is deleted stays,
Terminating, until the kubelet lets it go. After every pass the promises are checked (`world_promises`). The clock
stands still until somebody moves it.
"""

import copy
import itertools
import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from typing import Any

from qmljob_api import names
from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.parse import Mode, ParseResult, parse_job
from qmljob_api.status import JobStatus, parse_status, to_document
from qmljob_api.testing import TEMPLATE, manifest
from qmljob_api.timestamps import format_time
from qmljob_operator.kinds import Kind
from qmljob_operator.observation import (
    Answer,
    NodeView,
    Observation,
    Verdict,
    is_owned_by,
    name_taken,
    view_node,
    view_pod,
)
from qmljob_operator.planning.attempts import PROGRESS_SECONDS
from qmljob_operator.planning.lifecycle import plan
from qmljob_operator.planning.plan import Ask, Event, Plan
from support import pod_documents as pods
from support.pod_documents import NODE, Document
from support.world_promises import Promises

T0 = 1_800_000_000.0
"""When every story begins."""
PATIENCE_SECONDS = 15.0
MAX_PASSES = 12
"""More than this without coming to rest is a loop."""
ACCEPTED = Answer(Verdict.ACCEPTED)


class NoRestError(AssertionError):
    """The operator does not come to rest, or never looks again at what it waits for."""


class World:
    """One job, its objects, its nodes and the operator's memory of it.

    Attributes:
        now: the clock, in seconds.
        job: the job's document, with its status; None once it is deleted.
        pods, services, policies, jobs: documents by name, other owners' included.
        nodes: a node that is not listed here is ready.
        logs: the output of pods, by the pod's name.
        admission: what the API server says to a pod, asked or created; None: accepted.
        events: all events so far.
        wake_at: when the operator looks again by itself.
        patient: whether status writes that can wait do so, as in the operator.
        writes: how many there were so far.
        deaths: the numbers of writes after which the operator dies, and starts anew.
    """

    def __init__(self, roles: Mapping[str, int] | None = None, *, patient: bool = False, **spec: Any) -> None:
        """Makes a job `qcnn` with replicas by role (two workers) and what else its spec says."""
        given = roles or {"worker": 2}
        replicas = {role: {"replicas": count, "template": copy.deepcopy(TEMPLATE)} for role, count in given.items()}
        metadata = {"namespace": "default", "uid": "job-1", "generation": 1, "resourceVersion": "1"}
        self.now = T0
        self.job: Document | None = manifest(metadata, **{"replicaSpecs": replicas, **spec})
        self.pods: dict[str, Document] = {}
        self.services: dict[str, Document] = {}
        self.policies: dict[str, Document] = {}
        self.jobs: dict[str, Document] = {}
        self.nodes: dict[str, Document] = {}
        self.logs: dict[str, str] = {}
        self.admission: Callable[[Document], Answer | None] = lambda _pod: None
        self.events: list[Event] = []
        self.wake_at: float | None = None
        self.patient = patient
        self.writes = 0
        self.deaths: Container[int] = ()
        self.promises = Promises()
        self._uids = 0
        self._parsed: tuple[tuple[str, int], ParseResult] | None = None
        self.forget()

    # The operator

    def forget(self) -> None:
        """The operator starts anew: what it only remembered is lost."""
        self.memory: Document = {"generation": 0, "refusals": 0, "asked_at": 0.0, "written_at": 0.0}
        self.dry_run: Answer | None = None
        self.refused: Answer | None = None
        self.first_seen: dict[str, float] = {}

    @property
    def status(self) -> JobStatus:
        """The job's status as it stands in the API server."""
        return parse_status((self.job or {}).get("status"))

    def settle(self) -> list[str]:
        """Makes passes until one writes nothing; returns all writes. Raises NoRestError where there is no end to it."""
        writes: list[str] = []
        for _ in range(MAX_PASSES if not self.deaths else 10 * MAX_PASSES):
            made = self.step()
            writes += made
            if not made:
                self._check_rest()
                return writes
        raise NoRestError(f"no rest after {MAX_PASSES} passes: {writes[-8:]}")

    def step(self, cut: int | None = None) -> list[str]:
        """Makes one pass and returns its writes; after `cut` of them the operator dies, and starts anew."""
        if self.job is None:
            return []
        seen, wanted = self.decide()
        self.promises.check_pass(self.now, wanted)
        writes = []
        for made in itertools.islice(self._carry_out(seen, wanted), cut):
            writes.append(made)
            self.writes += 1
            if self.writes in self.deaths:
                cut = len(writes)
                break
        if cut == len(writes):
            self.forget()
        return writes

    def run(self, seconds: float) -> list[str]:
        """Lets time pass, with a pass whenever the operator asked for one; returns all writes."""
        end = self.now + seconds
        writes = self.settle()
        for _ in range(2000):
            if self.job is None or self.wake_at is None or self.wake_at > end:
                self.now = max(self.now, end)
                return writes
            self.now = max(self.now, self.wake_at)
            writes += self.settle()
        raise NoRestError(f"more than 2000 passes in {seconds} s")

    def decide(self) -> tuple[Observation, Plan]:
        """Returns what a pass sees in the end, with all that it asked for, and its plan."""
        seen = self.observe()
        outcome = plan(seen, self.now)
        for _ in range(8):
            if isinstance(outcome, Plan):
                return seen, outcome
            seen = self.answer(seen, outcome)
            outcome = plan(seen, self.now)
        raise NoRestError(f"a pass asks without end: {outcome}")

    def observe(self) -> Observation:
        """Returns what a pass sees."""
        job = self.job
        assert job is not None, "the job is gone"
        generation, uid = job["metadata"]["generation"], job["metadata"]["uid"]
        if self.memory["generation"] != generation:
            self.memory |= {"generation": generation, "refusals": 0}
            self.dry_run = self.refused = None
        if self.dry_run and self.dry_run.verdict is Verdict.FORBIDDEN and self.now >= self.dry_run.retry_at:
            self.dry_run = None
        ours = [view_pod(pod) for pod in self.pods.values() if is_owned_by(pod, uid)]
        self.first_seen = {pod.uid: self.first_seen.get(pod.uid, self.now) for pod in ours if pod.end is not None}
        inference = self.jobs.get(names.inference_job_name(job["metadata"]["name"]))
        if inference is not None and not is_owned_by(inference, uid):
            inference = None
        strangers = [("pods", pod) for pod in self.pods.values() if names.LABEL_ROLE in pod["metadata"]["labels"]]
        strangers += [("services", service) for service in self.services.values()]
        strangers += [("networkpolicies", policy) for policy in self.policies.values()]
        policy = self.policies.get(job["metadata"]["name"])
        return Observation(
            document=job,
            parsed=self._parse(job),
            status=self.status,
            pods={pod.name: pod for pod in ours},
            services={name: service for name, service in self.services.items() if is_owned_by(service, uid)},
            policy=policy if policy and is_owned_by(policy, uid) else None,
            inference_job=inference,
            inference_pods=[
                pod for pod in self.pods.values() if inference and is_owned_by(pod, inference["metadata"]["uid"])
            ],
            foreign={
                f"{kind}/{each['metadata']['name']}": name_taken(each, "qcnn")
                for kind, each in strangers
                if not is_owned_by(each, uid)
            },
            first_seen=self.first_seen,
            dry_run=self.dry_run,
            refused=self.refused,
            progress_due_at=self.memory["asked_at"] + PROGRESS_SECONDS,
        )

    def _parse(self, job: Document) -> ParseResult:
        # By far the dearest part of a pass, and the same as long as nobody edits the job.
        version = (job["metadata"]["uid"], job["metadata"]["generation"])
        if self._parsed is None or self._parsed[0] != version:
            self._parsed = (version, parse_job(job, Mode.TOLERANT))
        return self._parsed[1]

    def answer(self, seen: Observation, ask: Ask) -> Observation:
        """Returns an observation with what a plan asked for."""
        if ask.nodes:
            seen = replace(seen, nodes={**seen.nodes, **{name: self._node(name) for name in ask.nodes}})
        if ask.dry_run:
            self.dry_run = self._timed(self.admission({"kind": "Pod", "metadata": {"name": "dry-run"}}) or ACCEPTED)
            seen = replace(seen, dry_run=self.dry_run)
        if ask.log_of:
            self.memory["asked_at"] = self.now
            tail = self.logs.get(ask.log_of, "")
            seen = replace(
                seen,
                log_tails={**seen.log_tails, ask.log_of: tail},
                progress_due_at=self.memory["asked_at"] + PROGRESS_SECONDS,
            )
        return seen

    def _node(self, name: str) -> NodeView:
        node = self.nodes.get(name)
        if node is None:
            return NodeView(name, ready=True, since=T0)
        return NodeView(name, ready=False, since=0.0, exists=False) if node.get("gone") else view_node(node)

    def _timed(self, answer: Answer) -> Answer:
        if answer.verdict is Verdict.ACCEPTED:
            self.memory["refusals"] = 0
            return answer
        delay = min(60.0, 5.0 * 2.0 ** self.memory["refusals"])
        self.memory["refusals"] += 1
        return replace(answer, retry_at=self.now + (24 * 3600.0 if answer.verdict is Verdict.INVALID else delay))

    # Writes

    def _carry_out(self, seen: Observation, wanted: Plan) -> Iterator[str]:
        """Makes the writes of a plan, one by one."""
        self.wake_at = wanted.wake_at
        if to_document(wanted.status) != to_document(seen.status):
            due = self.memory["written_at"] + PATIENCE_SECONDS
            if self.patient and not wanted.urgent and self.now < due:
                self.wake_at = min(due, due if self.wake_at is None else self.wake_at)
            else:
                self._put_status(wanted.status)
                yield f"status: {wanted.status.phase.value if wanted.status.phase else '-'}"
        self.events += wanted.events
        for one in wanted.deletes:
            self._delete_object(one)
            yield f"delete {one.kind}/{one.name}{'' if one.grace_seconds is None else f' ({one.grace_seconds} s)'}"
        for relabel in wanted.relabels:
            self._relabel(relabel.name, relabel.labels)
            yield f"relabel pods/{relabel.name}"
        for document in wanted.repairs:
            self._repair(document)
            yield f"repair {_path(document)}"
        if wanted.creates:
            yield from self._create_all(wanted.creates)

    def _put_status(self, status: JobStatus) -> None:
        assert self.job is not None
        self.promises.check_status(self.status, status, self.job, self.now)
        self.memory["written_at"] = self.now
        self.job = {**self.job, "status": to_document(status)}

    def _delete_object(self, one: Any) -> None:
        table = {Kind.POD: self.pods, Kind.SERVICE: self.services, Kind.JOB: self.jobs}.get(one.kind)
        if table is None:
            self.delete_job()
            return
        found = table.get(one.name)
        assert found is not None, f"{one} is about nothing"
        assert found["metadata"]["uid"] == one.uid, f"{one} is about another object: {found}"
        self.promises.check_delete(found, one, self.job)
        if one.kind is not Kind.POD:
            del table[one.name]
            return
        left = pods.deleting(found, at=self.now, grace_seconds=one.grace_seconds)
        if left is None:
            del table[one.name]
        else:
            table[one.name] = left

    def _relabel(self, name: str, labels: Mapping[str, str]) -> None:
        metadata = self.pods[name]["metadata"]
        self.pods[name] = {**self.pods[name], "metadata": {**metadata, "labels": {**metadata["labels"], **labels}}}

    def _repair(self, document: Document) -> None:
        table = {"Service": self.services, "NetworkPolicy": self.policies}[document["kind"]]
        found = table[document["metadata"]["name"]]
        assert is_owned_by(found, self.uid), f"{document['metadata']['name']} is somebody else's"
        metadata = {**found["metadata"], "labels": {**found["metadata"]["labels"], **document["metadata"]["labels"]}}
        table[document["metadata"]["name"]] = {**found, "metadata": metadata, "spec": document["spec"]}

    def _create_all(self, documents: tuple[Mapping[str, Any], ...]) -> Iterator[str]:
        first = [document for document in documents if document["kind"] in ("NetworkPolicy", "Service")]
        for batch in (first, [document for document in documents if document not in first]):
            refused: Answer | None = None
            for document in batch:
                answer = self._create(dict(document))
                refused = refused or answer
                yield f"create {_path(document)}{'' if answer is None else f': {answer.verdict}'}"
            if refused is not None:
                self.refused = self._timed(refused)
                return
        self.memory["refusals"], self.refused = 0, None

    def _create(self, document: Document) -> Answer | None:
        kind, name = document["kind"], document["metadata"]["name"]
        tables = {"Pod": self.pods, "Service": self.services, "NetworkPolicy": self.policies, "Job": self.jobs}
        table = tables[kind]
        if name in table:
            existing = table[name]
            assert not is_owned_by(existing, self.uid), f"{kind} {name} is there already"
            return Answer(Verdict.NAME_TAKEN, name_taken(existing, "qcnn"))
        answer = self.admission(document)
        if answer is not None:
            return replace(answer, message=f"{kind} {name}: {answer.message}")
        if kind == "Pod":
            self.promises.check_create(document, self.job, list(self.pods.values()))
            guarded = any(is_owned_by(policy, self.uid) for policy in self.policies.values())
            assert guarded, f"{name} is created before anything guards it"
        self._uids += 1
        table[name] = pods.created(document, uid=f"{kind.lower()}-{self._uids}", at=self.now)
        return None

    def _check_rest(self) -> None:
        """Nothing is written before the operator looks again by itself, and it does look where nobody would wake it."""
        if self.job is None:
            return
        until = self.now + 3600.0 if self.wake_at is None else self.wake_at
        seen = replace(self.observe(), progress_due_at=math.inf)
        later = plan(seen, max(self.now, until - 0.001))
        for _ in range(4):
            if isinstance(later, Plan):
                break
            seen = self.answer(seen, later)
            later = plan(seen, max(self.now, until - 0.001))
        if isinstance(later, Plan) and not self.patient:
            news = (later.deletes, later.creates, later.repairs, later.relabels, later.events, later.counts)
            if any(news) or to_document(later.status) != to_document(self.status):
                raise NoRestError(f"something is due before the operator looks again at {until}: {later}")
        self._check_not_forgotten()

    def _check_not_forgotten(self) -> None:
        status, seen = self.status, self.observe()
        done = status.holds(ConditionType.SUCCEEDED) or status.holds(ConditionType.FAILED)
        if done or seen.parsed.job is None or seen.parsed.job.spec.suspend or self.wake_at is not None:
            return
        if status.holds(ConditionType.INVALID) or status.phase is Phase.INVALID:
            return
        alive = [pod for pod in seen.pods.values() if pod.deleting or pod.end is None]
        if not alive:
            raise NoRestError(f"nobody looks at this job again: {status}")

    # What happens to the job

    @property
    def uid(self) -> str:
        """The job's uid."""
        return str(self.job["metadata"]["uid"]) if self.job else ""

    def edit(self, **spec: Any) -> None:
        """The user edits fields of the spec; None takes one away."""
        assert self.job is not None
        changed = {key: value for key, value in {**self.job["spec"], **spec}.items() if value is not None}
        metadata = {**self.job["metadata"], "generation": self.job["metadata"]["generation"] + 1}
        self.job = {**self.job, "spec": changed, "metadata": metadata}
        self.promises.limits_changed()

    def scale(self, replicas: int, role: str = "worker") -> None:
        """The user scales a role."""
        specs = self.job["spec"]["replicaSpecs"] if self.job else {}
        self.edit(replicaSpecs={**specs, role: {**specs[role], "replicas": replicas}})

    def change_image(self, image: str, role: str = "worker") -> None:
        """The user edits a template."""
        specs = self.job["spec"]["replicaSpecs"] if self.job else {}
        template = copy.deepcopy(specs[role]["template"])
        template["spec"]["containers"][0]["image"] = image
        self.edit(replicaSpecs={**specs, role: {**specs[role], "template": template}})

    def edit_status(self, status: Document | None) -> None:
        """Somebody edits the status by hand."""
        assert self.job is not None
        self.job = {**self.job, "status": status or {}}
        self.promises = Promises()
        self.promises.limits_changed()

    def delete_job(self) -> None:
        """The job is deleted, and all that it owns goes with it."""
        owned = {self.uid, *(job["metadata"]["uid"] for job in self.jobs.values() if is_owned_by(job, self.uid))}
        self.job = None
        for table in (self.pods, self.services, self.policies, self.jobs):
            for name in [name for name, each in table.items() if any(is_owned_by(each, uid) for uid in owned)]:
                del table[name]

    def start(self, *replicas: str, node: str = NODE) -> None:
        """Kubelet starts replicas (`worker-0`); without any, all that are pending."""
        pending = [
            name
            for name, pod in self.pods.items()
            if pod["status"]["phase"] == "Pending" and not pods.is_deleting(pod) and is_owned_by(pod, self.uid)
        ]
        for name in [f"qcnn-{replica}" for replica in replicas] or pending:
            self._change(name, pods.running, at=self.now, node=node)

    def unschedulable(self, replica: str, message: str = "0/3 nodes are available: 3 Insufficient cpu.") -> None:
        """The scheduler finds no node."""
        self._change(f"qcnn-{replica}", pods.unschedulable, message)

    def waiting(self, replica: str, reason: str, message: str = "") -> None:
        """Kubelet can't start a replica yet."""
        self._change(f"qcnn-{replica}", pods.waiting, reason, message)

    def end(self, replica: str, code: int, **how: Any) -> None:
        """A replica's training container ends; `how` as in `pod_documents.ended`."""
        self._change(f"qcnn-{replica}", pods.ended, code, **{"at": self.now, **how})

    def refuse(self, replica: str, reason: str = "OutOfcpu", message: str = "Node didn't have enough resource") -> None:
        """A node refuses a pod, or ends it as a whole."""
        self._change(f"qcnn-{replica}", pods.failed, reason, message, at=self.now)

    def disrupt(self, replica: str, reason: str = "EvictionByEvictionAPI") -> None:
        """The cluster takes a pod away: it is marked, and deleted where somebody else than kubelet does it."""
        self._change(f"qcnn-{replica}", pods.disrupted, reason, at=self.now)
        if reason != "TerminationByKubelet":
            self.delete(replica)

    def delete(self, replica: str) -> None:
        """The user deletes a pod."""
        left = pods.deleting(self.pods[f"qcnn-{replica}"], at=self.now)
        if left is None:
            del self.pods[f"qcnn-{replica}"]
        else:
            self.pods[f"qcnn-{replica}"] = left

    def vanish(self, replica: str) -> None:
        """A pod is gone at once, whatever it did: it was collected, or deleted by force."""
        del self.pods[f"qcnn-{replica}"]

    def let_go(self) -> list[str]:
        """Kubelets let all Terminating pods go, but those of nodes that do not answer; returns their names."""
        gone = [
            name
            for name, pod in self.pods.items()
            if pods.is_deleting(pod) and self._node(pod["spec"].get("nodeName", "")).ready
        ]
        for name in gone:
            del self.pods[name]
        return gone

    def silence(self, node: str = NODE) -> None:
        """The cluster loses sight of a node."""
        self.nodes[node] = node_document(node, ready=False, since=self.now)
        for name, pod in self.pods.items():
            if pod["spec"].get("nodeName") == node and pod["status"]["phase"] == "Running":
                self.pods[name] = pods.unready(pod, at=self.now)

    def revive(self, node: str = NODE) -> None:
        """A node that was silent answers again; what ran there does not run any more."""
        self.nodes[node] = node_document(node, ready=True, since=self.now)
        for name, pod in list(self.pods.items()):
            on_it = pod["spec"].get("nodeName") == node
            if on_it and pod["status"]["phase"] == "Running" and not pods.is_deleting(pod):
                self.pods[name] = pods.ended(pod, 255, at=self.now, reason="Unknown")
        self.let_go()

    def remove_node(self, node: str = NODE) -> None:
        """Somebody deletes a node's object."""
        self.nodes[node] = {"gone": True}

    def end_inference(self, *, complete: bool, message: str = "") -> None:
        """The inference Job ends, with one pod that left a termination message."""
        name = "qcnn-inference"
        job = self.jobs[name]
        pod = {**job["spec"]["template"], "metadata": {**job["spec"]["template"]["metadata"], "name": f"{name}-x"}}
        pod["metadata"]["ownerReferences"] = [{"uid": job["metadata"]["uid"], "kind": "Job", "controller": True}]
        up = pods.running(pods.created(pod, uid="inference-pod", at=self.now), at=self.now)
        self.pods[f"{name}-x"] = pods.ended(up, 0 if complete else 1, at=self.now, message=message)
        self.complete_inference(complete=complete)

    def complete_inference(self, *, complete: bool) -> None:
        """The inference Job says that it has ended; its pod may not be seen yet."""
        kind = "Complete" if complete else "Failed"
        words = {} if complete else {"reason": "BackoffLimitExceeded", "message": "Job has reached the backoff limit"}
        condition = {"type": kind, "status": "True", "lastTransitionTime": format_time(self.now), **words}
        job = self.jobs["qcnn-inference"]
        self.jobs["qcnn-inference"] = {**job, "status": {"conditions": [condition]}}

    def _change(self, name: str, turn: Callable[..., Document], *arguments: Any, **keywords: Any) -> None:
        self.pods[name] = turn(self.pods[name], *arguments, **keywords)


def node_document(name: str, *, ready: bool, since: float) -> Document:
    """Returns a node as the API server shows it."""
    condition = {"type": "Ready", "status": "True" if ready else "Unknown", "lastTransitionTime": format_time(since)}
    return {"metadata": {"name": name}, "status": {"conditions": [condition]}}


def _path(document: Mapping[str, Any]) -> str:
    return f"{Kind.of(document)}/{document['metadata']['name']}"
