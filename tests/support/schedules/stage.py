"""A job, its cluster and two operators in virtual time, and all that may happen to them."""

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from qmljob_api import names
from qmljob_api.conditions import ConditionType
from qmljob_api.status import JobStatus, parse_status
from qmljob_api.testing import manifest
from support import pod_documents as pods
from support.api_client import Object
from support.injector.faults import FaultKind
from support.lease_server import Fault as LeaseFault
from support.lease_server import LeaseServer
from support.promises import broken_promises
from support.schedules.memory_api import NAMESPACE, MemoryApi
from support.schedules.virtual_operator import VirtualOperator
from support.virtual_time import VirtualTimeLoop
from support.world import T0, node_document

JOB = "qcnn"
NODES = ("node-a", "node-b")
CODES = (0, 1, 1, 3, 69, 75, 137, 143)
SHAPES: tuple[dict[str, Any], ...] = (
    {"worker": 2},
    {"worker": 3},
    {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1},
    {"worker": 2, "evaluator": 1},
)
TROUBLE = (
    FaultKind.LOSE,
    FaultKind.LOSE_ANSWER,
    FaultKind.TIMEOUT,
    FaultKind.CONFLICT,
    FaultKind.BUSY,
    FaultKind.BROKEN,
    FaultKind.UNAVAILABLE,
)
_FINAL = (ConditionType.SUCCEEDED, ConditionType.FAILED)
_ROUNDS = 40
_ROUND_SECONDS = 60.0
_QUIET_SECONDS = 600.0


class Stage:
    """The stage. Close it at the end. What chance decides follows from the seed."""

    def __init__(self, seed: int, roles: Mapping[str, int]) -> None:
        """Sets it up: a job with these replicas is there, and two operators start."""
        self.loop = VirtualTimeLoop()
        asyncio.set_event_loop(self.loop)
        self.chance = random.Random(seed)
        self.api = MemoryApi(self.now)
        self.leases = LeaseServer()
        self.operators = [VirtualOperator(self.api, self.leases, self.now, 2 * seed + number) for number in range(2)]
        self.api.on_change = self._wake
        self.roles = roles
        self.uids = 0
        for node in NODES:
            self.set_node(node, ready=True)
        self.create_job()
        for operator in self.operators:
            self.run(self._start(operator))

    def now(self) -> float:
        """Returns the API server's time, in seconds since the epoch."""
        return T0 + self.loop.time()

    def run(self, what: Any) -> Any:
        """Runs a coroutine to its end."""
        return self.loop.run_until_complete(what)

    def pass_time(self, seconds: float) -> None:
        """Lets time pass."""
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        """Ends everything."""
        for operator in self.operators:
            self.run(operator.kill())
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.run(asyncio.sleep(0))
        asyncio.set_event_loop(None)
        self.loop.close()

    def check(self) -> None:
        """Checks all that has happened so far."""
        broken = broken_promises(self.api.history)
        broken += [bug for operator in self.operators for bug in operator.bugs]
        assert not broken, "\n".join(broken[:5])

    # People

    def create_job(self) -> None:
        """Somebody applies the manifest, if there is no job."""
        if self.api.get(names.PLURAL, JOB) is not None:
            return
        self.uids += 1
        metadata = {"namespace": NAMESPACE, "uid": f"job-{self.uids}", "generation": 1}
        template = {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}
        roles = {role: {"replicas": count, "template": template} for role, count in self.roles.items()}
        policy = {"backoffLimit": 3, "unreachableSeconds": 60, "forceDeleteUnreachable": True}
        self.api.put(names.PLURAL, manifest(metadata, replicaSpecs=roles, runPolicy=policy))

    def delete_job(self) -> None:
        """Somebody deletes the job."""
        if self.api.get(names.PLURAL, JOB) is not None:
            self.api.remove(names.PLURAL, JOB)

    def edit(self, **spec: Any) -> None:
        """Somebody edits the job."""
        job = self.api.get(names.PLURAL, JOB)
        if job is not None:
            metadata = {**job["metadata"], "generation": job["metadata"]["generation"] + 1}
            self.api.put(names.PLURAL, {**job, "metadata": metadata, "spec": {**job["spec"], **spec}})

    def scale(self, replicas: int) -> None:
        """Somebody scales the workers."""
        job = self.api.get(names.PLURAL, JOB)
        if job is not None:
            known = job["spec"]["replicaSpecs"]
            self.edit(replicaSpecs={**known, "worker": {**known["worker"], "replicas": replicas}})

    # The cluster

    def start_pods(self, share: float = 1.0) -> None:
        """Kubelets start pending pods, or some of them."""
        for pod in self._pods("Pending"):
            node = self.chance.choice(NODES)
            if self._ready(node) and self.chance.random() < share:
                self.api.put("pods", pods.running(pod, at=self.now(), node=node))

    def end_pod(self, code: int, late: float = 0.0, *, everyone: bool = False) -> None:
        """A replica's program ends, or all do; `late`: it did so many seconds ago, and kubelet says it now."""
        running = self._pods("Running")
        for pod in running if everyone else running[: 1 + self.chance.randrange(2)]:
            self.api.put("pods", pods.ended(pod, code, at=self.now() - late))

    def take_pod(self, how: str) -> None:
        """The cluster or somebody takes a pod away."""
        found = self._pods("Pending", "Running")
        if not found:
            return
        pod = self.chance.choice(found)
        name = pod["metadata"]["name"]
        if how == "vanish":
            self.api.remove("pods", name)
            return
        if how != "delete":
            pod = self.api.put("pods", pods.disrupted(pod, how, at=self.now()))
        if how != "TerminationByKubelet":
            self.api.delete("pods", name)

    def let_go(self) -> None:
        """Terminating pods go, where their node answers."""
        for pod in self.api.all("pods"):
            if pods.is_deleting(pod) and self._ready(pod["spec"].get("nodeName", "")):
                self.api.remove("pods", pod["metadata"]["name"])

    def set_node(self, node: str, *, ready: bool) -> None:
        """A node is lost, or answers again."""
        self.api.nodes[node] = node_document(node, ready=ready, since=self.now())
        for pod in self.api.all("pods"):
            if pod["spec"].get("nodeName") != node or pod["status"]["phase"] != "Running":
                continue
            if not ready:
                self.api.put("pods", pods.unready(pod, at=self.now()))
            elif not pods.is_deleting(pod):
                self.api.put("pods", pods.ended(pod, 255, at=self.now(), reason="Unknown"))

    # The operators

    def kill(self, number: int) -> None:
        """An operator's node is lost; another one starts in its place."""
        self.run(self.operators[number].kill())
        self.run(self._start(self.operators[number]))

    def trouble(self, number: int, kinds: tuple[FaultKind, ...], latency: float, seconds: float) -> None:
        """Half of an operator's requests fail in one of these ways, and answers take so long, for so many seconds."""
        client = self.operators[number].client
        client.trouble, client.latency = kinds, latency
        self.loop.call_later(seconds, self._well, client)

    def disturb_watches(self, number: int, how: str, seconds: float) -> None:
        """An operator's watches fall silent for so long, lose the next events, or begin anew with a list."""
        operator = self.operators[number]
        if how == "stall":
            operator.stalled = True
            self.loop.call_later(seconds, self._flow, operator)
        operator.skipping = 2 if how == "skip" else 0
        operator.relist = how == "relist"
        operator.wake()

    def lose_lease(self, number: int, fault: LeaseFault, seconds: float) -> None:
        """An operator can't renew its lease for so long, whatever it is writing."""
        client = self.operators[number].lease_client
        client.fault = fault
        self.loop.call_later(seconds, self._renewable, client)

    # The end

    def settle(self) -> None:
        """Everything works again, nothing happens any more but what has to: the job comes to an end and stays there.

        Raises:
            AssertionError: it does not, or a promise was broken.
        """
        for operator in self.operators:
            operator.heal()
        for node in NODES:
            if not self._ready(node):
                self.set_node(node, ready=True)
        self.create_job()
        self.edit(suspend=False)
        for _ in range(_ROUNDS):
            self.let_go()
            self.start_pods()
            self.pass_time(_ROUND_SECONDS)
            if self._over():
                break
            if self._all_run():
                self.end_pod(0, everyone=True)
        self.check()
        assert self._over(), f"the job has not ended: {self._status()}"
        for _ in range(2):
            self.pass_time(_QUIET_SECONDS)
            self.let_go()
        before = self.api.version
        self.pass_time(_QUIET_SECONDS)
        assert self.api.version == before, "something is still written"
        assert not self._pods("Pending", "Running"), "pods are left over"
        assert not self.api.all("services"), "Services are left over"
        self.check()

    def _over(self) -> bool:
        return any(self._status().holds(kind) for kind in _FINAL)

    def _all_run(self) -> bool:
        gang, status = self._pods("Running"), self._status()
        return status.gang is not None and status.gang.complete and len(gang) == sum(status.gang.roles.values())

    def _status(self) -> JobStatus:
        return parse_status((self.api.get(names.PLURAL, JOB) or {}).get("status"))

    def _pods(self, *phases: str) -> list[Object]:
        """Returns the pods of the job that is there now, in a phase, that nobody deletes."""
        return [pod for pod in self.api.all("pods") if pod["status"]["phase"] in phases and not pods.is_deleting(pod)]

    def _ready(self, node: str) -> bool:
        known = self.api.nodes.get(node)
        return known is None or known["status"]["conditions"][0]["status"] == "True"

    def _wake(self) -> None:
        for operator in self.operators:
            operator.wake()

    def _well(self, client: Any) -> None:
        client.trouble, client.latency = (), 0.01

    def _flow(self, operator: VirtualOperator) -> None:
        operator.stalled = False
        operator.wake()

    def _renewable(self, client: Any) -> None:
        if any(client is operator.lease_client for operator in self.operators):  # the dead stay silent
            client.fault = None

    async def _start(self, operator: VirtualOperator) -> None:
        operator.start()
