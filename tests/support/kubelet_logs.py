"""A kubelet's log endpoint: the API server asks it for what `pods/log` and `kubectl logs` show."""

import http.server
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

from qmljob_api.timestamps import parse_time
from support.control_plane import ControlPlane

_Key: TypeAlias = tuple[str, str, str]


class PodLogs:
    """The output of containers, by namespace, pod and container. A pod that starts anew has none."""

    def __init__(self) -> None:
        """Nothing was written yet."""
        self._lines: dict[_Key, list[tuple[float, str]]] = {}
        self._lock = threading.Lock()

    def write(self, namespace: str, pod: str, container: str, lines: Iterable[str]) -> None:
        """Adds lines to a container's output, now."""
        now = time.time()
        with self._lock:
            self._lines.setdefault((namespace, pod, container), []).extend((now, line) for line in lines)

    def clear(self, namespace: str, pod: str) -> None:
        """Forgets all output of a pod."""
        with self._lock:
            for key in [key for key in self._lines if key[:2] == (namespace, pod)]:
                del self._lines[key]

    def read(self, key: _Key, query: dict[str, str]) -> str:
        """Returns a container's output by the options of the kubelet's endpoint."""
        with self._lock:
            lines = list(self._lines.get(key, ()))
        since = parse_time(query.get("sinceTime"))
        if "sinceSeconds" in query:
            since = time.time() - float(query["sinceSeconds"])
        if since is not None:
            lines = [line for line in lines if line[0] >= since]
        if "tailLines" in query:
            count = int(query["tailLines"])
            lines = lines[-count:] if count else []
        stamped = query.get("timestamps") == "true"
        text = "".join(f"{_stamp(at)} {line}\n" if stamped else f"{line}\n" for at, line in lines)
        return text[: int(query["limitBytes"])] if "limitBytes" in query else text


@dataclass
class LogServer:
    """A running endpoint, on loopback."""

    port: int
    logs: PodLogs = field(default_factory=PodLogs)


@contextmanager
def log_server(plane: ControlPlane) -> Iterator[LogServer]:
    """Serves logs on a free port until the block ends. The certificate is the API server's own, which it trusts."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the API server's audit log says more."""

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            folder, *key = parts.path.strip("/").split("/")
            if folder != "containerLogs" or len(key) != 3:
                self.send_error(404)
                return
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            body = running.logs.read((key[0], key[1], key[2]), query).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            with suppress(OSError):  # whoever asked may be dead
                self.end_headers()
                self.wfile.write(body)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(plane.ca, plane.serving_key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        running = LogServer(int(server.server_address[1]))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield running
        finally:
            server.shutdown()
            thread.join()


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
