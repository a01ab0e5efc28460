"""A pass over one job: observe once, decide, write.

Decisions are `planning`'s, and pure; writes are `writer`'s; here are the observation, and the answers to what a plan
asks for. Passes over different jobs run side by side, passes over one job never do: the queue sees to that.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from qmljob_api import names
from qmljob_api.parse import Mode, parse_job
from qmljob_api.status import parse_status
from qmljob_operator.controller.caches import Caches
from qmljob_operator.controller.cluster import ApiError, Cluster
from qmljob_operator.controller.dryrun import dry_run
from qmljob_operator.controller.memory import Memory, or_blocked
from qmljob_operator.controller.metrics import Metrics
from qmljob_operator.controller.parallel import each
from qmljob_operator.controller.workqueue import JobKey, WorkQueue
from qmljob_operator.controller.writer import Writer
from qmljob_operator.kinds import Kind
from qmljob_operator.observation import (
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
from qmljob_operator.planning.plan import Ask, Plan
from qmljob_operator.resources.common import main_container

LOG_LINES = 20
MAX_QUESTIONS = 8

logger = logging.getLogger(__name__)


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
        self._clock = clock
        self._writer = Writer(cluster, caches, queue, metrics, instance=instance, clock=clock)
        self._memory: dict[JobKey, Memory] = {}

    async def reconcile(self, key: JobKey) -> None:
        """Makes one pass over a job.

        Raises:
            TransientError: the API server did not answer, or not now.
            NotLeading: this process must not write any more.
        """
        job = self._caches[Kind.QMLJOB].get(key.namespace, key.name)
        if job is None:
            self._memory.pop(key, None)
            return
        memory = self._recall(key, job)
        seen = self._observe(key, job, memory)
        outcome = plan(seen, self._clock())
        for _ in range(MAX_QUESTIONS):
            if isinstance(outcome, Plan):
                break
            seen = await self._answer(key, seen, outcome, memory)
            outcome = plan(seen, self._clock())
        if isinstance(outcome, Ask):
            raise RuntimeError(f"a pass over {key} asked more than {MAX_QUESTIONS} questions: {outcome}")
        await self._writer.carry_out(key, seen, outcome, memory)

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
        pods = self._caches[Kind.POD].of_job(key)
        services = self._caches[Kind.SERVICE].of_job(key)
        policy = self._caches[Kind.NETWORK_POLICY].get(key.namespace, key.name)
        inference_name = names.inference_job_name(key.name)
        inference = self._caches[Kind.JOB].get(key.namespace, inference_name)
        ours = [view_pod(pod) for pod in pods if is_owned_by(pod, uid)]
        ended = {pod.uid: memory.first_seen.get(pod.uid, now) for pod in ours if pod.end is not None}
        memory.first_seen = ended
        inference_uid = inference["metadata"]["uid"] if inference and is_owned_by(inference, uid) else ""
        return Observation(
            document=job,
            parsed=parse_job(job, Mode.TOLERANT),
            status=parse_status(job.get("status")),
            pods={pod.name: pod for pod in ours},
            services={service["metadata"]["name"]: service for service in services if is_owned_by(service, uid)},
            policy=policy if policy and is_owned_by(policy, uid) else None,
            inference_job=inference if inference_uid else None,
            inference_pods=[pod for pod in pods if inference_uid and is_owned_by(pod, inference_uid)],
            foreign={
                f"{Kind.of(thing)}/{thing['metadata']['name']}": name_taken(thing, key.name)
                for thing in (*pods, *services, *self._caches[Kind.NETWORK_POLICY].of_job(key))
                if not is_owned_by(thing, uid)
            },
            first_seen=ended,
            dry_run=memory.dry_run,
            refused=memory.refused,
            progress_due_at=memory.progress_asked_at + PROGRESS_SECONDS,
        )

    async def _answer(self, key: JobKey, seen: Observation, ask: Ask, memory: Memory) -> Observation:
        """Returns the observation with what was asked for."""
        if ask.nodes:
            nodes = await each(sorted(ask.nodes), self._node)
            seen = replace(seen, nodes={**seen.nodes, **{node.name: node for node in nodes}})
        if ask.dry_run and seen.parsed.job is not None:
            asking = dry_run(self._cluster, seen.parsed.job, has_pods=bool(seen.pods))
            answer = await or_blocked(asking, self._queue.failures(key))
            memory.dry_run = memory.timed(answer, self._clock())
            seen = replace(seen, dry_run=memory.dry_run)
        if ask.log_of:
            memory.progress_asked_at = self._clock()
            tail = await self._log_tail(seen, ask.log_of)
            due_at = memory.progress_asked_at + PROGRESS_SECONDS
            seen = replace(seen, log_tails={**seen.log_tails, ask.log_of: tail}, progress_due_at=due_at)
        return seen

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
        pod = self._caches[Kind.POD].get(namespace, name)
        if pod is None:
            return ""
        container = main_container(pod["spec"], names.TRAINER_CONTAINER_NAMES)["name"]
        return await self._cluster.log_tail(namespace, name, container, LOG_LINES)
