"""What Prometheus and the kubelet get over HTTP."""

import asyncio
import errno
import functools
import itertools
import socket
from collections.abc import Coroutine
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from qmljob_operator.controller.health import Health
from qmljob_operator.controller.health import Sources as HealthSources
from qmljob_operator.controller.metrics import Metrics
from qmljob_operator.controller.metrics import Sources as MetricsSources
from qmljob_operator.controller.server import serve


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


def make_health(*, stale: tuple[str, ...] = (), api: str | None = None) -> Health:
    return Health(
        HealthSources(
            queue_stalled_seconds=lambda: 0.0,
            longest_pass_seconds=lambda: 0.0,
            leading_seconds=lambda: 0.0,
            stale_streams=lambda: stale,
            unsynced_caches=lambda: ("pods", "services") if api else (),
            api_problem=lambda: api,
        ),
        clock=functools.partial(next, itertools.count()),  # Each look is a second later.
    )


def make_metrics() -> Metrics:
    return Metrics(
        MetricsSources(
            jobs_by_phase=lambda: {"Running": 2},
            queue_depth=lambda: 0,
            queue_oldest_wait_seconds=lambda: 0.0,
            is_leader=lambda: True,
            cache_objects=dict,
        )
    )


async def get(port: int, path: str, host: str = "127.0.0.1", method: str = "GET") -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.request(method, f"http://{host}:{port}{path}") as answer:
        return answer.status, answer.headers.get("Content-Type", ""), await answer.text()


def test_an_operator_without_problems_answers_ok() -> None:
    async def main() -> None:
        async with serve(0, make_health(), make_metrics(), host="127.0.0.1") as port:
            for path in ("/healthz", "/readyz"):
                assert await get(port, path) == (200, "text/plain; charset=utf-8", "ok\n")
                assert (await get(port, path, method="HEAD"))[0] == 200

    run(main())


def test_problems_are_told_line_by_line_and_only_where_they_belong() -> None:
    async def main() -> None:
        health = make_health(api="connection refused")
        async with serve(0, health, make_metrics(), host="127.0.0.1") as port:
            assert (await get(port, "/healthz"))[0] == 200
            status, _, text = await get(port, "/readyz")
            assert status == 503
            assert text == "caches: not synced yet: pods, services\napi-server: connection refused\n"

        health = make_health(stale=("pods",))
        async with serve(0, health, make_metrics(), host="127.0.0.1") as port:
            assert (await get(port, "/healthz"))[0] == 503
            assert (await get(port, "/readyz"))[0] == 200

    run(main())


def test_metrics_are_in_prometheus_format() -> None:
    async def main() -> None:
        async with serve(0, make_health(), make_metrics(), host="127.0.0.1") as port:
            status, kind, text = await get(port, "/metrics")
            assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
            families = {family.name: family for family in text_string_to_metric_families(text)}
            assert {sample.labels["phase"]: sample.value for sample in families["qmljob_jobs"].samples}["Running"] == 2

    run(main())


def test_nothing_else_is_served_and_nothing_can_be_sent() -> None:
    async def main() -> None:
        async with serve(0, make_health(), make_metrics(), host="127.0.0.1") as port:
            assert (await get(port, "/"))[0] == 404
            assert (await get(port, "/metrics", method="POST"))[0] == 405

    run(main())


def test_probes_reach_it_on_every_interface_of_the_pod() -> None:
    async def main() -> None:
        async with serve(0, make_health(), make_metrics()) as port:
            assert port > 0
            hosts = ["127.0.0.1", "[::1]"] if _has_ipv6_loopback() else ["127.0.0.1"]
            for host in hosts:
                assert (await get(port, "/healthz", host))[0] == 200

    run(main())


def test_a_node_without_ipv6_is_served_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    listen = socket.create_server

    def without_ipv6(*args: Any, family: int = socket.AF_INET, **settings: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return listen(*args, **settings)

    monkeypatch.setattr(socket, "create_server", without_ipv6)

    async def main() -> None:
        async with serve(0, make_health(), make_metrics()) as port:
            assert (await get(port, "/healthz"))[0] == 200

    run(main())


def test_the_port_is_free_again_at_once() -> None:
    async def main() -> None:
        async with serve(0, make_health(), make_metrics(), host="127.0.0.1") as port:
            assert (await get(port, "/healthz"))[0] == 200
        async with serve(port, make_health(), make_metrics(), host="127.0.0.1") as again:
            assert again == port
            assert (await get(port, "/healthz"))[0] == 200

    run(main())


def test_a_taken_port_is_an_error() -> None:
    async def main() -> None:
        async with serve(0, make_health(), make_metrics(), host="127.0.0.1") as port:
            with pytest.raises(OSError, match="in use"):
                async with serve(port, make_health(), make_metrics(), host="127.0.0.1"):
                    pass

    run(main())


def _has_ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
