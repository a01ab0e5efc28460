"""The proxy: it stands between one client and the API server, knows each call by its name, and strikes as it is told.

    with injectors(Upstream(plane.url, plane.ca)) as host, host.injector(Fault(…), on_kill=operator.kill) as injector:
        ...                 # a client that takes injector.url for the API server
        injector.calls      # what it has asked

It listens on loopback without TLS. Answers pass as they come, watches too. A client that sends a request before it has
the answer to the one before is not understood; HTTP/1.1 clients do not.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from support.control_plane import ControlPlane
from support.injector.calls import Call, CallCounter
from support.injector.exchange import Request, chunk, read_answer, read_chunk, read_head, read_request, refusal
from support.injector.faults import Fault, FaultKind, Noise
from support.injector.upstream import Connection, Upstream
from support.injector.watches import Stream, WatchEnds

_KILLS = frozenset({FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER, FaultKind.KILL_LATE})
_AFTER = frozenset({FaultKind.LOSE_ANSWER, FaultKind.KILL_AFTER})
_NEVER_SECONDS = 3600.0


class Injector:
    """A running proxy with its faults. `calls` are the requests in the order of their arrival."""

    def __init__(
        self, upstream: Upstream, loop: asyncio.AbstractEventLoop, faults: tuple[Fault, ...], noise: Noise | None
    ) -> None:
        """Names the server behind it; nothing listens yet."""
        self.calls: list[Call] = []
        self.struck: list[Fault] = []
        self.on_kill: Callable[[], object] = lambda: None
        self.on_rival: Callable[[], object] = lambda: None
        self.url = ""
        self.noise = noise
        self._faults = {fault.call: fault for fault in faults}
        self._lossy: tuple[int, FaultKind] | None = None
        self._counter = CallCounter()
        self._upstream = upstream
        self._loop = loop
        self._open = True
        self._changed = threading.Condition()
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._late: set[asyncio.Task[None]] = set()

    def lose(self, *, every: int, served: bool) -> None:
        """Loses each write of so many: the request, or (`served`) the answer."""
        self._lossy = (every, FaultKind.LOSE_ANSWER if served else FaultKind.LOSE)

    def add(self, fault: Fault) -> None:
        """Has a fault more, for a call to come."""
        self._faults[fault.call] = fault

    def await_late(self) -> None:
        """Waits until all has arrived that was to arrive late."""
        asyncio.run_coroutine_threadsafe(self._await_late(), self._loop).result()

    def cut(self) -> None:
        """Ends all connections, and every new one at once: a network that is gone."""
        self._open = False
        self._loop.call_soon_threadsafe(self._end_all)

    def mend(self) -> None:
        """Takes connections again."""
        self._open = True

    def wait(self, timeout: float) -> bool:
        """Waits until every fault has struck; returns whether all have."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.struck) >= len(self._faults), timeout)

    @property
    def writes(self) -> list[Call]:
        """The calls that change something, or might."""
        return [call for call in self.calls if call.is_write]

    async def listen(self, port: int = 0) -> None:
        """Begins to take connections."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Ends everything that was begun here; what was to arrive late never does."""
        self._open = False
        if self._server is not None:
            self._server.close()
        tasks = {*self._clients, *self._late}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end_all(self) -> None:
        for client in self._clients.values():
            client.transport.abort()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._connection(reader, writer))
        self._clients[task] = writer
        task.add_done_callback(self._clients.pop)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # What ends a connection, on either side, is told to the client by its end.
            with suppress(OSError, asyncio.IncompleteReadError):
                while self._open and (request := await read_request(reader)):
                    if not await self._exchange(request, reader, writer):
                        return
        finally:
            writer.close()

    async def _exchange(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serves a request, or does to it what its fault says; returns whether the connection goes on."""
        call = self._counter.next(request.method, request.target, request.body)
        self.calls.append(call)
        fault = self._fault_of(call)
        if fault is not None and not call.is_watch:
            self._note(fault)
            if not await self._strike(fault, request, writer):
                return False
            if fault.kind.isdigit():
                return True
        server = await self._upstream.take()
        whole = False
        try:
            server.writer.write(request.raw)
            head = await read_head(server.reader)
            if call.is_watch and head.chunked:
                writer.write(head.raw)
                whole = await self._pass_watch(Stream(fault), server, reader, writer)
                return whole
            answer = await read_answer(server.reader, head)
            whole = True
            if fault is not None and fault.kind in _AFTER:
                self._kill_by(fault)
                return False
            writer.write(answer)
            await writer.drain()
            return True
        finally:
            if whole:
                self._upstream.give_back(server)
            else:
                server.close()

    def _fault_of(self, call: Call) -> Fault | None:
        fault = self._faults.get(call) or (self.noise.fault_of(call) if self.noise else None)
        if fault is None and self._lossy is not None and call.is_write:
            every, kind = self._lossy
            return Fault(call, kind) if len(self.writes) % every == 1 % every else None
        return fault

    def _note(self, fault: Fault) -> None:
        with self._changed:
            self.struck.append(fault)
            self._changed.notify_all()

    def _kill_by(self, fault: Fault) -> None:
        if fault.kind in _KILLS:
            self.on_kill()

    async def _strike(self, fault: Fault, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Does what a fault does before its call is served; returns whether the connection goes on."""
        match fault.kind:
            case FaultKind.LOSE:
                return False
            case FaultKind.KILL_BEFORE:
                self._kill_by(fault)
                return False
            case FaultKind.KILL_LATE:
                self._kill_by(fault)
                late = self._loop.create_task(self._serve_late(fault, request))
                self._late.add(late)
                late.add_done_callback(self._late.discard)
                return False
            case FaultKind.TIMEOUT:
                await asyncio.sleep(_NEVER_SECONDS)
                return False
            case FaultKind.DELAY:
                await asyncio.sleep(fault.seconds)
            case FaultKind.RIVAL:
                self.on_rival()
                await asyncio.sleep(fault.seconds)
            case FaultKind.CONFLICT | FaultKind.BUSY | FaultKind.BROKEN | FaultKind.UNAVAILABLE:
                writer.write(refusal(int(fault.kind)))
                await writer.drain()
        return True

    async def _await_late(self) -> None:
        await asyncio.gather(*self._late, return_exceptions=True)

    async def _serve_late(self, fault: Fault, request: Request) -> None:
        await asyncio.sleep(fault.seconds)
        server = await self._upstream.take()
        try:
            server.writer.write(request.raw)
            await read_answer(server.reader, await read_head(server.reader))
        finally:
            server.close()

    async def _pass_watch(
        self, stream: Stream, server: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Passes a watch on to its end; returns whether the server ended it, and the connection goes on."""
        passing = asyncio.ensure_future(self._pass_events(stream, server, writer))
        # Nothing comes from the client of a watch, but its end.
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((passing, leaving), return_when=asyncio.FIRST_COMPLETED)
            return passing.done() and passing.result()
        finally:
            for each in (passing, leaving):
                each.cancel()
            await asyncio.gather(passing, leaving, return_exceptions=True)

    async def _pass_events(self, stream: Stream, server: Connection, writer: asyncio.StreamWriter) -> bool:
        known = False
        try:
            while data := await read_chunk(server.reader):
                for part in stream.take(data):
                    writer.write(chunk(part))
                if stream.fault is not None and stream.struck and not known:
                    known = True
                    self._note(stream.fault)
                await writer.drain()
        except WatchEnds:
            assert stream.fault is not None
            self._note(stream.fault)
            writer.write(chunk(b""))
            await writer.drain()
            return False
        writer.write(chunk(b""))
        await writer.drain()
        # The client's next request would be taken for its end by whoever watches for that.
        return False


class InjectorHost:
    """An event loop on a thread of its own, for any number of injectors before one server."""

    def __init__(self, upstream: Upstream) -> None:
        """Nothing runs yet."""
        self.loop = asyncio.new_event_loop()
        self._upstream = upstream
        self._thread = threading.Thread(target=self.loop.run_forever, name="injectors", daemon=True)

    def start(self) -> None:
        """Runs the loop."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the loop, and the connections to the server."""
        self.loop.call_soon_threadsafe(self._upstream.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    @contextmanager
    def injector(self, *faults: Fault, noise: Noise | None = None, port: int = 0) -> Iterator[Injector]:
        """Serves an injector until the block ends."""
        injector = Injector(self._upstream, self.loop, faults, noise)
        asyncio.run_coroutine_threadsafe(injector.listen(port), self.loop).result()
        try:
            yield injector
        finally:
            asyncio.run_coroutine_threadsafe(injector.close(), self.loop).result()


@contextmanager
def injectors(upstream: Upstream) -> Iterator[InjectorHost]:
    """Runs a host of injectors until the block ends."""
    host = InjectorHost(upstream)
    host.start()
    try:
        yield host
    finally:
        host.stop()


@contextmanager
def injector_before(plane: ControlPlane, *faults: Fault) -> Iterator[Injector]:
    """Serves one injector before an API server until the block ends."""
    with injectors(Upstream(plane.url, plane.ca)) as host, host.injector(*faults) as injector:
        yield injector
