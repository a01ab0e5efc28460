"""Leases as an API server keeps them, within one event loop, for elections in virtual time.

Each candidate has a client of its own, and each client meets its own faults:

    server = LeaseServer()
    client = server.client()
    client.fault = Fault.SILENT     # from now on, also for a call under way
"""

import asyncio
import enum
import json
from copy import deepcopy
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration


class Fault(enum.Enum):
    """What a client meets instead of an answer."""

    SILENT = "the request is lost, and no answer comes"
    DEAF = "the request is served, and no answer comes"
    BROKEN = "the connection breaks"
    OVERLOADED = "503, from the API server"
    PROXY = "502 with a page of HTML, from something before the API server"
    FORBIDDEN = "403"
    READ_ONLY = "403 to all but reads"


class LeaseServer:
    """Keeps leases, with resourceVersions and conflicts."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self._version = 0

    def client(self) -> "LeaseClient":
        """A connection of its own."""
        return LeaseClient(self)

    @property
    def holder(self) -> str:
        """Who holds the only lease; empty if nobody does."""
        return next((str(lease["spec"].get("holderIdentity", "")) for lease in self.leases.values()), "")

    def serve(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        """Returns status code and document."""
        if method == "GET":
            return (200, deepcopy(self.leases[path])) if path in self.leases else (404, _status(404, "not found"))
        assert body is not None
        for moment in ("acquireTime", "renewTime"):
            text = body["spec"].get(moment)
            if text is not None and "." not in text:
                return 400, _status(400, f"parsing time {text}: a MicroTime has microseconds")
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.leases:
                return 409, _status(409, "already exists")
        elif path not in self.leases:
            return 404, _status(404, "not found")
        elif body["metadata"].get("resourceVersion") != self.leases[path]["metadata"]["resourceVersion"]:
            return 409, _status(409, "the object has been modified")
        self._version += 1
        self.leases[path] = deepcopy(body)
        self.leases[path]["metadata"]["resourceVersion"] = str(self._version)
        return 200, deepcopy(self.leases[path])


class LeaseClient(ApiClient):
    """kubernetes' client, with its own reading and writing of objects, on a LeaseServer in the place of a socket."""

    def __init__(self, server: LeaseServer) -> None:
        super().__init__(Configuration(host="http://server"))
        self.fault: Fault | None = None
        self.latency = 0.01
        self.calls = 0
        self._server = server

    async def call_api(self, method: str, url: str, *args: Any, **kwargs: Any) -> "_Answer":
        self.calls += 1
        await asyncio.sleep(self.latency)
        body = args[1] if len(args) > 1 else kwargs.get("body")
        match self.fault:
            case Fault.SILENT:
                await asyncio.Event().wait()
            case Fault.BROKEN:
                raise aiohttp.ServerDisconnectedError
            case Fault.OVERLOADED:
                return _Answer(503, json.dumps(_status(503, "overloaded")))
            case Fault.PROXY:
                return _Answer(502, "<html>Bad Gateway</html>")
            case Fault.FORBIDDEN:
                return _Answer(403, json.dumps(_status(403, 'leases "operator" is forbidden')))
            case Fault.READ_ONLY if method != "GET":
                return _Answer(403, json.dumps(_status(403, 'leases "operator" is forbidden')))
        status, document = self._server.serve(method, url.removeprefix("http://server").partition("?")[0], body)
        if self.fault is Fault.DEAF:
            await asyncio.Event().wait()
        return _Answer(status, json.dumps(document))


class _Answer:
    """What kubernetes' client reads of an answer."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.reason = f"status {status}"
        self.data = text.encode()
        self.headers = {"content-type": "application/json"}

    async def read(self) -> bytes:
        return self.data

    def getheaders(self) -> dict[str, str]:
        return self.headers


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
