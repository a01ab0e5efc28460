"""The one place that talks to the API server, and the rules of its writes.

Objects are created by POST and never overwritten; a deletion names the uid that it means; a status is written with the
resourceVersion that it was made from, and so is a repair. Every write asks first whether this process
still leads. Documents go in and out as plain JSON: the client library gives connections,
credentials and their renewal.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
from kubernetes.aio.client.api_client import ApiClient

from qmljob_api import names
from qmljob_operator.controller.caches import version_of
from qmljob_operator.controller.leader import Leadership
from qmljob_operator.kinds import Kind
from qmljob_operator.observation import Document

READ_SECONDS = 30.0
LOG_SECONDS = 3.0
"""For a log, which comes from a kubelet that may be silent: a worker of the queue waits for it."""
WRITE_SECONDS = 4.5
"""Less than a lease outlives the time in which its holder may write: a write that was sent at its end has come to an
end, or was given up, before another operator leads."""
MERGE_PATCH = "application/merge-patch+json"
PAGE = 500
"""Objects a request of a list."""


class ApiError(Exception):
    """The API server refused a request.

    Attributes:
        status: the HTTP status code.
        reason: its one word for it (`AlreadyExists`).
        message: its own words.
        causes: the fields that are wrong (field, message).
    """

    def __init__(self, status: int, document: Any) -> None:
        """Reads the Status object that came as an answer; anything else is quoted."""
        known: Mapping[str, Any] = document if isinstance(document, dict) else {}
        self.status = status
        self.reason = str(known.get("reason") or "")
        self.message = str(known.get("message") or document or f"HTTP status {status}").strip()
        causes = (known.get("details") or {}).get("causes") or []
        self.causes = tuple((str(cause.get("field") or ""), str(cause.get("message") or "")) for cause in causes)
        super().__init__(f"{status} {self.reason}: {self.message}")


class TransientError(Exception):
    """A request that may succeed later: no connection, no answer in time, too many requests, a server's own error."""


class Cluster:
    """The API server, as the operator uses it."""

    def __init__(
        self,
        client: ApiClient,
        leadership: Leadership,
        on_answer: Callable[[str, str, int], None] = lambda _verb, _resource, _code: None,
    ) -> None:
        """Makes a client of a client.

        Args:
            client: gives connections and credentials.
            leadership: is asked before every write.
            on_answer: is told of every request: its verb, its resource, and the code of the answer or 0.
        """
        self._client = client
        self._leadership = leadership
        self._on_answer = on_answer
        self.problem: str | None = "nothing was asked of the API server yet"
        """Why the last request had no answer, on one line; None if it had one."""

    async def ping(self) -> None:
        """Asks for the server's version, so that `problem` is up to date also where nothing else is asked."""
        try:
            await self._request("GET", "/version", "get", "version")
        except (ApiError, TransientError):
            # What became of it is told by `problem`; an answer that is no is an answer.
            return

    async def list(self, kind: Kind, namespace: str | None) -> tuple[list[Document], int]:
        """Returns all objects of a kind that jobs have, in a namespace or (None) everywhere, and the list's version."""
        path = _path(kind, namespace)
        query = {"limit": str(PAGE)}
        if kind is not Kind.QMLJOB:
            query["labelSelector"] = names.LABEL_JOB
        found: list[Document] = []
        while True:
            page = await self._request("GET", path, "list", kind, query=query)
            # Items of a list do not repeat the list's kind.
            kinds = {"apiVersion": page["apiVersion"], "kind": page["kind"].removesuffix("List")}
            found += [{**kinds, **item} for item in page.get("items") or []]
            token = page["metadata"].get("continue")
            if not token:
                return found, version_of(page)
            query["continue"] = token

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        """Returns an object, or None where there is none."""
        return await self._find("GET", _path(kind, namespace, name), "get", kind)

    async def node(self, name: str) -> Document | None:
        """Returns a node, or None where there is none."""
        return await self._find("GET", f"/api/v1/nodes/{name}", "get", "nodes")

    async def log_tail(self, namespace: str, pod: str, container: str, lines: int) -> str:
        """Returns the last lines of a container's log, or an empty text where there is none to be had."""
        path = f"{_path(Kind.POD, namespace, pod)}/log"
        query = {"container": container, "tailLines": str(lines), "limitBytes": str(64 * 1024)}
        try:
            return str(await self._request("GET", path, "get", "pods/log", query=query, text=True))
        except (ApiError, TransientError):
            # A log is a help, never a condition: its node may be gone, or its container not there yet.
            return ""

    async def create(self, document: Document, *, dry_run: bool = False) -> Document:
        """Creates an object, or (`dry_run`) only asks whether it could be.

        Raises:
            ApiError: the API server refused it (409: the name is taken).
            TransientError: it may succeed later.
        """
        kind = Kind.of(document)
        query = {"fieldManager": names.FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
        verb = "dry-run" if dry_run else "create"
        path = _path(kind, document["metadata"]["namespace"])
        return await self._write("POST", path, verb, kind, query=query, body=document)

    async def repair(self, existing: Document, wanted: Document) -> Document:
        """Puts an object of ours right that somebody edited, from the very version of it that is known.

        Not by server-side apply: to the API server what a POST wrote and what is applied are two managers' fields, so
        that a port which changes its number would be there twice.
        """
        kind = Kind.of(wanted)
        metadata = existing["metadata"]
        identity = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        body = {"metadata": {"labels": wanted["metadata"]["labels"], **identity}, "spec": _spec(kind, existing, wanted)}
        path = _path(kind, metadata["namespace"], metadata["name"])
        query = {"fieldManager": names.FIELD_MANAGER}
        return await self._write("PATCH", path, "patch", kind, query=query, body=body, media=MERGE_PATCH)

    async def relabel(self, kind: Kind, namespace: str, name: str, uid: str, labels: Mapping[str, str]) -> Document:
        """Puts labels of an object right."""
        body = {"metadata": {"uid": uid, "labels": dict(labels)}}
        query = {"fieldManager": names.FIELD_MANAGER}
        path = _path(kind, namespace, name)
        return await self._write("PATCH", path, "patch", kind, query=query, body=body, media=MERGE_PATCH)

    async def put_status(self, job: Document, status: Document) -> Document:
        """Writes a job's status, made from this very version of the job.

        Raises:
            ApiError: 409 where the job has changed since.
            TransientError: it may succeed later.
        """
        metadata = job["metadata"]
        path = f"{_path(Kind.QMLJOB, metadata['namespace'], metadata['name'])}/status"
        query = {"fieldManager": names.FIELD_MANAGER}
        body = {**job, "status": status}
        return await self._write("PUT", path, "update", f"{names.PLURAL}/status", query=query, body=body)

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str, *, grace_seconds: int | None = None
    ) -> Document | None:
        """Deletes exactly the object with this uid; returns what is left of it, None where it was gone already.

        Raises:
            ApiError: the API server refused it.
            TransientError: it may succeed later.
        """
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            return await self._write("DELETE", _path(kind, namespace, name), "delete", kind, body=body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            # A conflict is no proof that another object has the name by now: to be taken for gone, it must be.
            found = await self.get(kind, namespace, name) if error.status == 409 else None
            if found is not None and found["metadata"]["uid"] == uid:
                raise TransientError(f"delete {kind} {name}: {error}") from error
            return None

    async def post_event(self, event: Document) -> None:
        """Posts an event; one of the same name stands for the same news, and nothing is done."""
        try:
            path = f"{_prefix('', 'v1', event['metadata']['namespace'])}/events"
            await self._write("POST", path, "create", "events", body=event)
        except ApiError as error:
            if error.status != 409:
                raise

    async def _find(self, method: str, path: str, verb: str, resource: str) -> Document | None:
        try:
            document: Document = await self._request(method, path, verb, resource)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return document

    async def _write(
        self,
        method: str,
        path: str,
        verb: str,
        resource: str,
        *,
        body: Document,
        query: Mapping[str, str] | None = None,
        media: str = "application/json",
    ) -> Document:
        self._leadership.check()
        document: Document = await self._request(method, path, verb, resource, query=query, body=body, media=media)
        return document

    async def _request(
        self,
        method: str,
        path: str,
        verb: str,
        resource: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Document | None = None,
        media: str = "application/json",
        text: bool = False,
    ) -> Any:
        status = 0
        try:
            status, data = await self._exchange(method, path, query, body, media)
            self.problem = None if status < 500 else f"{verb} {resource}: HTTP status {status}"
        except TransientError as error:
            self.problem = str(error)
            raise
        finally:
            self._on_answer(verb, resource, status)
        if status == 429 or status >= 500:
            raise TransientError(f"{verb} {path}: {ApiError(status, _document(data))}"[:500])
        if status >= 400:
            raise ApiError(status, _document(data))
        return data.decode(errors="replace") if text else _document(data)

    async def _exchange(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Document | None, media: str
    ) -> tuple[int, bytes]:
        try:
            request = await self._client.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json", "Content-Type": media},
                body=body,
                auth_settings=["BearerToken"],
            )
            reading = LOG_SECONDS if path.endswith("/log") else READ_SECONDS
            seconds = reading if method == "GET" else WRITE_SECONDS
            async with asyncio.timeout(seconds):
                response = await self._client.call_api(*request, _request_timeout=seconds)
                return response.status, await response.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransientError(f"{method} {path}: {type(error).__name__} {error}") from error


def _path(kind: Kind, namespace: str | None, name: str = "") -> str:
    return f"{_prefix(kind.group, kind.version, namespace)}/{kind}" + (f"/{name}" if name else "")


def _prefix(group: str, version: str, namespace: str | None) -> str:
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{group}/{version}{scope}" if group else f"/api/{version}{scope}"


def _spec(kind: Kind, existing: Document, wanted: Document) -> Document:
    """Returns a merge patch towards the spec that is wanted.

    A Service's selector is wanted as a whole: a key more selects nothing. So is a policy's spec, where a key more lets
    somebody in or shuts somebody out; what else a Service has are the API server's defaults.
    """
    spec, own = existing.get("spec") or {}, wanted["spec"]
    if kind is Kind.SERVICE:
        return {**own, "selector": _instead(spec.get("selector"), own["selector"])}
    whole: Document = _instead(spec, own)
    return whole


def _instead(existing: Any, wanted: Any) -> Any:
    """Returns a merge patch that leaves nothing but what is wanted: null takes a key away."""
    if not isinstance(existing, Mapping) or not isinstance(wanted, Mapping):
        return wanted
    extra = dict.fromkeys(existing.keys() - wanted.keys())
    return {**extra, **{key: _instead(existing.get(key), value) for key, value in wanted.items()}}


def _document(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")
