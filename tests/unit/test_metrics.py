"""Every metric is there from the start, has a text that helps, and counts what it says."""

import re
from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from qmljob_api.reasons import Reason
from qmljob_api.status import Phase
from qmljob_operator.controller.metrics import Metrics, PassError, Sources


def make(jobs: Mapping[str, int] | None = None, *, depth: int = 0, wait: float = 0.0, leads: bool = False) -> Metrics:
    return Metrics(
        Sources(
            jobs_by_phase=lambda: jobs or {},
            queue_depth=lambda: depth,
            queue_oldest_wait_seconds=lambda: wait,
            is_leader=lambda: leads,
            cache_objects=lambda: {"pods": 12, "qmljobs": 3},
        )
    )


def values(metrics: Metrics) -> dict[str, float]:
    """All samples, as `name{label="value"}`."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
            found[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
    return found


@pytest.mark.parametrize(
    "name",
    [
        "qmljob_jobs",
        "qmljob_jobs_created",
        "qmljob_jobs_succeeded",
        "qmljob_jobs_failed",
        "qmljob_restarts",
        "qmljob_reconcile_seconds",
        "qmljob_reconcile_errors",
        "qmljob_queue_depth",
        "qmljob_queue_oldest_wait_seconds",
        "qmljob_api_requests",
        "qmljob_leader",
        "qmljob_cache_objects",
        "process_cpu_seconds",
        "process_resident_memory_bytes",
        "python_info",
    ],
)
def test_every_metric_is_there_from_the_start_with_a_text(name: str) -> None:
    families = {family.name: family for family in text_string_to_metric_families(make().render().decode())}
    assert len(families[name].documentation.split()) > 2


def test_names_follow_the_conventions() -> None:
    for family in text_string_to_metric_families(make().render().decode()):
        if family.name.startswith("qmljob_"):
            assert re.fullmatch(r"[a-z_]+", family.name)
            # The parser takes `_total` off a counter's name, so that none may be left.
            assert not family.name.endswith("_total")
            assert {sample.name for sample in family.samples} <= {
                family.name + suffix for suffix in ("", "_total", "_bucket", "_count", "_sum")
            }


def test_counters_count_what_they_say() -> None:
    metrics = make()
    metrics.job_created()
    metrics.job_created()
    metrics.job_succeeded()
    metrics.job_failed(Reason.BACKOFF_LIMIT_EXCEEDED)
    metrics.restarted(Reason.DISRUPTED, charged=False)
    metrics.restarted(Reason.REPLICA_FAILED, charged=True)
    metrics.restarted(Reason.REPLICA_FAILED, charged=True)
    metrics.pass_failed(PassError.TRANSIENT)
    metrics.api_request("create", "pods", 201)
    metrics.api_request("create", "pods", 0)
    found = values(metrics)
    expected = {
        "qmljob_jobs_created_total": 2,
        "qmljob_jobs_succeeded_total": 1,
        'qmljob_jobs_failed_total{reason="BackoffLimitExceeded"}': 1,
        'qmljob_restarts_total{charged="false",reason="Disrupted"}': 1,
        'qmljob_restarts_total{charged="true",reason="ReplicaFailed"}': 2,
        'qmljob_reconcile_errors_total{kind="transient"}': 1,
        'qmljob_reconcile_errors_total{kind="bug"}': 0,
        'qmljob_api_requests_total{code="201",resource="pods",verb="create"}': 1,
        'qmljob_api_requests_total{code="0",resource="pods",verb="create"}': 1,
    }
    assert {name: found[name] for name in expected} == expected


def test_gauges_are_asked_at_each_scrape() -> None:
    jobs = {"Running": 2}
    metrics = make(jobs, depth=5, wait=1.5, leads=True)
    expected = {
        'qmljob_jobs{phase="Running"}': 2,
        "qmljob_queue_depth": 5,
        "qmljob_queue_oldest_wait_seconds": 1.5,
        "qmljob_leader": 1,
        'qmljob_cache_objects{kind="pods"}': 12,
        'qmljob_cache_objects{kind="qmljobs"}': 3,
    }
    found = values(metrics)
    assert {name: found[name] for name in expected} == expected
    jobs["Running"] = 7
    assert values(metrics)['qmljob_jobs{phase="Running"}'] == 7


def test_a_phase_without_jobs_is_zero_and_not_missing() -> None:
    found = values(make({"Running": 2}))
    assert [found[f'qmljob_jobs{{phase="{phase.value}"}}'] for phase in Phase] == [
        2 if phase is Phase.RUNNING else 0 for phase in Phase
    ]


def test_a_pass_is_timed_also_when_it_fails() -> None:
    metrics = make()
    with metrics.timed_pass():
        pass
    with pytest.raises(ZeroDivisionError), metrics.timed_pass():
        raise ZeroDivisionError
    found = values(metrics)
    assert found["qmljob_reconcile_seconds_count"] == 2
    assert found['qmljob_reconcile_seconds_bucket{le="300.0"}'] == 2


def test_two_operators_in_one_process_do_not_share_their_counts() -> None:
    first, second = make(), make()
    first.job_created()
    assert values(second)["qmljob_jobs_created_total"] == 0
