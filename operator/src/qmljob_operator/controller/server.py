"""The operator's HTTP server: `/metrics` for Prometheus, `/healthz` and `/readyz` for the kubelet.

It answers everyone who reaches its port, and says nothing of what is in a job: names of phases, reasons and resources,
counts and times.
"""

import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from qmljob_operator.controller.health import Health
from qmljob_operator.controller.metrics import CONTENT_TYPE, Metrics

_SHUTDOWN_SECONDS = 1.0
_BACKLOG = 16
_NO_IPV6 = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


@asynccontextmanager
async def serve(port: int, health: Health, metrics: Metrics, *, host: str = "") -> AsyncIterator[int]:
    """Serves until the block ends; gives the port, which is a free one where `port` is 0.

    Without a `host` it listens on all interfaces, IPv4 and IPv6: probes and scrapes come from outside the pod.

    Raises:
        OSError: the port is taken.
    """

    async def tell_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    async def tell_live(_: web.Request) -> web.Response:
        return _answer(health.live_problems())

    async def tell_ready(_: web.Request) -> web.Response:
        return _answer(health.ready_problems())

    app = web.Application()
    app.router.add_get("/metrics", tell_metrics)
    app.router.add_get("/healthz", tell_live)
    app.router.add_get("/readyz", tell_ready)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        # One socket for both families: with port 0 aiohttp would choose a different port for each.
        listening = _listen(host, port)
        await web.SockSite(runner, listening, backlog=_BACKLOG).start()
        yield int(listening.getsockname()[1])
    finally:
        await runner.cleanup()


def _answer(problems: list[str]) -> web.Response:
    if problems:
        return web.Response(text="\n".join(problems) + "\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
    return web.Response(text="ok\n")


def _listen(host: str, port: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
        except OSError as error:
            # A node may have IPv6 compiled in and switched off.
            if error.errno not in _NO_IPV6:
                raise
    return socket.create_server((host, port), backlog=_BACKLOG)
