"""The watch streams, by kopf. The only file that knows kopf.

A handler does one thing: it puts the object into its cache and a job's key into the queue. kopf keeps the streams open,
lists anew after a gap, and backs off; none of its own machinery for handlers that write (annotations, finalizers,
peering, posting of events) is used.
"""

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterator
from typing import Any

import kopf

from qmljob_api import names
from qmljob_operator.controller.caches import Watched
from qmljob_operator.observation import Document

OnEvent = Callable[[Watched, str | None, Document], None]
"""Takes a kind, what happened (ADDED, MODIFIED, DELETED; None: it was listed), and the object."""

SERVER_TIMEOUT_SECONDS = 300
"""After how long the API server closes a watch, so that its connections are spread anew."""
INACTIVITY_SECONDS = 90.0
"""How long a stream may be silent before it is opened anew: the API server sends a bookmark every minute."""


class WatchFailed(Exception):
    """A watch stream ended in a way that kopf can't mend: a right that is missing, an error that nobody expected."""


_RESOURCES: dict[Watched, tuple[str, str, str]] = {
    Watched.QMLJOBS: (names.GROUP, names.VERSION, Watched.QMLJOBS.value),
    Watched.PODS: ("", "v1", Watched.PODS.value),
    Watched.SERVICES: ("", "v1", Watched.SERVICES.value),
    Watched.JOBS: ("batch", "v1", Watched.JOBS.value),
}


async def watch(
    namespaces: Collection[str], on_event: OnEvent, *, identity: str, stop: asyncio.Event, ready: asyncio.Event
) -> None:
    """Runs the watch streams until `stop` is set; `ready` is set when they have begun.

    Args:
        namespaces: the namespaces to watch; empty: all.
        on_event: is called for each object that is listed, and for each event.
        identity: this process' name; kopf would make one of the user's, and a container's user may have none.
        stop: ends this call.
        ready: is set by this call.

    Raises:
        WatchFailed: a stream ended for good.
    """
    registry = kopf.OperatorRegistry()
    for login in (kopf.login_with_service_account, kopf.login_with_kubeconfig):
        kopf.on.login(registry=registry, id=login.__name__, errors=kopf.ErrorsMode.PERMANENT)(login)
    for kind, resource in _RESOURCES.items():
        kopf.on.event(*resource, registry=registry, id=kind.value)(_handler(kind, on_event))
    try:
        await kopf.operator(
            registry=registry,
            settings=_settings(),
            standalone=True,
            identity=identity,  # type: ignore[arg-type]  # a NewType of str that kopf does not export
            clusterwide=not namespaces,
            namespaces=list(namespaces),
            stop_flag=stop,
            ready_flag=ready,
        )
    except Exception as error:
        raise WatchFailed(f"a watch failed: {error.args[0] if error.args else error!r}") from error


def _handler(kind: Watched, on_event: OnEvent) -> Any:
    async def handle(event: Any, **_: Any) -> None:
        on_event(kind, event["type"], event["object"])

    return handle


class _Endless:
    """Delays between tries, in seconds, without an end: kopf would give up after a minute, and the process with it."""

    def __iter__(self) -> Iterator[float]:
        yield from (1, 1, 2, 3, 5, 8, 13, 21)
        yield from itertools.repeat(30)


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.networking.error_backoffs = _Endless()
    settings.scanning.disabled = True
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.inactivity_timeout = INACTIVITY_SECONDS
    settings.watching.chunk_size = 500
    settings.queueing.idle_timeout = 1.0
    for kind, resource in _RESOURCES.items():
        if kind is not Watched.QMLJOBS:
            settings.watching.label_selectors[resource] = names.LABEL_JOB
    return settings
