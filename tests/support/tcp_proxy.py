"""A TCP proxy on loopback that can stop forwarding: connections stay open, and nothing passes any more.

async with tcp_proxy("127.0.0.1", 6443) as proxy:
    ...                 # through proxy.port
    proxy.freeze()      # as a network that drops packets, or a server that hangs
    proxy.thaw()        # what was sent meanwhile arrives
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_CHUNK = 65536


class TcpProxy:
    """A running proxy."""

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self._upstream = (host, port)
        self._flowing = asyncio.Event()
        self._flowing.set()

    def freeze(self) -> None:
        """Forwards nothing from now on; new connections are accepted, and wait too."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Forwards again."""
        self._flowing.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards one connection until one side closes it."""
        await self._flowing.wait()
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.close()
            return
        pumps = {
            asyncio.create_task(self._pump(reader, upstream_writer)),
            asyncio.create_task(self._pump(upstream_reader, writer)),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (writer, upstream_writer):
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def tcp_proxy(host: str, port: int) -> AsyncIterator[TcpProxy]:
    """Serves a proxy before `host:port` on a free loopback port until the block ends."""
    proxy = TcpProxy(host, port)
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(proxy.serve(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in tuple(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
