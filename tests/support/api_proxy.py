"""A proxy before an API server that counts writes, and strikes at one of them: before it is served, or after.

    with api_proxy(plane) as proxy, running_operator(plane, log, url=proxy.url) as operator:
        proxy.strike(3, operator.kill, served=True)      # the fourth write is done, and nobody learns of it
        proxy.lose(every=3, served=False)                # each third write gets lost on its way
        proxy.cut()                                      # as a network that is gone
        proxy.mend()

It listens without TLS on loopback, and speaks TLS to the server. Answers pass as they come, watches too. A client that
sends a request before it has the answer to the one before is not understood; HTTP/1.1 clients do not.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from support.control_plane import ControlPlane

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_CHUNK = 65536


@dataclass(frozen=True)
class _Strike:
    number: int
    action: Callable[[], object]
    served: bool


class ApiProxy:
    """A running proxy. `writes` are the requests that change something, dry runs too, in the order of their arrival.

    What it does to connections it does on the thread of its own event loop.
    """

    def __init__(self, plane: ControlPlane, loop: asyncio.AbstractEventLoop) -> None:
        """Names the server behind it; nothing listens yet."""
        self.writes: list[str] = []
        self.struck = threading.Event()
        self.url = ""
        self._upstream = urlsplit(plane.url)
        self._tls = ssl.create_default_context(cafile=plane.ca)
        self._loop = loop
        self._strike: _Strike | None = None
        self._lossy: tuple[int, bool] | None = None
        self._open = True
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def strike(self, number: int, action: Callable[[], object], *, served: bool) -> None:
        """Does something once, when this write comes (counted from 0): before it is `served`, or before its answer."""
        self._strike = _Strike(number, action, served)

    def lose(self, *, every: int, served: bool) -> None:
        """Ends the connection of each write of so many: before it is `served`, or before its answer."""
        self._lossy = (every, served)

    def cut(self) -> None:
        """Ends all connections, and every new one at once."""
        self._open = False
        self._loop.call_soon_threadsafe(self._end_all)

    def mend(self) -> None:
        """Takes connections again."""
        self._open = True

    async def listen(self) -> None:
        """Begins to take connections."""
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Ends everything that was begun here."""
        self._open = False
        if self._server is not None:
            self._server.close()
        self._end_all()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _end_all(self) -> None:
        for client in self._clients:
            client.transport.abort()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.close()
            return
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._clients.add(writer)
        try:
            host, port = self._upstream.hostname, self._upstream.port
            answers, server = await asyncio.open_connection(host, port, ssl=self._tls)
            try:
                await self._exchange(reader, writer, answers, server)
            finally:
                server.close()
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self._clients.discard(writer)
            writer.close()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> None:
        passing = asyncio.create_task(_pass_on(answers, writer))
        try:
            while request := await _next_request(reader):
                strike = self._noted(request)
                if strike is None:
                    server.write(request)
                    await server.drain()
                    continue
                if strike.served:
                    passing.cancel()
                    await asyncio.gather(passing, return_exceptions=True)
                    server.write(request)
                    await answers.read(1)
                strike.action()
                self.struck.set()
                return
        finally:
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)

    def _noted(self, request: bytes) -> _Strike | None:
        method, path = request.split(b" ", 2)[:2]
        if method.decode() not in _WRITES:
            return None
        number = len(self.writes)
        self.writes.append(f"{method.decode()} {path.decode()}")
        if self._strike is not None and self._strike.number == number:
            return self._strike
        if self._lossy is not None and number % self._lossy[0] == 0:
            return _Strike(number, lambda: None, self._lossy[1])
        return None


async def _next_request(reader: asyncio.StreamReader) -> bytes:
    """Returns a client's next request, whole, or nothing at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    headers = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if line)
    return head + await reader.readexactly(int(headers.get(b"content-length", b"0")))


async def _pass_on(answers: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
    """Passes on what the server says, until one of both sides ends."""
    with suppress(OSError):
        while data := await answers.read(_CHUNK):
            client.write(data)
            await client.drain()
    client.close()


@contextmanager
def api_proxy(plane: ControlPlane) -> Iterator[ApiProxy]:
    """Serves a proxy before an API server until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="api proxy", daemon=True)
    thread.start()
    proxy = ApiProxy(plane, loop)
    asyncio.run_coroutine_threadsafe(proxy.listen(), loop).result()
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(proxy.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
