"""What Prometheus is told of the operator: jobs, restarts, passes, the queue, the API server, the lease."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from qmljob_api.status import Phase

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_PASS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class PassError(StrEnum):
    """Why a pass over a job failed."""

    TRANSIENT = "transient"
    """The API server refused or did not answer; the pass is retried."""
    BUG = "bug"
    """Something that nobody expected; the log has the traceback."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What is asked at each scrape; each call is cheap and has no effect.

    Attributes:
        jobs_by_phase: how many jobs are in each phase; a phase that is left out has none.
        queue_depth: how many jobs wait for a pass.
        queue_oldest_wait_seconds: how long the first of them has been waiting.
        is_leader: whether this operator leads.
        cache_objects: how many objects the cache of each kind holds.
    """

    jobs_by_phase: Callable[[], Mapping[str, int]]
    queue_depth: Callable[[], int]
    queue_oldest_wait_seconds: Callable[[], float]
    is_leader: Callable[[], bool]
    cache_objects: Callable[[], Mapping[str, int]]


class Metrics:
    """The operator's metrics, in a registry of their own, so that one program may have several."""

    def __init__(self, sources: Sources) -> None:
        """Begins at zero."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # A second series for each, which nobody reads.
        self._registry = registry = CollectorRegistry()
        registry.register(_Gauges(sources))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._created = Counter(
            "qmljob_jobs_created_total", "Jobs that this operator saw for the first time.", registry=registry
        )
        self._succeeded = Counter(
            "qmljob_jobs_succeeded_total", "Jobs whose training ended with success.", registry=registry
        )
        self._failed = Counter(
            "qmljob_jobs_failed_total", "Jobs that failed for good, by the reason.", ["reason"], registry=registry
        )
        self._restarts = Counter(
            "qmljob_restarts_total",
            "Restarts of a whole gang, by the root cause and whether it was charged against the backoff limit.",
            ["reason", "charged"],
            registry=registry,
        )
        self._passes = Histogram(
            "qmljob_reconcile_seconds",
            "Duration of a pass over one job, from reading the caches to the last answer of the API server.",
            buckets=_PASS_BUCKETS,
            registry=registry,
        )
        self._pass_errors = Counter(
            "qmljob_reconcile_errors_total",
            "Passes that failed: transient ones are retried with growing delays, every bug deserves a look at the log.",
            ["kind"],
            registry=registry,
        )
        self._requests = Counter(
            "qmljob_api_requests_total",
            "Requests to the API server, by verb, resource and HTTP status code; code 0 stands for no answer.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        for kind in PassError:  # A rate() needs a first value that is not the first error.
            self._pass_errors.labels(kind)

    def job_created(self) -> None:
        """Counts a job that was seen for the first time."""
        self._created.inc()

    def job_succeeded(self) -> None:
        """Counts a job whose training ended with success."""
        self._succeeded.inc()

    def job_failed(self, reason: str) -> None:
        """Counts a job that failed for good; `reason` is one of the api's reasons."""
        self._failed.labels(reason).inc()

    def restarted(self, reason: str, *, charged: bool) -> None:
        """Counts a gang's restart; `reason` is one of the api's reasons."""
        self._restarts.labels(reason, str(charged).lower()).inc()

    @contextmanager
    def timed_pass(self) -> Iterator[None]:
        """Measures the block as a pass over a job, also one that raises."""
        with self._passes.time():
            yield

    def pass_failed(self, kind: PassError) -> None:
        """Counts a pass that failed."""
        self._pass_errors.labels(kind).inc()

    def api_request(self, verb: str, resource: str, code: int) -> None:
        """Counts a request: the API's verb (`get`, `patch`), the resource (`pods/log`) and the answer's code, or 0."""
        self._requests.labels(verb, resource, str(code)).inc()

    def render(self) -> bytes:
        """Returns all metrics in Prometheus' text format (`CONTENT_TYPE`)."""
        return generate_latest(self._registry)


class _Gauges(Collector):
    """What has a value at any moment, asked when it is scraped: a gauge that is set can be forgotten, this can't."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Metric]:
        sources = self._sources
        jobs = GaugeMetricFamily("qmljob_jobs", "Jobs in the operator's namespaces, by phase.", labels=["phase"])
        for phase, count in ({phase.value: 0 for phase in Phase} | dict(sources.jobs_by_phase())).items():
            jobs.add_metric([phase], count)
        objects = GaugeMetricFamily("qmljob_cache_objects", "Objects in the watch caches, by kind.", labels=["kind"])
        for kind, count in sources.cache_objects().items():
            objects.add_metric([kind], count)
        yield jobs
        yield objects
        yield GaugeMetricFamily(
            "qmljob_queue_depth",
            "Jobs that wait for a pass, without those that have one.",
            sources.queue_depth(),
        )
        yield GaugeMetricFamily(
            "qmljob_queue_oldest_wait_seconds",
            "How long the job at the head of the queue has been waiting for a pass; 0 if none waits.",
            sources.queue_oldest_wait_seconds(),
        )
        yield GaugeMetricFamily(
            "qmljob_leader",
            "1 if this operator leads, 0 if it stands by.",
            float(sources.is_leader()),
        )
