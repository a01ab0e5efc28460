"""A small synchronous client of the Kubernetes API, for tests: any path, any body, and watches with a memory."""

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

LIMIT_SECONDS = 30.0
"""After which a wait for an event has failed."""
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
# Shorter than the server keeps an idle connection, so that none is used that it has just closed.
_IDLE_SECONDS = 30.0

Object = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON has it."""
Query = Mapping[str, str | int | bool]


@dataclass(frozen=True)
class Response:
    """An answer. `body` is decoded JSON, or text where it is none."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        """Whether the server did what it was asked."""
        return self.status < 400

    @property
    def message(self) -> str:
        """The server's own words for a refusal."""
        return str(self.body.get("message", self.body)) if isinstance(self.body, dict) else str(self.body)


class Refused(AssertionError):
    """The server refused a request that a test relies on; `status` is HTTP's."""

    def __init__(self, method: str, path: str, response: Response) -> None:
        """Says the request and the server's words."""
        super().__init__(f"{method} {path}: {response.status}: {response.message}")
        self.status = response.status


@dataclass(frozen=True)
class Event:
    """What a watch delivers. `type` is ADDED, MODIFIED, DELETED or ERROR."""

    type: str
    object: Object

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.object.get("metadata", {}).get("name", ""))


class ApiClient:
    """Requests to one server with one identity. Each thread has a connection of its own, which stays open."""

    def __init__(self, url: str, *, ca: Path | None = None, token: str = "") -> None:
        """`url` is http or https, `ca` the file of the authority that signed the server's certificate."""
        self.url = url
        self.token = token
        self._tls = ssl.create_default_context(cafile=ca) if ca else None
        self._local = threading.local()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Query | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> Response:
        """Sends one request and returns its answer, whatever its status. `token` names another identity."""
        connection = self._connection()
        try:
            sent = self._headers(content_type, token) | dict(headers or {})
            connection.request(method, _target(path, query), _encoded(body), sent)
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):
            self._forget()
            raise
        self._local.used = time.monotonic()
        return Response(answer.status, _decoded(answer, data))

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Sends a request that has to succeed, and returns the answer's body.

        Raises:
            Refused: the status is 400 or above.
        """
        response = self.request(method, path, body, **options)
        if not response.ok:
            raise Refused(method, path, response)
        return response.body

    def watch(
        self,
        path: str,
        query: Query | None = None,
        *,
        token: str | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> "Watch":
        """Starts to watch a collection; what is there already comes first, as ADDED.

        With `on_event` its thread hands each event over, and the watch keeps none.

        Raises:
            Refused: the server does not serve the watch.
        """
        connection = self._connect(timeout=None)
        connection.request("GET", _target(path, {"watch": True, **(query or {})}), headers=self._headers("", token))
        answer = connection.getresponse()
        if answer.status >= 400:
            refusal = Response(answer.status, _decoded(answer, answer.read()))
            connection.close()
            raise Refused("WATCH", path, refusal)
        return Watch(connection, answer, path, on_event)

    def _headers(self, content_type: str, token: str | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "Authorization": f"Bearer {self.token if token is None else token}"}
        return headers | {"Content-Type": content_type} if content_type else headers

    def _connection(self) -> http.client.HTTPConnection:
        known: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if known is not None and time.monotonic() - self._local.used < _IDLE_SECONDS:
            return known
        self._forget()
        self._local.connection = self._connect(timeout=LIMIT_SECONDS)
        self._local.used = time.monotonic()
        connection: http.client.HTTPConnection = self._local.connection
        return connection

    def _connect(self, *, timeout: float | None) -> http.client.HTTPConnection:
        place = urlsplit(self.url).netloc
        if self._tls is None:
            return http.client.HTTPConnection(place, timeout=timeout)
        return http.client.HTTPSConnection(place, timeout=timeout, context=self._tls)

    def _forget(self) -> None:
        known: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if known is not None:
            known.close()
        self._local.connection = None


class Watch:
    """All events of a watch since its start, read by a thread of its own. Close it, or use it as a context."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        answer: http.client.HTTPResponse,
        path: str = "a watch",
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        """Reads the lines of an answer that has begun."""
        self._on_event = on_event or self._keep
        self._connection, self._answer, self._path = connection, answer, path
        # The response keeps the socket when the connection lets go of it.
        self._socket: socket.socket | None = connection.sock
        self._events: list[Event] = []
        self._changed = threading.Condition()
        self._ended = False
        self._next = 0
        self._thread = threading.Thread(target=self._read, name=f"watch {path}", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Watch":
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the watch."""
        self.close()

    def __iter__(self) -> Iterator[Event]:
        """Yields all events from the first one, and waits for more until the watch is closed."""
        position = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or len(self._events) > position)  # noqa: B023
                if len(self._events) <= position:
                    return
                event = self._events[position]
            position += 1
            yield event

    @property
    def events(self) -> tuple[Event, ...]:
        """All events so far."""
        with self._changed:
            return tuple(self._events)

    def until(self, predicate: Callable[[Event], bool], *, timeout: float = LIMIT_SECONDS, what: str = "") -> Event:
        """Returns the first event that the predicate holds for, among those that no earlier `until` has passed.

        Raises:
            TimeoutError: none came in `timeout` seconds, or the watch ended; the message lists what came.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                while self._next < len(self._events):
                    event = self._events[self._next]
                    self._next += 1
                    if predicate(event):
                        return event
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    seen = ", ".join(f"{event.type} {event.name}" for event in self._events[-20:])
                    raise TimeoutError(f"{self._path}: {what or 'the event'} did not come; the last ones were: {seen}")
                self._changed.wait(left)

    def close(self) -> None:
        """Ends the watch and its thread."""
        if self._socket is not None:
            # Not the method of TLS sockets: that one takes the session from under the reading thread.
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        self._thread.join(LIMIT_SECONDS)
        self._answer.close()
        self._connection.close()

    def _keep(self, event: Event) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    @property
    def ended(self) -> bool:
        """Whether nothing more comes."""
        return self._ended

    def _read(self) -> None:
        with suppress(OSError, ValueError, http.client.HTTPException):  # the connection was cut, by `close` for one
            while line := self._answer.readline():
                document = json.loads(line)
                self._on_event(Event(document["type"], document["object"]))
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def _target(path: str, query: Query | None) -> str:
    if not query:
        return path
    pairs = {key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()}
    return f"{path}?{urlencode(pairs)}"


def _encoded(body: Any) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def _decoded(answer: http.client.HTTPResponse, data: bytes) -> Any:
    text = data.decode(errors="replace")
    return json.loads(text) if answer.headers.get_content_type() == "application/json" else text
