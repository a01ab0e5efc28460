"""HTTP/1.1 messages as bytes: read whole, and passed on as they are."""

import asyncio
import json
from dataclasses import dataclass

_END = b"\r\n"
_REASONS = {
    409: ("Conflict", "Conflict", "the object has been modified; please apply your changes to the latest version"),
    410: ("Gone", "Expired", "too old resource version"),
    429: ("Too Many Requests", "TooManyRequests", "too many requests, please try again later"),
    500: ("Internal Server Error", "InternalError", "etcdserver: request timed out"),
    503: ("Service Unavailable", "ServiceUnavailable", "the server is currently unable to handle the request"),
}


@dataclass(frozen=True)
class Request:
    """A client's request, whole."""

    method: str
    target: str
    body: bytes
    raw: bytes


@dataclass(frozen=True)
class Head:
    """The head of an answer, and how its body comes."""

    raw: bytes
    status: int
    length: int
    chunked: bool


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Returns a client's next request, None at its end."""
    try:
        head = await reader.readuntil(_END + _END)
    except asyncio.IncompleteReadError:
        return None
    method, target = head.split(b" ", 2)[:2]
    headers = _headers(head)
    if b"transfer-encoding" in headers:  # kubectl and client-go send what they have whole; so do Python's clients
        raise ValueError("a request in chunks is not understood")
    body = await reader.readexactly(int(headers.get(b"content-length", b"0")))
    return Request(method.decode(), target.decode(), body, head + body)


async def read_head(reader: asyncio.StreamReader) -> Head:
    """Returns the head of the next answer."""
    head = await reader.readuntil(_END + _END)
    headers = _headers(head)
    status = int(head.split(b" ", 2)[1])
    chunked = headers.get(b"transfer-encoding", b"").strip() == b"chunked"
    return Head(head, status, int(headers.get(b"content-length", b"0")), chunked)


async def read_chunk(reader: asyncio.StreamReader) -> bytes:
    """Returns the next chunk of a body, empty at its end."""
    size = int((await reader.readuntil(_END)).split(b";")[0], 16)
    data = await reader.readexactly(size + len(_END))
    return data[:size]


def chunk(data: bytes) -> bytes:
    """Returns data as a chunk; no data, as the last one."""
    return f"{len(data):x}".encode() + _END + data + _END


async def read_answer(reader: asyncio.StreamReader, head: Head) -> bytes:
    """Returns an answer whole, its head included."""
    parts = [head.raw]
    if not head.chunked:
        parts.append(await reader.readexactly(head.length))
        return b"".join(parts)
    while data := await read_chunk(reader):
        parts.append(chunk(data))
    return b"".join([*parts, chunk(b"")])


def refusal(status: int) -> bytes:
    """Returns an answer as an API server gives it that does not do what it is asked."""
    phrase = _REASONS[status][0]
    body = json.dumps(status_document(status)).encode()
    more = "Retry-After: 1\r\n" if status in (429, 503) else ""
    head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def status_document(status: int) -> dict[str, object]:
    """Returns the object of kind Status that goes with a refusal."""
    _, reason, message = _REASONS[status]
    known = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**known, "message": message, "reason": reason, "code": status}


def _headers(head: bytes) -> dict[bytes, bytes]:
    lines = (line.split(b":", 1) for line in head.split(_END)[1:] if line)
    return {name.strip().lower(): value.strip().lower() for name, value in lines}
