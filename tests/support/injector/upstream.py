"""Connections to the API server behind an injector, kept for the next request: their handshakes are what costs."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Connection:
    """One connection to the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        """Ends it at once."""
        self.writer.transport.abort()


class Upstream:
    """The server. All methods belong to one event loop."""

    def __init__(self, url: str, ca: Path | None, *, certificate: tuple[Path, Path] | None = None) -> None:
        """`ca` signed the server's certificate; `certificate` (with its key) says who asks, else each client does."""
        self._place = urlsplit(url)
        self._tls = ssl.create_default_context(cafile=ca) if self._place.scheme == "https" else None
        if self._tls is not None and certificate is not None:
            self._tls.load_cert_chain(*certificate)
        self._idle: list[Connection] = []

    async def take(self) -> Connection:
        """Returns a connection that nobody uses."""
        while self._idle:
            known = self._idle.pop()
            if not known.reader.at_eof() and not known.writer.is_closing():
                return known
            known.close()
        return Connection(*await asyncio.open_connection(self._place.hostname, self._place.port, ssl=self._tls))

    def give_back(self, connection: Connection) -> None:
        """Takes a connection back whose last answer was read to its end."""
        self._idle.append(connection)

    def close(self) -> None:
        """Ends the connections that nobody uses."""
        while self._idle:
            self._idle.pop().close()
