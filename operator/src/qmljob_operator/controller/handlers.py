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
from kubernetes.aio.client.configuration import Configuration

from qmljob_api import names
from qmljob_operator.kinds import Kind
from qmljob_operator.observation import Document

OnEvent = Callable[[Kind, str | None, Document], None]
"""Takes a kind, what happened (ADDED, MODIFIED, DELETED; None: it was listed), and the object."""

SERVER_TIMEOUT_SECONDS = 300
"""After how long the API server closes a watch, so that its connections are spread anew."""
INACTIVITY_SECONDS = 90.0
"""How long a stream may be silent before it is opened anew: the API server sends a bookmark every minute."""
END_SECONDS = 5.0
"""How long kopf's tasks may take to end."""


class WatchFailed(Exception):
    """A watch stream ended in a way that kopf can't mend: a right that is missing, an error that nobody expected."""


_RESOURCES = {kind: (kind.group, kind.version, kind.value) for kind in Kind}


async def watch(
    configuration: Configuration,
    namespaces: Collection[str],
    on_event: OnEvent,
    *,
    identity: str,
    on_started: Callable[[], None],
) -> None:
    """Runs the watch streams until it is cancelled.

    Args:
        configuration: the API server's address, and the credentials.
        namespaces: the namespaces to watch; empty: all.
        on_event: is called for each object that is listed, and for each event.
        identity: this process' name; kopf would make one of the user's, and a container's user may have none.
        on_started: is called once kopf has begun, and has taken the process' signals for itself.

    Raises:
        WatchFailed: a stream ended for good.
    """
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, errors=kopf.ErrorsMode.PERMANENT)(_login(configuration))
    for kind, resource in _RESOURCES.items():
        kopf.on.event(*resource, registry=registry, id=kind.value)(_handler(kind, on_event))
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=_settings(),
        standalone=True,
        identity=identity,  # type: ignore[arg-type]  # a NewType of str that kopf does not export
        clusterwide=not namespaces,
        namespaces=list(namespaces),
    )
    on_started()
    # Not by kopf.operator(): at its end that cancels every task of the process, the leader's too.
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=END_SECONDS)
    errors = [error for task in ended if not task.cancelled() and (error := task.exception()) is not None]
    raise WatchFailed(f"a watch failed: {_words(errors[0]) if errors else 'it ended'}") from next(iter(errors), None)


def _login(configuration: Configuration) -> Any:
    """Returns a login handler that gives kopf the very credentials of the operator's own requests."""

    async def login(**_: Any) -> kopf.ConnectionInfo:
        # Reads a ServiceAccount's token anew where it is old: kopf logs in again once the API server refuses it.
        key = await configuration.get_api_key_with_prefix("BearerToken")
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            token=(key or "").strip().rpartition(" ")[2] or None,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            proxy_url=configuration.proxy,
        )

    return login


def _words(error: BaseException) -> str:
    if isinstance(error, kopf.LoginError):  # whose own words advise on kopf
        return "the API server does not accept the credentials"
    return f"{type(error).__name__}: {error.args[0] if error.args else error!r}"


def _handler(kind: Kind, on_event: OnEvent) -> Any:
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
    settings.process.ultimate_exiting_timeout = None
    for kind, resource in _RESOURCES.items():
        if kind is not Kind.QMLJOB:
            settings.watching.label_selectors[resource] = names.LABEL_JOB
    return settings
