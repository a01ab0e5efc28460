"""The lease and the election of kubernetes' client, with what they lack to be relied on; `leader` leads by them."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import aiohttp
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.client.models.v1_lease import V1Lease
from kubernetes.aio.client.models.v1_lease_spec import V1LeaseSpec
from kubernetes.aio.client.models.v1_object_meta import V1ObjectMeta
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from qmljob_api.names import FIELD_MANAGER

_ALWAYS = 2**62
_CALL_FAILURES = (ApiException, aiohttp.ClientError, OSError, ValueError)
"""A TimeoutError is an OSError; an answer that is not JSON, or no Lease, is a ValueError."""

logger = logging.getLogger(__name__)


class Lock(LeaseLock):
    """The library's lock on a Lease, less what breaks an election.

    As it is, no call has a limit but the client's five minutes, in which a lease runs out twenty times; only
    ApiException counts as a failed call, so a broken connection ends the election and leaves the work running; `create`
    is refused by the library's own client (`pretty=True` is no string); times are local ones written as UTC, and the
    API server refuses those of a whole second; a lease can't be given back.

    Attributes:
        problem: what the last call failed of, on one line; empty after one that succeeded.
        may_be_held: whether this process may hold the lease, as far as the answers tell.
    """

    def __init__(self, name: str, namespace: str, identity: str, api_client: ApiClient, *, call_seconds: float) -> None:
        """Names a lease and who wants it; `call_seconds` is the longest that one call may take."""
        super().__init__(name, namespace, identity, api_client)
        self.problem = ""
        self.may_be_held = False
        self._call_seconds = call_seconds

    async def get(self, name: str, namespace: str) -> tuple[bool, LeaderElectionRecord] | tuple[bool, Exception]:
        """Reads the lease; (False, error) if that fails."""
        try:
            async with asyncio.timeout(self._call_seconds):
                lease = await self.api_instance.read_namespaced_lease(name, namespace)
        except _CALL_FAILURES as error:
            self.problem = self._told(error, "read")
            return False, error if isinstance(error, ApiException) else ApiException(status=0, reason=self.problem)
        self.problem = ""
        self.lease_reference = lease
        self.may_be_held = lease.spec is not None and lease.spec.holder_identity == self.identity
        record: LeaderElectionRecord = self.election_record(lease)
        return True, record

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Makes the lease, held by this process; False if that fails."""
        body = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        return await self._write(
            lambda: self.api_instance.create_namespaced_lease(namespace, body, field_manager=FIELD_MANAGER)
        )

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Writes the lease as it was read, held and renewed by this process; False if that fails."""
        lease = self.lease_reference
        assert lease is not None, "the election reads a lease before it writes it"
        # With the resourceVersion of the read: of two candidates that saw the same lease, one fails.
        lease.spec = self.update_lease(updated_record, lease.spec)
        return await self._replace(lease)

    async def release(self) -> None:
        """Gives the lease back, if this process holds it."""
        if not self.may_be_held:
            return
        found, _ = await self.get(self.name, self.namespace)
        lease = self.lease_reference
        if found and self.may_be_held and lease is not None and lease.spec is not None:
            lease.spec.holder_identity = ""
            lease.spec.lease_duration_seconds = 1
            lease.spec.acquire_time = _precise(lease.spec.acquire_time)
            lease.spec.renew_time = _precise(datetime.now(UTC))
            await self._replace(lease)
        if self.problem:
            logger.warning("%s; a standby has to wait until it runs out", self.problem)

    def update_lease(
        self, leader_election_record: LeaderElectionRecord, current_spec: V1LeaseSpec | None = None
    ) -> V1LeaseSpec:
        """Returns a lease's spec held by this process from now on; its times are for people, none is compared."""
        now = _precise(datetime.now(UTC))
        spec = current_spec or V1LeaseSpec()
        if spec.holder_identity != self.identity:
            spec.lease_transitions = 0 if current_spec is None else (spec.lease_transitions or 0) + 1
            spec.holder_identity = self.identity
            spec.acquire_time = now
        spec.acquire_time = _precise(spec.acquire_time)
        spec.renew_time = now
        spec.lease_duration_seconds = int(leader_election_record.lease_duration or 1)
        return spec

    async def _replace(self, lease: V1Lease) -> bool:
        return await self._write(
            lambda: self.api_instance.replace_namespaced_lease(
                self.name, self.namespace, lease, field_manager=FIELD_MANAGER
            )
        )

    async def _write(self, call: Callable[[], Coroutine[Any, Any, V1Lease]]) -> bool:
        held = self.may_be_held
        self.may_be_held = True  # What gets no answer may have been written all the same.
        try:
            async with asyncio.timeout(self._call_seconds):
                await call()
        except _CALL_FAILURES as error:
            if isinstance(error, ApiException) and 400 <= error.status < 500:
                self.may_be_held = held
            self.problem = self._told(error, "written")
            return False
        self.problem = ""
        return True

    def _told(self, error: Exception, done: str) -> str:
        match error:
            case TimeoutError():
                cause = f"no answer within {self._call_seconds:.3g} s"
            case ApiException():
                cause = f"{error.status} {_message(error)}"
            case _:
                cause = " ".join(str(error).split()) or type(error).__name__
        return f"the lease {self.namespace}/{self.name} could not be {done}: {cause}"


class Election(LeaderElection):
    """The library's election, on a clock that does not jump.

    It compares times of the wall clock: set forward, that would take the lease from a leader that lives.
    """

    def __init__(
        self,
        lock: Lock,
        lease_seconds: int,
        renew_seconds: float,
        retry_seconds: float,
        *,
        clock: Callable[[], float],
    ) -> None:
        """Has seen nothing yet: a lease that somebody holds is valid for `lease_seconds` from its first sight.

        Raises:
            ValueError: the times do not fit each other.
        """
        self._clock = clock
        self._observed_at = clock()
        super().__init__(Config(lock, lease_seconds, renew_seconds, retry_seconds, _nothing, _nothing))

    @property
    def observed_time_milliseconds(self) -> int:
        """When the lease was last seen to change: in a far future if it is still valid, else in a far past."""
        valid = self._clock() - self._observed_at < self.election_config.lease_duration
        return _ALWAYS if valid else -_ALWAYS

    @observed_time_milliseconds.setter
    def observed_time_milliseconds(self, value: int) -> None:
        self._observed_at = self._clock()

    @property
    def other_holder(self) -> str:
        """Who else holds the lease, as last seen; empty if nobody does."""
        record = self.observed_record
        holder = record.holder_identity if record is not None else None
        return holder if holder and holder != self.election_config.lock.identity else ""


def _message(error: ApiException) -> str:
    """Returns what the API server says of a failed call: that names the permission which is missing."""
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, TypeError, KeyError):
        return str(error.reason)


def _precise(moment: datetime | None) -> datetime | None:
    """Returns a time that is written with its microseconds: the API server refuses one without them."""
    return moment.replace(microsecond=max(1, moment.microsecond)) if moment is not None else None


async def _nothing() -> None:
    """The library's configuration wants callbacks; only its `run` calls them."""
