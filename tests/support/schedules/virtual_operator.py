"""An operator in virtual time: all of its parts but the sockets, with a clock of its own and a network that may fail.

It is the very `Program` that runs on a cluster. In the place of HTTP stands a client that asks a `MemoryApi`, in the
place of kopf's streams a task for each kind; leases go to a `LeaseServer`.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration

from qmljob_api import names
from qmljob_operator.controller.logs import LogFormat, LogLevel
from qmljob_operator.controller.program import Program
from qmljob_operator.controller.settings import Settings
from qmljob_operator.kinds import Kind
from support.injector.exchange import status_document
from support.injector.faults import FaultKind
from support.lease_server import Fault as LeaseFault
from support.lease_server import LeaseClient, LeaseServer
from support.schedules.memory_api import NAMESPACE, MemoryApi, encoded

_SERVER = "http://server"
_SETTINGS = Settings((NAMESPACE,), 2, 0, "system", LogFormat.JSON, LogLevel.INFO)
_RESTART_SECONDS = 3.0


class _Answer:
    """What the operator reads of an answer."""

    def __init__(self, status: int, data: bytes) -> None:
        self.status = status
        self._data = data

    async def read(self) -> bytes:
        return self._data


class _Client(ApiClient):
    """Requests to a MemoryApi, some of which fail, by chance of a seed."""

    def __init__(self, api: MemoryApi, chance: random.Random) -> None:
        super().__init__(Configuration(host=_SERVER))
        self.trouble: tuple[FaultKind, ...] = ()
        """What happens to requests now; one in two goes well all the same."""
        self.latency = 0.01
        self.dead = False
        self._api = api
        self._chance = chance

    async def call_api(self, method: str, url: str, *arguments: Any, **options: Any) -> _Answer:
        body = arguments[1] if len(arguments) > 1 else options.get("body")
        fault = self._chance.choice([*self.trouble, *(None for _ in self.trouble)]) if self.trouble else None
        await asyncio.sleep(self.latency * self._chance.uniform(0.5, 1.5))
        if self.dead:
            await asyncio.Event().wait()
        match fault:
            case FaultKind.LOSE:
                raise aiohttp.ServerDisconnectedError
            case FaultKind.TIMEOUT:
                await asyncio.Event().wait()
            case FaultKind.CONFLICT | FaultKind.BUSY | FaultKind.BROKEN | FaultKind.UNAVAILABLE:
                return _Answer(*encoded((int(fault), status_document(int(fault)))))
        status, data = encoded(self._api.serve(method, url.removeprefix(_SERVER), body))
        if fault is FaultKind.LOSE_ANSWER:
            raise aiohttp.ServerDisconnectedError
        await asyncio.sleep(self.latency * self._chance.uniform(0.5, 1.5))
        return _Answer(status, data)


class VirtualOperator:
    """One of the operator's replicas: a process that is started anew when it ends.

    Attributes:
        skew: how far its clock is from the API server's, in seconds.
        stalled: whether its watches deliver nothing.
        skipping: how many events its watches are about to lose.
        relist: whether its watches begin anew, with a list.
    """

    def __init__(self, api: MemoryApi, leases: LeaseServer, clock: Callable[[], float], seed: int) -> None:
        """Nothing runs yet; `clock` is the API server's."""
        self.skew = 0.0
        self.stalled = False
        self.skipping = 0
        self.relist = False
        self.bugs: list[str] = []
        self._api, self._leases, self._clock = api, leases, clock
        self._chance = random.Random(seed)
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def start(self) -> None:
        """Starts it."""
        self.client = _Client(self._api, self._chance)
        self.lease_client: LeaseClient = self._leases.client()
        self._task = asyncio.get_running_loop().create_task(self._live())

    async def kill(self) -> None:
        """Ends it as SIGKILL does: nothing is told to anybody, and no lease is given back."""
        self.client.dead = True
        self.lease_client.fault = LeaseFault.SILENT
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def heal(self) -> None:
        """Everything works again."""
        self.client.trouble, self.client.latency = (), 0.01
        self.lease_client.fault = None
        self.stalled, self.skipping, self.relist = False, 0, True
        self.wake()

    def wake(self) -> None:
        """Something has changed that its watches may tell."""
        self._changed.set()

    async def _live(self) -> None:
        while True:
            with suppress(_Ended):
                await self._run_once()
            await asyncio.sleep(_RESTART_SECONDS)

    async def _run_once(self) -> None:
        loop = asyncio.get_running_loop()
        program = Program(_SETTINGS, self.client, self.lease_client)
        program._leadership.clock = loop.time
        program._queue._draw = self._chance.random
        program._reconciler._clock = program._reconciler._writer._clock = lambda: self._clock() + self.skew
        failed = program._metrics.pass_failed

        def note(kind: Any) -> None:
            failed(kind)
            if kind.value == "bug":
                self.bugs.append(f"a bug at {loop.time():.1f} s")

        program._metrics.pass_failed = note  # type: ignore[method-assign]
        tasks = [loop.create_task(each) for each in (program._audit.run(), program._lead(), self._watch(program))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            raise _Ended from next(iter(done)).exception()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, program: Program) -> None:
        await program._audit.synced.wait()
        while True:
            self.relist = False
            seen = self._api.version
            for kind in Kind:
                for item in self._api.all(kind):
                    program._on_event(kind, None, item)
            position = len(self._api.history)
            while not self.relist:
                await self._changed.wait()
                self._changed.clear()
                await asyncio.sleep(self.client.latency)
                while position < len(self._api.history) and not self.stalled:
                    event = self._api.history[position]
                    position += 1
                    if self.skipping:
                        self.skipping -= 1
                    elif event.revision > seen and (event.kind == names.PLURAL or _labelled(event.object)):
                        program._on_event(Kind(event.kind), event.type, event.object)


class _Ended(Exception):
    """The process has ended by itself."""


def _labelled(item: Any) -> bool:
    return names.LABEL_JOB in (item["metadata"].get("labels") or {})
