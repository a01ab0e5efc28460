"""Carries a plan out, in the order that the promises need: the status, then deletions, then creations.

What a write answers goes into the caches at once, so that the next pass knows it before the watch tells.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from qmljob_api import names
from qmljob_api.status import JobStatus, to_document
from qmljob_operator.controller.caches import Caches
from qmljob_operator.controller.cluster import ApiError, Cluster, TransientError
from qmljob_operator.controller.events import build_event
from qmljob_operator.controller.memory import Memory, or_blocked
from qmljob_operator.controller.metrics import Metrics
from qmljob_operator.controller.parallel import each, slow_start
from qmljob_operator.controller.workqueue import JobKey, WorkQueue
from qmljob_operator.kinds import Kind
from qmljob_operator.observation import Answer, Document, Observation, Verdict, is_owned_by, name_taken
from qmljob_operator.planning.plan import Count, Delete, Plan, Relabel, Total

PATIENCE_SECONDS = 15.0
"""How long a change of counts and progress may wait for company, so that a starting gang costs one write, not eight."""

_STATUS_FIELDS = frozenset(info.alias or name for name, info in JobStatus.model_fields.items())

logger = logging.getLogger(__name__)


class Writer:
    """Writes what passes decide."""

    def __init__(
        self,
        cluster: Cluster,
        caches: Caches,
        queue: WorkQueue[JobKey],
        metrics: Metrics,
        *,
        instance: str,
        clock: Callable[[], float],
    ) -> None:
        """Makes a writer; `instance` names this process in events, `clock` gives seconds since the epoch."""
        self._cluster = cluster
        self._caches = caches
        self._queue = queue
        self._metrics = metrics
        self._instance = instance
        self._clock = clock

    async def carry_out(self, key: JobKey, seen: Observation, wanted: Plan, memory: Memory) -> None:
        """Writes a plan. Where the status was refused nothing follows it.

        Raises:
            TransientError: the API server did not answer, or not now.
            ApiError: it refused something for a reason that no plan foresees.
            NotLeading: this process must not write any more.
        """
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
        await each(wanted.deletes, lambda one: self._delete(key, one))
        if wanted.deletes:
            # What a deletion answers is in the caches before the watch shows it, so that its event is no news.
            self._queue.add(key)
        await each(wanted.relabels, lambda one: self._relabel(Kind.POD, key.namespace, one))
        await each(wanted.repairs, lambda one: self._repair(seen, one))
        if wanted.creates:
            memory.refused = await self._create(seen, wanted.creates, memory, self._queue.failures(key))
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
        self._caches[Kind.QMLJOB].put(written)
        return True

    async def _after_conflict(self, key: JobKey, seen: Observation, error: ApiError) -> bool:
        """Reads the job anew where it changed meanwhile or is gone. Nothing of this pass's plan may follow."""
        if error.status not in (404, 409):
            raise error
        job = await self._cluster.get(Kind.QMLJOB, key.namespace, key.name)
        if job is None:
            self._caches[Kind.QMLJOB].remove(key.namespace, key.name, seen.uid)
        elif self._caches[Kind.QMLJOB].put(job):
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
            wanted.kind, key.namespace, wanted.name, wanted.uid, grace_seconds=wanted.grace_seconds
        )
        cache = self._caches[wanted.kind]
        held = left is not None and left.get("metadata", {}).get("finalizers")
        if left is None or left.get("kind") == "Status" or (wanted.grace_seconds == 0 and not held):
            cache.remove(key.namespace, wanted.name, wanted.uid)
        elif left["metadata"].get("deletionTimestamp") is None:
            # Without grace the answer is the object as it was: it is gone.
            cache.remove(key.namespace, wanted.name, wanted.uid)
        else:
            cache.put(left)

    async def _create(
        self, seen: Observation, documents: Sequence[Document], memory: Memory, failures: int
    ) -> Answer | None:
        """Creates objects; returns why one could not be, with the time of the next try."""
        # A pod must not run for a moment without the policy that guards it, nor without its name.
        first = [document for document in documents if document["kind"] in ("NetworkPolicy", "Service")]
        others = [document for document in documents if document not in first]
        for batch in (first, *slow_start(others)):
            answers = await each(batch, lambda one: or_blocked(self._create_one(seen, one), failures))
            refused = next((answer for answer in answers if answer.verdict is not Verdict.ACCEPTED), None)
            if refused is not None:
                return memory.timed(refused, self._clock())
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
        plural = Kind.of(document)
        existing = await self._cluster.get(plural, metadata["namespace"], metadata["name"])
        if existing is None:
            raise TransientError(f"{kind} {metadata['name']} was refused because it is there, and it is not")
        if not is_owned_by(existing, seen.uid):
            return Answer(Verdict.NAME_TAKEN, name_taken(existing, seen.document["metadata"]["name"]))
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

    async def _relabel(self, kind: Kind, namespace: str, wanted: Relabel) -> None:
        try:
            self._put(await self._cluster.relabel(kind, namespace, wanted.name, wanted.uid, wanted.labels))
        except ApiError as error:
            if error.status not in (404, 409):  # gone, or another object has the name by now
                raise

    async def _repair(self, seen: Observation, wanted: Document) -> None:
        existing = seen.policy if wanted["kind"] == "NetworkPolicy" else seen.services[wanted["metadata"]["name"]]
        if existing is None:
            raise ValueError(f"{wanted['kind']} {wanted['metadata']['name']} is to be repaired and was not seen")
        try:
            self._put(await self._cluster.repair(existing, wanted))
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def _put(self, document: Document) -> None:
        self._caches[Kind.of(document)].put(document)
