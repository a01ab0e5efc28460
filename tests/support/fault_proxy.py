"""An HTTP proxy on loopback that does to requests what networks and overloaded services do, by a plan.

    with fault_proxy(emulator) as proxy:
        proxy.plan(Answer(503), method="POST", times=2)
        ...
        assert proxy.count(method="POST") == 3

A planned fault waits for the first request that it matches; requests without a fault pass unchanged. Nothing here
depends on time: the same requests in the same order meet the same faults.
"""

import http.client
import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

_WAIT_SECONDS = 60.0
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True)
class Answer:
    """Answers with this status in the server's place."""

    status: int


@dataclass(frozen=True)
class CutRequest:
    """Closes the connection; the server never sees the request."""


@dataclass(frozen=True)
class CutAnswer:
    """Lets the server act, then closes the connection without a byte: the lost answer."""


@dataclass(frozen=True)
class CutBody:
    """Lets the server act, and closes the connection in the middle of its answer's body."""


@dataclass(frozen=True)
class TruncateBody:
    """Passes half of the answer's body as if it were all."""


@dataclass(frozen=True)
class CorruptBody:
    """Flips a bit in the middle of the answer's body."""


@dataclass(frozen=True)
class CorruptRequest:
    """Flips a bit in the last quarter of the request's body before the server sees it."""


@dataclass(frozen=True)
class Hold:
    """Keeps the request until `release` is set; `reached` tells that it is here."""

    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


Fault: TypeAlias = Answer | CutRequest | CutAnswer | CutBody | TruncateBody | CorruptBody | CorruptRequest | Hold


@dataclass(frozen=True)
class Logged:
    """A request that arrived, and the fault that met it."""

    method: str
    path: str
    fault: Fault | None


@dataclass
class _Planned:
    fault: Fault
    method: str
    contains: str
    times: int


class FaultProxy:
    """The plan and the log of one proxy. `url` is what STORAGE_EMULATOR_HOST takes."""

    def __init__(self, host: str, port: int) -> None:
        """Names the server behind the proxy."""
        self.upstream = (host, port)
        self.url = ""
        self.requests: list[Logged] = []
        self._planned: list[_Planned] = []
        self._lock = threading.Lock()

    def plan(self, fault: Fault, *, method: str = "", contains: str = "", times: int = 1) -> None:
        """Adds a fault for the next `times` requests of a method whose path and query contain a text."""
        with self._lock:
            self._planned.append(_Planned(fault, method, contains, times))

    def meet(self, method: str, path: str) -> Fault | None:
        """Logs a request and returns the fault planned for it, once."""
        with self._lock:
            fault = self._take(method, path)
            self.requests.append(Logged(method, path, fault))
            return fault

    def count(self, *, method: str = "", contains: str = "") -> int:
        """Returns how many requests of a method had a text in their path and query."""
        with self._lock:
            return sum(_matches(logged.method, logged.path, method, contains) for logged in self.requests)

    @property
    def unused(self) -> int:
        """How many planned faults no request has met: 0 at the end of a test that tests what it says."""
        with self._lock:
            return sum(planned.times for planned in self._planned)

    def _take(self, method: str, path: str) -> Fault | None:
        for planned in self._planned:
            if planned.times > 0 and _matches(method, path, planned.method, planned.contains):
                planned.times -= 1
                return planned.fault
        return None


@contextmanager
def fault_proxy(host: str, port: int) -> Iterator[FaultProxy]:
    """Serves a proxy before `host:port` on a free loopback port until the block ends."""
    proxy = FaultProxy(host, port)

    class Handler(_Handler):
        owner = proxy

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()


def _matches(method: str, path: str, wanted_method: str, contains: str) -> bool:
    return (not wanted_method or method == wanted_method) and contains in path


class _Handler(http.server.BaseHTTPRequestHandler):
    owner: FaultProxy
    protocol_version = "HTTP/1.1"
    timeout = _WAIT_SECONDS

    def log_message(self, format: str, *args: object) -> None:
        """The proxy's own log says more."""

    def _serve(self) -> None:
        body = self._read_body()
        fault = self.owner.meet(self.command, self.path)
        match fault:
            case Answer(status):
                message = b'{"error": {"message": "planned fault"}}'
                self._send(status, [("Content-Type", "application/json")], message, len(message))
                return
            case CutRequest():
                self._cut()
                return
            case CorruptRequest():
                body = _flipped(body, len(body) * 7 // 8)
            case Hold(reached, release):
                reached.set()
                release.wait(_WAIT_SECONDS)
        status, headers, answer = self._forward(body)
        self._pass_on(fault, status, headers, answer)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _serve  # noqa: N815  (http.server's names)

    def _pass_on(self, fault: Fault | None, status: int, headers: list[tuple[str, str]], answer: bytes) -> None:
        half = len(answer) // 2
        match fault:
            case CutAnswer():
                self._cut()
            case CutBody():
                self._send(status, headers, answer[:half], len(answer))
                self._cut()
            case TruncateBody():
                self._send(status, headers, answer[:half], half)
            case CorruptBody():
                self._send(status, headers, _flipped(answer, half), len(answer))
            case _:
                self._send(status, headers, answer, len(answer))

    def _read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(*self.owner.upstream, timeout=_WAIT_SECONDS)
        try:
            # Host stays the proxy's: the server builds the addresses of resumable uploads from it.
            headers = {key: value for key, value in self.headers.items() if key.lower() not in _HOP_BY_HOP}
            with suppress(ConnectionError):  # a server may answer, and close, before it has read everything
                connection.request(self.command, self.path, body, headers | {"Content-Length": str(len(body))})
            answer = connection.getresponse()
            kept = [(key, value) for key, value in answer.getheaders() if key.lower() not in _HOP_BY_HOP]
            return answer.status, kept, answer.read()
        finally:
            connection.close()

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes, length: int) -> None:
        self.send_response(status)
        for key, value in headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if data else data
