"""Compares the caches with the API server, now and then: a watch that lacks something must not go unnoticed.

A stream may be open and deliver nothing, and after a gap a list does not tell what was deleted meanwhile. So everything
is listed at the start (only then are the caches synced) and every two minutes after. What a stream has not delivered a
few seconds later is put right from the list; a stream for which that happens twice in a row is stale.
"""

import asyncio
import logging
from collections.abc import Callable, Collection

from qmljob_operator.controller.caches import Cache, Caches, version_of
from qmljob_operator.controller.cluster import ApiError, Cluster, TransientError
from qmljob_operator.controller.workqueue import JobKey
from qmljob_operator.kinds import Kind
from qmljob_operator.observation import Document

AUDIT_SECONDS = 120.0
GRACE_SECONDS = 5.0
"""How long an event may be under way."""
PING_SECONDS = 10.0
STALE_AUDITS = 2

logger = logging.getLogger(__name__)


class Audit:
    """Keeps the caches honest."""

    def __init__(
        self, cluster: Cluster, caches: Caches, namespaces: Collection[str], on_news: Callable[[JobKey], None]
    ) -> None:
        """Makes an audit of caches; `on_news` is told of each job that a list brought news of."""
        self._cluster = cluster
        self._caches = caches
        self._scopes: list[str | None] = [*namespaces] or [None]
        self._on_news = on_news
        self._failed = dict.fromkeys(Kind, 0)
        self._unsynced = set(Kind)
        self.synced = asyncio.Event()
        """Set once everything was listed for the first time."""

    def stale_streams(self) -> list[str]:
        """Returns the kinds whose watch has lacked something twice in a row."""
        return [kind.value for kind, failures in self._failed.items() if failures >= STALE_AUDITS]

    def unsynced_caches(self) -> list[str]:
        """Returns the kinds that were never listed."""
        return sorted(kind.value for kind in self._unsynced)

    async def run(self) -> None:
        """Audits until it is cancelled."""
        while self._unsynced:
            for kind in [kind for kind in Kind if kind in self._unsynced]:
                if await self._sync(kind):
                    self._unsynced.discard(kind)
            if self._unsynced:
                await asyncio.sleep(1.0)
        self.synced.set()
        # The first comparison comes soon: what is deleted before a stream begins, no stream tells of.
        rounds = 1
        while True:
            for _ in range(rounds):
                await asyncio.sleep(PING_SECONDS)
                await self._cluster.ping()
            for kind in Kind:
                await self._audit(kind)
            rounds = round(AUDIT_SECONDS / PING_SECONDS)

    async def refresh(self) -> None:
        """Lists everything anew, jobs first, until all of it was answered."""
        for kind in Kind:
            while not await self._sync(kind):
                await asyncio.sleep(1.0)

    async def _sync(self, kind: Kind) -> bool:
        for scope in self._scopes:
            listed = await self._list(kind, scope)
            if listed is None:
                return False
            self._take_over(kind, scope, *listed)
        return True

    async def _audit(self, kind: Kind) -> None:
        missed = 0
        for scope in self._scopes:
            listed = await self._list(kind, scope)
            if listed is None:
                return
            if _differences(self._caches[kind], scope, *listed):
                await asyncio.sleep(GRACE_SECONDS)
                missed += _differences(self._caches[kind], scope, *listed)
                self._take_over(kind, scope, *listed)
        if missed:
            logger.warning("the watch of %s lacked %d changes, which were taken over from a list", kind.value, missed)
        self._failed[kind] = self._failed[kind] + 1 if missed else 0

    def _take_over(self, kind: Kind, scope: str | None, documents: list[Document], version: int) -> None:
        for key in self._caches[kind].replace(documents, version, scope):
            self._on_news(key)

    async def _list(self, kind: Kind, scope: str | None) -> tuple[list[Document], int] | None:
        try:
            return await self._cluster.list(kind, scope)
        except ApiError as error:
            advice = "is the CRD installed?" if error.status == 404 else "is the operator's ClusterRole in place?"
            logger.error("%s can't be listed: %s; %s", kind.value, error, advice)
        except TransientError as error:
            logger.warning("%s can't be listed now: %s", kind.value, error)
        return None


def _differences(cache: Cache, scope: str | None, documents: list[Document], version: int) -> int:
    """Returns how many objects of a list the cache lacks or has in an older version, or has though they are gone."""
    uids = {document["metadata"]["uid"] for document in documents}
    behind = sum(1 for document in documents if not cache.knows(document))
    gone = sum(
        1
        for known in cache
        if scope in (None, known["metadata"]["namespace"])
        and known["metadata"]["uid"] not in uids
        and version_of(known) <= version
    )
    return behind + gone
