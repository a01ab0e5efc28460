"""The operator's process: watches, leads, works through the queue, and stops in an order that loses nothing."""

import asyncio
import logging
import os
import signal
from collections import Counter

from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from qmljob_api import names
from qmljob_api.status import parse_status
from qmljob_operator.controller import health, metrics
from qmljob_operator.controller.audit import Audit
from qmljob_operator.controller.caches import Caches
from qmljob_operator.controller.cluster import ApiError, Cluster, TransientError
from qmljob_operator.controller.handlers import watch
from qmljob_operator.controller.leader import Leadership, NotLeading, lead, new_identity
from qmljob_operator.controller.logs import job_context
from qmljob_operator.controller.reconcile import Reconciler
from qmljob_operator.controller.server import serve
from qmljob_operator.controller.settings import Settings
from qmljob_operator.controller.workqueue import JobKey, WorkQueue
from qmljob_operator.kinds import Kind
from qmljob_operator.observation import Document

STOP_SECONDS = 10.0

logger = logging.getLogger(__name__)


class Program:
    """All parts of one operator process, put together."""

    def __init__(self, settings: Settings, client: ApiClient, lease_client: ApiClient) -> None:
        """Makes the parts; nothing runs yet. The lease has a client of its own: its renewal must not wait in a line."""
        self._settings = settings
        self._client = client
        self._lease_client = lease_client
        self._identity = new_identity()
        self._leadership = Leadership() if settings.lease_namespace else Leadership.alone()
        self._caches = Caches()
        self._queue: WorkQueue[JobKey] = WorkQueue()
        self._metrics = metrics.Metrics(
            metrics.Sources(
                jobs_by_phase=self._jobs_by_phase,
                queue_depth=lambda: self._queue.depth,
                queue_oldest_wait_seconds=self._queue.oldest_wait_seconds,
                is_leader=lambda: self._leadership.is_leader,
                cache_objects=self._caches.sizes,
            )
        )
        cluster = Cluster(client, self._leadership, self._metrics.api_request)
        self._audit = Audit(cluster, self._caches, settings.namespaces, self._queue.add)
        self._reconciler = Reconciler(cluster, self._caches, self._queue, self._metrics, instance=self._identity)
        self._health = health.Health(
            health.Sources(
                queue_stalled_seconds=self._queue.stalled_seconds,
                longest_pass_seconds=self._queue.longest_run_seconds,
                leading_seconds=self._leadership.leading_seconds,
                stale_streams=self._audit.stale_streams,
                unsynced_caches=self._audit.unsynced_caches,
                api_problem=lambda: cluster.problem,
            )
        )

    async def run(self) -> None:
        """Runs until a signal or an error that only a new process can mend.

        Raises:
            LeaseLost: another operator may lead by now.
            WatchFailed: a watch stream ended for good.
        """
        async with serve(self._settings.http_port, self._health, self._metrics) as port:
            logger.info("serving /metrics, /healthz and /readyz on port %d", port)
            stop = asyncio.Event()
            tasks = [
                asyncio.create_task(self._lead(), name="leader"),
                asyncio.create_task(self._audit.run(), name="audit"),
                asyncio.create_task(self._watch(stop), name="watch"),
                asyncio.create_task(self._health.beat(), name="heartbeat"),
                asyncio.create_task(stop.wait(), name="signal"),
            ]
            _on_signals(stop)
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                logger.info("stopping: %s ended", ", ".join(sorted(task.get_name() for task in done)))
            finally:
                # The leader first: it stops writing, and gives its lease back while the streams still run.
                for task in tasks:
                    task.cancel()
                    await asyncio.wait([task], timeout=STOP_SECONDS)

    async def _watch(self, stop: asyncio.Event) -> None:
        # kopf looks once, at its start, for the kinds that there are: one that is missing would never be watched.
        await self._audit.synced.wait()
        await watch(
            self._client.configuration,
            self._settings.namespaces,
            self._on_event,
            identity=self._identity,
            # On kopf's signals the streams would end first, and the leader would write on.
            on_started=lambda: _on_signals(stop),
        )

    def _on_event(self, kind: Kind, change: str | None, document: Document) -> None:
        for key in self._caches.apply(kind, change, document):
            self._queue.add(key)

    async def _lead(self) -> None:
        if self._settings.lease_namespace is None:
            await self._work()
            return
        await lead(
            self._lease_client,
            self._leadership,
            namespace=self._settings.lease_namespace,
            name=names.OPERATOR,
            identity=self._identity,
            on_started=self._work,
        )

    async def _work(self) -> None:
        logger.info("leading as %s", self._identity)
        await self._audit.synced.wait()
        # The leader before may have written what our watches have not shown yet: jobs first, so that a job that is
        # known to have its pods is not taken for one that has lost them.
        await self._audit.refresh()
        for job in self._caches[Kind.QMLJOB]:
            self._queue.add(JobKey(job["metadata"]["namespace"], job["metadata"]["name"]))
        logger.info("working: %s", ", ".join(f"{count} {kind}" for kind, count in self._caches.sizes().items()))
        async with asyncio.TaskGroup() as workers:
            for number in range(self._settings.workers):
                workers.create_task(self._worker(), name=f"worker {number}")

    async def _worker(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._pass(key)
            finally:
                self._queue.done(key)

    async def _pass(self, key: JobKey) -> None:
        """Makes one pass, and deals with each of the ways in which it can fail."""
        job = self._caches[Kind.QMLJOB].get(key.namespace, key.name)
        attempt = parse_status(job.get("status")).attempt if job is not None else None
        self._queue.forget_timer(key)
        with job_context(str(key), attempt=attempt):
            try:
                with self._metrics.timed_pass():
                    await self._reconciler.reconcile(key)
            except NotLeading as error:
                # The leader's own task ends the process; until then nothing is written.
                logger.warning("given up: %s", error)
            except TransientError as error:
                self._metrics.pass_failed(metrics.PassError.TRANSIENT)
                logger.warning("tried again in %.1f s: %s", self._queue.retry(key), error)
            except ApiError as error:
                # The answer to something that this operator may not do, or does wrongly: a retry is harmless, and
                # the next version or an admin may mend it.
                self._metrics.pass_failed(metrics.PassError.BUG)
                logger.error("tried again in %.1f s: the API server refused: %s", self._queue.retry(key), error)
            except Exception:
                # A bug that one job meets must not stop all others. It is visible in the log and in the metrics.
                self._metrics.pass_failed(metrics.PassError.BUG)
                logger.exception("a bug: the pass is tried again in %.1f s", self._queue.retry(key))
            else:
                self._queue.forget(key)

    def _jobs_by_phase(self) -> dict[str, int]:
        phases = (parse_status(job.get("status")).phase for job in self._caches[Kind.QMLJOB])
        return dict(Counter(phase.value if phase else "Pending" for phase in phases))


def _on_signals(stop: asyncio.Event) -> None:
    """Has the signals that end a process set `stop`."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


async def connect(connections: int) -> ApiClient:
    """Returns a client of so many connections, with the credentials of the pod, else of the kubeconfig.

    Raises:
        ConfigException: there are neither.
    """
    configuration = Configuration()
    configuration.connection_pool_maxsize = connections
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    return ApiClient(configuration)
