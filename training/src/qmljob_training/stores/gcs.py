"""A bucket of Google Cloud Storage (or of its emulator, by STORAGE_EMULATOR_HOST) as a store.

Retries are the client library's own policy, with our deadline. What makes them right, call by call:

- A conditional write may be repeated safely, but after a lost answer the repetition meets the generation that the
  first try made, and gets 412. So each write carries a number used once in its metadata: a 412 from an object that
  carries our number is our own success.
- An unconditional write repeats the same bytes under the same name.
- A read asks for the checksum first and checks the bytes against it here: the library does not check a download that
  it had to resume, nor one whose response has no checksum.
- A delete is conditional on the generation just seen: repeated, it can't remove what somebody wrote in the meantime.
"""

import base64
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import google.auth.exceptions
import google_crc32c
import requests
from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError, NotFound
from google.api_core.exceptions import PreconditionFailed as Changed
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption
from google.cloud.storage.retry import DEFAULT_RETRY

from .errors import ObjectNotFound, PreconditionFailed, StoreError, StoreMisconfigured, StoreUnavailable
from .protocol import RESERVED_PREFIX, Generation, RetrySettings, StoredObject, check_name

_NONCE = "qmljob-write"
_ONE_REQUEST = 8 * 1024 * 1024
"""Bytes that the library sends in one request; more goes by a session of several."""
_UPLOAD_TRIES = 3
"""A session may be lost by the service; the upload then begins anew."""
_READ_TRIES = 5
"""An object replaced between the two requests of a read, or damaged on the way, is read again."""


class GcsStore:
    """Objects under a prefix of a bucket. See `Store` for the methods' contract."""

    def __init__(self, bucket: str, prefix: str = "", *, retry: RetrySettings | None = None) -> None:
        """Names the bucket; nothing is asked of it yet.

        Args:
            bucket: its name.
            prefix: of all objects' names, without a slash at its ends; empty for the whole bucket.
            retry: None takes the defaults.
        """
        self._bucket_name = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._settings = retry or RetrySettings()

    @property
    def location(self) -> str:
        """`gs://bucket/prefix`."""
        return f"gs://{self._bucket_name}/{self._prefix}".rstrip("/")

    def put(self, name: str, data: bytes, *, content_type: str = "application/octet-stream") -> Generation:
        """Writes an object, whatever was there before."""
        return self._upload(name, data, None, content_type)

    def put_if(
        self, name: str, data: bytes, *, generation: Generation, content_type: str = "application/octet-stream"
    ) -> Generation:
        """Writes an object if its generation is `generation`; raises PreconditionFailed if not."""
        return self._upload(name, data, generation, content_type)

    def get(self, name: str) -> StoredObject:
        """Reads an object whole, and checks it against the checksum that the bucket holds."""
        key = self._key(name)
        for _ in range(_READ_TRIES):
            with self._advice():
                found = self._bucket.get_blob(key, **self._call)
                if found is None:
                    raise self._not_found(name)
                data = self._download(key, int(found.generation))
            if data is not None and _crc32c(data) == found.crc32c:
                return StoredObject(data, int(found.generation))
        raise StoreUnavailable(
            f"{self.location}/{name}: read {_READ_TRIES} times, and never whole and unchanged; "
            "look for a proxy that cuts answers, then try again"
        )

    def list(self, prefix: str = "") -> tuple[str, ...]:
        """Returns the names that begin with `prefix`, sorted."""
        if "/" in prefix:
            check_name(prefix.rpartition("/")[0])
        with self._advice():
            blobs = self._bucket.list_blobs(
                prefix=self._prefix + prefix, fields="items(name),nextPageToken", **self._call
            )
            names = [str(blob.name)[len(self._prefix) :] for blob in blobs]
        return tuple(sorted(name for name in names if _is_object(name)))

    def delete(self, name: str) -> None:
        """Removes an object; one that does not exist is fine."""
        key = self._key(name)
        with self._advice():
            found = self._bucket.get_blob(key, **self._call)
            if found is None:
                return
            try:
                found.delete(if_generation_match=int(found.generation), **self._call)
            except (NotFound, Changed):
                return  # an earlier try removed it; what is there now, if anything, is somebody's later write

    def check_writable(self) -> None:
        """Writes and removes a small object: the one honest test of permissions."""
        key = f"{self._prefix}{RESERVED_PREFIX}probe-{uuid.uuid4().hex}"
        with self._advice():
            blob = self._bucket.blob(key)
            blob.upload_from_string(b"qmljob", checksum="crc32c", **self._call)
            with suppress(NotFound):  # an earlier try removed it
                blob.delete(**self._call)

    def _key(self, name: str) -> str:
        return self._prefix + check_name(name)

    def _upload(self, name: str, data: bytes, expected: Generation | None, content_type: str) -> Generation:
        key, nonce = self._key(name), uuid.uuid4().hex
        with self._advice():
            written = self._send_or_find(key, nonce, data, expected, content_type)
        if written is None:
            raise PreconditionFailed(f"{self.location}/{name} no longer has generation {expected}: read it again")
        if written.crc32c is not None and written.crc32c != _crc32c(data):
            raise StoreUnavailable(f"{self.location}/{name}: data was damaged on its way to the bucket; write it again")
        return int(written.generation)

    def _send_or_find(
        self, key: str, nonce: str, data: bytes, expected: Generation | None, content_type: str
    ) -> storage.Blob | None:
        """Uploads, or finds that a try whose answer was lost has; returns None if the precondition does not hold."""
        for tries_left in reversed(range(_UPLOAD_TRIES)):
            try:
                return self._send(key, nonce, data, expected, content_type)
            except GoogleAPICallError as error:
                if error.code not in {404, 410, 412}:
                    raise
                found = self._bucket.get_blob(key, **self._call)
                if found is not None and (found.metadata or {}).get(_NONCE) == nonce:
                    return found
                if error.code == 412:
                    return None
                if not tries_left or len(data) <= _ONE_REQUEST:
                    raise  # no such bucket; a larger upload may also have lost its session, and begins anew
        return None

    def _send(self, key: str, nonce: str, data: bytes, expected: Generation | None, content_type: str) -> storage.Blob:
        """Uploads once; returns what the bucket says it has now."""
        blob = self._bucket.blob(key)
        blob.metadata = {_NONCE: nonce}
        # For an upload of several requests the library compares checksums when all is done, and then deletes whatever
        # the name holds. The declared checksum makes the bucket refuse damaged data instead.
        small = len(data) <= _ONE_REQUEST
        checks = {"checksum": "crc32c"} if small else {"checksum": None, "crc32c_checksum_value": _crc32c(data)}
        blob.upload_from_string(data, content_type=content_type, if_generation_match=expected, **checks, **self._call)
        return blob

    def _download(self, key: str, generation: Generation) -> bytes | None:
        """Returns the bytes of one generation; None if it is no longer the object's, or came damaged."""
        # A fresh blob, so that the address is built from our endpoint and not taken from the metadata's mediaLink.
        blob = self._bucket.blob(key, generation=generation)
        try:
            data: bytes = blob.download_as_bytes(checksum="crc32c", raw_download=True, **self._call)
        except (NotFound, DataCorruption):
            return None
        return data

    def _not_found(self, name: str) -> ObjectNotFound:
        # A missing object and a missing bucket answer alike, and asking for the bucket itself needs a permission that
        # writers of objects commonly lack. Listing does not, and raises NotFound where there is no bucket.
        list(self._bucket.list_blobs(prefix=self._key(name), max_results=1, **self._call))
        return ObjectNotFound(f"{self.location}/{name} does not exist")

    @cached_property
    def _call(self) -> dict[str, Any]:
        """The arguments that every request gets."""
        settings = self._settings
        retry = DEFAULT_RETRY.with_timeout(settings.deadline).with_delay(
            initial=settings.initial_delay, maximum=settings.maximum_delay
        )
        return {"retry": retry, "timeout": (settings.connect_timeout, settings.read_timeout)}

    @cached_property
    def _bucket(self) -> storage.Bucket:
        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
        if emulator and not emulator.startswith(("http://", "https://")):
            raise StoreMisconfigured(
                f"STORAGE_EMULATOR_HOST={emulator}: begin it with http://, as in http://127.0.0.1:4443"
            )
        # Else the library asks for the bucket's own metadata in the background, which needs one permission more.
        os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
        # project=None: no call here needs a project, and looking for one can take seconds.
        return storage.Client(project=None).bucket(self._bucket_name)

    @contextmanager
    def _advice(self) -> Iterator[None]:
        """Turns the library's errors into a store's."""
        try:
            yield
        except StoreError:
            raise
        except google.auth.exceptions.TransportError as error:
            raise self._unavailable(error) from error
        except google.auth.exceptions.GoogleAuthError as error:
            raise StoreMisconfigured(
                f"{self.location}: no usable Google credentials; run 'gcloud auth application-default login', set "
                "GOOGLE_APPLICATION_CREDENTIALS, or use a file:// location"
            ) from error
        except GoogleAPIError as error:
            raise self._translated(error) from error
        except (requests.RequestException, ConnectionError, TimeoutError, DataCorruption) as error:
            raise self._unavailable(error) from error

    def _translated(self, error: Exception) -> StoreError:
        code = getattr(error, "code", None)
        if code == 404:
            return StoreMisconfigured(
                f"bucket {self._bucket_name!r} does not exist: create it "
                f"(gcloud storage buckets create gs://{self._bucket_name}) or correct the name"
            )
        if code in {401, 403}:
            return StoreMisconfigured(
                f"{self.location}: access denied; grant this account roles/storage.objectUser on bucket "
                f"{self._bucket_name!r}, or use other credentials"
            )
        if code == 400 and "crc32c" in str(error).lower():
            return StoreUnavailable(f"{self.location}: data was damaged on its way to the bucket; write it again")
        if code == 400:
            return StoreMisconfigured(f"{self.location}: the bucket refused the request: {_one_line(error)}")
        return self._unavailable(error)

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        cause = getattr(error, "cause", None) or error
        return StoreUnavailable(
            f"{self.location}: no success within {self._settings.deadline:g} s of retries: {_one_line(cause)}; "
            "check the network and the service's status, then try again"
        )


def _is_object(name: str) -> bool:
    """Tells objects from probes and from the empty `folder/` objects that some tools make."""
    return not name.endswith("/") and not name.rpartition("/")[2].startswith(RESERVED_PREFIX)


def _crc32c(data: bytes) -> str:
    """Returns the checksum as the bucket writes it: base64 of the big-endian number."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}…"
