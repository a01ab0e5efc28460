"""A pass over one job: observe once, decide, write.

Decisions are `planning`'s, and pure; here is what surrounds them: the caches read, the questions asked, the writes sent
in the order that the promises need (status, deletions, creations), and what a refusal means for the next pass. Passes
over different jobs run side by side, passes over one job never do: the queue sees to that.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from qmljob_api import names
from qmljob_api.parse import Mode, parse_job
from qmljob_api.status import JobStatus, parse_status, to_document
from qmljob_operator.controller.caches import Caches, Watched
from qmljob_operator.controller.cluster import ApiError, Cluster, TransientError
from qmljob_operator.controller.dryrun import dry_run
from qmljob_operator.controller.events import build_event
from qmljob_operator.controller.metrics import Metrics
from qmljob_operator.controller.workqueue import JobKey, WorkQueue
from qmljob_operator.observation import (
    Answer,
    Document,
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
from qmljob_operator.planning.plan import Ask, Count, Delete, Plan, Relabel, Total
from qmljob_operator.resources.common import main_container

PATIENCE_SECONDS = 15.0
"""How long a change of counts and progress may wait for company, so that a starting gang costs one write, not eight."""
REFUSED_SECONDS = (5.0, 60.0)
"""The shortest and the longest time between two tries of what the API server refuses; each is twice the one before."""
NEVER_SECONDS = 24 * 3600.0
"""For what can never be created as it is: an edit of the job makes it another question, and forgets this answer."""
SILENT_TRIES = 3
"""After how many failed passes a user is told that there is no answer: a webhook may be away for days."""
PARALLEL_WRITES = 16
LOG_LINES = 20
MAX_QUESTIONS = 8

_STATUS_FIELDS = frozenset(info.alias or name for name, info in JobStatus.model_fields.items())
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Memory:
    """What is remembered of a job between passes. All of it may be lost: it saves requests, and decides nothing.

    Attributes:
        uid: of the job; another job of the same name starts with an empty memory.
        generation: the one that the answers below are about.
        first_seen: when the end of a pod was first seen, by the pod's uid.
    """

    uid: str
    generation: int
    dry_run: Answer | None = None
    refused: Answer | None = None
    refusals: int = 0
    first_seen: dict[str, float] = field(default_factory=dict)
    status_written_at: float = 0.0
    progress_asked_at: float = 0.0


class Reconciler:
    """Makes passes over jobs."""

    def __init__(
        self,
        cluster: Cluster,
        caches: Caches,
        queue: WorkQueue[JobKey],
        metrics: Metrics,
        *,
        instance: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Makes a reconciler; `instance` names this process in events, `clock` gives seconds since the epoch."""
        self._cluster = cluster
        self._caches = caches
        self._queue = queue
        self._metrics = metrics
        self._instance = instance
        self._clock = clock
        self._memory: dict[JobKey, Memory] = {}

    async def reconcile(self, key: JobKey) -> None:
        """Makes one pass over a job.

        Raises:
            TransientError: the API server did not answer, or not now.
            NotLeading: this process must not write any more.
        """
        job = self._caches[Watched.QMLJOBS].get(key.namespace, key.name)
        if job is None:
            self._memory.pop(key, None)
            return
        memory = self._recall(key, job)
        seen = self._observe(key, job, memory)
        outcome = plan(seen, self._clock())
        for _ in range(MAX_QUESTIONS):
            if isinstance(outcome, Plan):
                break
            seen = await self._answer(seen, outcome, memory)
            outcome = plan(seen, self._clock())
        if isinstance(outcome, Ask):
            raise RuntimeError(f"a pass over {key} asked more than {MAX_QUESTIONS} questions: {outcome}")
        await self._carry_out(key, seen, outcome, memory)

    def _recall(self, key: JobKey, job: Document) -> Memory:
        uid, generation = job["metadata"]["uid"], int(job["metadata"].get("generation") or 0)
        memory = self._memory.get(key)
        if memory is None or memory.uid != uid:
            memory = self._memory[key] = Memory(uid, generation)
        if memory.generation != generation:
            memory.generation, memory.dry_run, memory.refused, memory.refusals = generation, None, None, 0
        if memory.dry_run and memory.dry_run.verdict is Verdict.FORBIDDEN and self._clock() >= memory.dry_run.retry_at:
            memory.dry_run = None
        return memory

    def _observe(self, key: JobKey, job: Document, memory: Memory) -> Observation:
        now, uid = self._clock(), memory.uid
        pods = self._caches[Watched.PODS].of_job(key)
        services = self._caches[Watched.SERVICES].of_job(key)
        inference_name = names.inference_job_name(key.name)
        inference = self._caches[Watched.JOBS].get(key.namespace, inference_name)
        ours = [view_pod(pod) for pod in pods if is_owned_by(pod, uid)]
        ended = {pod.uid: memory.first_seen.get(pod.uid, now) for pod in ours if pod.end is not None}
        memory.first_seen = ended
        inference_uid = inference["metadata"]["uid"] if inference and is_owned_by(inference, uid) else ""
        strangers = [("pods", pod) for pod in pods] + [("services", service) for service in services]
        return Observation(
            document=job,
            parsed=parse_job(job, Mode.TOLERANT),
            status=parse_status(job.get("status")),
            pods={pod.name: pod for pod in ours},
            services={service["metadata"]["name"]: service for service in services if is_owned_by(service, uid)},
            inference_job=inference if inference_uid else None,
            inference_pods=[pod for pod in pods if inference_uid and is_owned_by(pod, inference_uid)],
            foreign={
                f"{kind}/{thing['metadata']['name']}": name_taken(kind[:-1].capitalize(), thing, key.name)
                for kind, thing in strangers
                if not is_owned_by(thing, uid)
            },
            first_seen=ended,
            dry_run=memory.dry_run,
            refused=memory.refused,
            progress_due_at=memory.progress_asked_at + PROGRESS_SECONDS,
        )

    async def _answer(self, seen: Observation, ask: Ask, memory: Memory) -> Observation:
        """Returns the observation with what was asked for."""
        if ask.nodes:
            nodes = await _each(sorted(ask.nodes), self._node)
            seen = replace(seen, nodes={**seen.nodes, **{node.name: node for node in nodes}})
        if ask.dry_run and seen.parsed.job is not None:
            asking = dry_run(self._cluster, seen.parsed.job, has_pods=bool(seen.pods))
            answer = await self._or_blocked(seen, asking)
            memory.dry_run = self._timed(answer, memory)
            seen = replace(seen, dry_run=memory.dry_run)
        if ask.log_of:
            memory.progress_asked_at = self._clock()
            tail = await self._log_tail(seen, ask.log_of)
            due_at = memory.progress_asked_at + PROGRESS_SECONDS
            seen = replace(seen, log_tails={**seen.log_tails, ask.log_of: tail}, progress_due_at=due_at)
        return seen

    async def _or_blocked(self, seen: Observation, asking: Awaitable[Answer]) -> Answer:
        """Returns the answer. A server that has failed to give one for long is a refusal: its user is told so."""
        try:
            return await asking
        except TransientError as error:
            metadata = seen.document["metadata"]
            if self._queue.failures(JobKey(metadata["namespace"], metadata["name"])) < SILENT_TRIES:
                raise
            return Answer(Verdict.FORBIDDEN, f"no answer from the API server, which is asked again: {error}")

    async def _node(self, name: str) -> NodeView:
        try:
            node = await self._cluster.node(name)
        except ApiError as error:
            # Without the right to look, a node is taken to be there: failures are then charged as they show.
            logger.warning("node %s can't be looked at: %s", name, error)
            return NodeView(name, ready=True, since=0.0)
        return view_node(node) if node is not None else NodeView(name, ready=False, since=0.0, exists=False)

    async def _log_tail(self, seen: Observation, name: str) -> str:
        namespace = seen.document["metadata"]["namespace"]
        pod = self._caches[Watched.PODS].get(namespace, name)
        if pod is None:
            return ""
        container = main_container(pod["spec"], names.TRAINER_CONTAINER_NAMES)["name"]
        return await self._cluster.log_tail(namespace, name, container, LOG_LINES)

    def _timed(self, answer: Answer, memory: Memory) -> Answer:
        """Returns a refusal with the time of the next try."""
        if answer.verdict is Verdict.ACCEPTED:
            memory.refusals = 0
            return answer
        shortest, longest = REFUSED_SECONDS
        delay = (
            min(longest, shortest * 2.0**memory.refusals) if answer.verdict is not Verdict.INVALID else NEVER_SECONDS
        )
        memory.refusals = min(memory.refusals + 1, 16)
        return replace(answer, retry_at=self._clock() + delay)

    async def _carry_out(self, key: JobKey, seen: Observation, wanted: Plan, memory: Memory) -> None:
        if not await self._write_status(key, seen, wanted, memory):
            return
        self._count(wanted.counts)
        # Side by side, since nobody waits for events; and a failed write must not swallow them.
        done = await asyncio.gather(
            self._post_events(seen, wanted), self._write_objects(key, seen, wanted, memory), return_exceptions=True
        )
        for outcome in done:
            if isinstance(outcome, BaseException):
                raise outcome
        if wanted.wake_at is not None:
            self._queue.add_after(key, wanted.wake_at - self._clock())

    async def _write_objects(self, key: JobKey, seen: Observation, wanted: Plan, memory: Memory) -> None:
        await _each(wanted.deletes, lambda one: self._delete(key, one))
        if wanted.deletes:
            # What a deletion answers is in the caches before the watch shows it, so that its event is no news.
            self._queue.add(key)
        await _each(wanted.relabels, lambda one: self._relabel(Watched.PODS, key.namespace, one))
        await _each(wanted.repairs, lambda one: self._repair(seen, one))
        if wanted.creates:
            memory.refused = await self._create(seen, wanted.creates, memory)
            self._queue.add(key)

    async def _write_status(self, key: JobKey, seen: Observation, wanted: Plan, memory: Memory) -> bool:
        """Writes the status if it changed; returns whether the rest of the plan may follow."""
        if wanted.status == seen.status:
            return True
        now = self._clock()
        if not wanted.urgent and now < memory.status_written_at + PATIENCE_SECONDS:
            self._queue.add_after(key, memory.status_written_at + PATIENCE_SECONDS - now)
            return True
        known = seen.document.get("status") or {}
        # Fields of a newer version of the API are somebody's, and stay.
        foreign = {name: value for name, value in known.items() if name not in _STATUS_FIELDS}
        try:
            written = await self._cluster.put_status(seen.document, {**foreign, **to_document(wanted.status)})
        except ApiError as error:
            return await self._after_conflict(key, seen, error)
        memory.status_written_at = now
        self._caches[Watched.QMLJOBS].put(written)
        return True

    async def _after_conflict(self, key: JobKey, seen: Observation, error: ApiError) -> bool:
        """Reads the job anew where it changed meanwhile or is gone. Nothing of this pass's plan may follow."""
        if error.status not in (404, 409):
            raise error
        job = await self._cluster.get(Watched.QMLJOBS, key.namespace, key.name)
        if job is None:
            self._caches[Watched.QMLJOBS].remove(key.namespace, key.name, seen.uid)
        elif self._caches[Watched.QMLJOBS].put(job):
            self._queue.add(key)
        else:
            raise TransientError(f"the status was refused, and the job is as it was: {error}")
        return False

    def _count(self, counts: Iterable[Count]) -> None:
        for count in counts:
            if count.total is Total.CREATED:
                self._metrics.job_created()
            elif count.total is Total.SUCCEEDED:
                self._metrics.job_succeeded()
            elif count.total is Total.FAILED:
                self._metrics.job_failed(count.reason)
            else:
                self._metrics.restarted(count.reason, charged=count.charged)

    async def _post_events(self, seen: Observation, wanted: Plan) -> None:
        for event in wanted.events:
            logger.info("%s: %s", event.reason.value, event.note)
            document = build_event(seen.document, event, now=self._clock(), instance=self._instance)
            try:
                await self._cluster.post_event(document)
            except (ApiError, TransientError) as error:
                # An event is for people; a namespace that takes none must not stop a job.
                logger.warning("an event was refused: %s", error)

    async def _delete(self, key: JobKey, wanted: Delete) -> None:
        left = await self._cluster.delete(
            wanted.kind.value, key.namespace, wanted.name, wanted.uid, grace_seconds=wanted.grace_seconds
        )
        cache = self._caches[Watched(wanted.kind.value)]
        held = left is not None and left.get("metadata", {}).get("finalizers")
        if left is None or left.get("kind") == "Status" or (wanted.grace_seconds == 0 and not held):
            cache.remove(key.namespace, wanted.name, wanted.uid)
        elif left["metadata"].get("deletionTimestamp") is None:
            # Without grace the answer is the object as it was: it is gone.
            cache.remove(key.namespace, wanted.name, wanted.uid)
        else:
            cache.put(left)

    async def _create(self, seen: Observation, documents: Sequence[Document], memory: Memory) -> Answer | None:
        """Creates objects; returns why one could not be, with the time of the next try."""
        services = [document for document in documents if document["kind"] == "Service"]
        others = [document for document in documents if document["kind"] != "Service"]
        for batch in (services, *_slow_start(others)):
            answers = await _each(batch, lambda one: self._or_blocked(seen, self._create_one(seen, one)))
            refused = next((answer for answer in answers if answer.verdict is not Verdict.ACCEPTED), None)
            if refused is not None:
                return self._timed(refused, memory)
        memory.refusals = 0
        return None

    async def _create_one(self, seen: Observation, document: Document) -> Answer:
        kind, metadata = document["kind"], document["metadata"]
        try:
            self._put(await self._cluster.create(document))
        except ApiError as error:
            if error.status == 409:
                return await self._after_taken(seen, document)
            if error.status in (400, 422):
                return Answer(Verdict.INVALID, f"{kind} {metadata['name']}: {error.message}")
            if error.status in (403, 404):
                return Answer(Verdict.FORBIDDEN, f"{kind} {metadata['name']}: {error.message}")
            raise
        return Answer(Verdict.ACCEPTED)

    async def _after_taken(self, seen: Observation, document: Document) -> Answer:
        """Looks who has the name. If it is the job itself, the cache was behind, and now is not."""
        kind, metadata = document["kind"], document["metadata"]
        plural = Watched(f"{kind.lower()}s")
        existing = await self._cluster.get(plural, metadata["namespace"], metadata["name"])
        if existing is None:
            raise TransientError(f"{kind} {metadata['name']} was refused because it is there, and it is not")
        if not is_owned_by(existing, seen.uid):
            return Answer(Verdict.NAME_TAKEN, name_taken(kind, existing, seen.document["metadata"]["name"]))
        cache = self._caches[plural]
        cache.revive(existing)
        key = JobKey(metadata["namespace"], seen.document["metadata"]["name"])
        if cache.key_of(existing) != key:
            # Somebody changed the label by which the watch finds it.
            labels = {names.LABEL_JOB: key.name}
            await self._relabel(plural, key.namespace, Relabel(metadata["name"], existing["metadata"]["uid"], labels))
        if all(known["metadata"]["name"] != metadata["name"] for known in cache.of_job(key)):
            raise TransientError(f"{kind} {metadata['name']} is the job's own and can't be seen yet")
        return Answer(Verdict.ACCEPTED)

    async def _relabel(self, kind: Watched, namespace: str, wanted: Relabel) -> None:
        try:
            self._put(await self._cluster.relabel(kind, namespace, wanted.name, wanted.uid, wanted.labels))
        except ApiError as error:
            if error.status not in (404, 409):  # gone, or another object has the name by now
                raise

    async def _repair(self, seen: Observation, wanted: Document) -> None:
        try:
            self._put(await self._cluster.repair(seen.services[wanted["metadata"]["name"]], wanted))
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def _put(self, document: Document) -> None:
        self._caches[Watched(f"{document['kind'].lower()}s")].put(document)


def _slow_start(documents: Sequence[Document]) -> Iterator[Sequence[Document]]:
    """Yields parts of 1, 2, 4, … objects, so that a quota is not asked for each pod of a large gang."""
    start, size = 0, 1
    while start < len(documents):
        yield documents[start : start + size]
        start, size = start + size, size * 2


async def _each(items: Iterable[_Item], work: Callable[[_Item], Awaitable[_Result]]) -> list[_Result]:
    """Does something for each item, some at a time; if one fails, the others are finished first."""
    gate = asyncio.Semaphore(PARALLEL_WRITES)

    async def one(item: _Item) -> _Result:
        async with gate:
            return await work(item)

    done = await asyncio.gather(*(one(item) for item in items), return_exceptions=True)
    results = []
    for outcome in done:
        if isinstance(outcome, BaseException):
            raise outcome
        results.append(outcome)
    return results
