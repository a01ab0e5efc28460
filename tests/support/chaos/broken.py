"""Operators that are broken on purpose: a checker that does not find each of them out proves nothing.

Each is a patch of a forked operator's process, and a case that shows it: broken there, and kept without the patch. A
name that is no longer where a patch looks for it is an error.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from qmljob_operator.controller import audit, cluster, reconcile, workqueue, writer
from qmljob_operator.kinds import Kind
from qmljob_operator.observation import owner_of
from qmljob_operator.planning import attempts, draft, finished, lifecycle, objects
from qmljob_operator.policy import RestartGang

Patch = Callable[[], None]
_REPLACED: list[tuple[Any, str, Any]] = []


@dataclass(frozen=True)
class Broken:
    """A broken operator.

    Attributes:
        name: on the command line.
        patch: breaks this process' operator.
        case: the line of a case that shows it.
        says: what is said of it, in part.
    """

    name: str
    patch: Patch
    case: str
    says: str


def _put(module: Any, name: str, value: Any) -> None:
    if not hasattr(module, name):
        raise AttributeError(f"{module} has no {name}: look where it went")
    _REPLACED.append((module, name, getattr(module, name)))
    setattr(module, name, value)


@contextmanager
def broken_here(broken: "Broken") -> Iterator[None]:
    """Breaks the operators of this very process, until the block ends."""
    broken.patch()
    try:
        yield
    finally:
        while _REPLACED:
            setattr(*_REPLACED.pop())


def _no_write_ahead() -> None:
    """Pods first, then the status that tells of them."""
    after = writer.Writer.carry_out

    async def carry_out(self: Any, key: Any, seen: Any, wanted: Any, memory: Any) -> None:
        await self._write_objects(key, seen, wanted, memory)
        await after(self, key, seen, replace(wanted, deletes=(), relabels=(), repairs=(), creates=()), memory)

    _put(writer.Writer, "carry_out", carry_out)


def _no_barrier() -> None:
    """Pods of an attempt are created beside those of the one before."""
    create = objects._create

    def eager(plan: Any, gang: Any, topology: Any) -> None:
        seen = plan.seen
        own = {name: pod for name, pod in seen.pods.items() if pod.attempt == gang.attempt}
        plan.seen = replace(seen, pods=own)
        create(plan, gang, topology)
        plan.creates = [each for each in plan.creates if each["metadata"]["name"] not in seen.pods]
        plan.seen = seen

    _put(objects, "_create", eager)


def _charges_disruptions() -> None:
    """What the cluster does is charged to the job."""
    decide = attempts.decide

    def strict(*arguments: Any, **options: Any) -> Any:
        decision = decide(*arguments, **options)
        return replace(decision, charged=True) if isinstance(decision, RestartGang) else decision

    _put(attempts, "decide", strict)


def _adopts() -> None:
    """Who has the name is the pod."""
    _put(writer, "is_owned_by", lambda document, uid: True)
    _put(reconcile, "is_owned_by", lambda document, uid: True)


def _knows_owners_by_name() -> None:
    """A job of the same name is the same job."""

    def same(document: Any, uid: str) -> bool:
        return (owner_of(document) or {}).get("name") == "qcnn"

    _put(writer, "is_owned_by", same)
    _put(reconcile, "is_owned_by", same)


def _takes_strangers() -> None:
    """A Service with the job's label is the job's."""
    right = reconcile.is_owned_by
    _put(reconcile, "is_owned_by", lambda document, uid: document["kind"] == "Service" or right(document, uid))


def _forces_the_status() -> None:
    """A conflict is an obstacle, and the newest version is a way around it."""
    put = cluster.Cluster.put_status

    async def force(self: Any, job: Any, status: Any) -> Any:
        try:
            return await put(self, job, status)
        except cluster.ApiError as error:
            if error.status != 409:
                raise
        fresh = await self.get(Kind.QMLJOB, job["metadata"]["namespace"], job["metadata"]["name"])
        return await put(self, fresh, status)

    _put(cluster.Cluster, "put_status", force)


def _deletes_by_name() -> None:
    """Whoever has the name now is deleted."""
    write = cluster.Cluster._write

    async def blunt(self: Any, *arguments: Any, body: Any, **options: Any) -> Any:
        body = {key: value for key, value in body.items() if key != "preconditions"}
        return await write(self, *arguments, body=body, **options)

    _put(cluster.Cluster, "_write", blunt)


def _takes_conflicts_for_the_end() -> None:
    """What can't be deleted because of a conflict is gone."""
    delete = cluster.Cluster.delete

    async def hopeful(self: Any, *arguments: Any, **options: Any) -> Any:
        get, self.get = self.get, _nothing
        try:
            return await delete(self, *arguments, **options)
        finally:
            self.get = get

    _put(cluster.Cluster, "delete", hopeful)


async def _nothing(*_: Any) -> None:
    return None


def _never_completes() -> None:
    """A pod that is missing was never made."""
    create = objects._create

    def endless(plan: Any, gang: Any, topology: Any) -> None:
        create(plan, gang, topology)
        known = plan.status.gang or gang
        plan.update(gang=known.model_copy(update={"complete": False}))

    _put(objects, "_create", endless)


def _never_finishes() -> None:
    """What a job is follows from its pods alone."""
    right = lifecycle.is_finished
    _put(lifecycle, "is_finished", lambda plan: plan.seen.document["metadata"]["name"] != "qcnn" and right(plan))
    _put(attempts, "record_successes", lambda plan, gang, state: gang)


def _charges_twice() -> None:
    """Each failure is charged, and so is the restart."""
    restart = attempts._restart

    def twice(plan: Any, gang: Any, decision: Any) -> Any:
        plan.update(restarts=plan.status.restarts + decision.charged)
        return restart(plan, gang, decision)

    _put(attempts, "_restart", twice)


def _forgets_when_suspended() -> None:
    """A job that is suspended starts with nothing behind it."""
    suspend = lifecycle._suspend

    def forget(plan: Any) -> Any:
        ask = suspend(plan)
        plan.update(restarts=0, history=())
        return ask

    _put(lifecycle, "_suspend", forget)


def _no_timers() -> None:
    """Nothing happens unless something happens."""
    _put(draft.Draft, "wake", lambda self, at: None)


def _ttl_without_timer() -> None:
    """The time to live is looked at when there is something else to do."""
    expire = finished._expire

    def unhurried(plan: Any, finished_at: float) -> None:
        times = list(plan.wake_times)
        expire(plan, finished_at)
        plan.wake_times = times

    _put(finished, "_expire", unhurried)


def _no_audit() -> None:
    """A watch that is open delivers."""
    _put(audit.Audit, "_audit", _nothing)


def _gives_up() -> None:
    """What failed once is not tried again."""
    _put(workqueue.WorkQueue, "retry", lambda self, key: 0.0)


def _two_rendezvous() -> None:
    """Each replica has an idea of its own of who its peers are."""
    build = objects.build_pod

    def alone(job: Any, topology: Any, replica: Any, **options: Any) -> Any:
        known = {one: address for one, address in options["addresses"].items() if not replica.index}
        return build(job, topology, replica, **{**options, "addresses": known or _only(options["addresses"])})

    _put(objects, "build_pod", alone)


def _only(addresses: Mapping[Any, str]) -> Mapping[Any, str]:
    return {one: address.replace(":2222", ":2223") for one, address in addresses.items()}


BROKEN: tuple[Broken, ...] = (
    Broken("no-write-ahead", _no_write_ahead, "scenario=create", "An attempt stands in the status before its first"),
    Broken("no-barrier", _no_barrier, "scenario=resize", "while one of another attempt exists"),
    Broken("charges-disruptions", _charges_disruptions, "scenario=disruption", "1 restarts and 1 disruptions more"),
    Broken("adopts", _adopts, "scenario=name-taken", "Nothing of another owner is touched"),
    Broken("knows-owners-by-name", _knows_owners_by_name, "scenario=recreate", "holds: expected {Blocked: NameTaken}"),
    Broken("takes-strangers", _takes_strangers, "scenario=create", "Nothing of another owner is touched"),
    Broken(
        "forces-the-status",
        _forces_the_status,
        "scenario=succeed call=update:qmljobs/qcnn/status@2 fault=rival seconds=4",
        "a job that has ended stays so",
    ),
    Broken(
        "deletes-by-name",
        _deletes_by_name,
        "scenario=ps call=delete:pods/qcnn-worker-0@1 fault=kill-late seconds=4",
        "disruptions",
    ),
    Broken(
        "takes-conflicts-for-the-end",
        _takes_conflicts_for_the_end,
        "scenario=succeed call=delete:services/qcnn-worker-0@1 fault=409",
        "services: expected [], is [worker-0]",
    ),
    Broken("never-completes", _never_completes, "scenario=disruption", "status.gang.complete: expected true"),
    Broken("never-finishes", _never_finishes, "scenario=succeed", "does not come to rest"),
    Broken("charges-twice", _charges_twice, "scenario=fail", "2 restarts and 0 disruptions more"),
    Broken("forgets-when-suspended", _forgets_when_suspended, "scenario=suspend", "never go down"),
    Broken("no-timers", _no_timers, "scenario=deadline", "phase: expected Failed"),
    Broken("ttl-without-timer", _ttl_without_timer, "scenario=ttl", "exists: expected False"),
    Broken("no-audit", _no_audit, "scenario=disruption call=watch:pods@1 fault=stall", "phase: expected Running"),
    Broken("gives-up", _gives_up, "scenario=create call=update:qmljobs/qcnn/status@1 fault=503", "phase: expected Run"),
    Broken("two-rendezvous", _two_rendezvous, "scenario=create", "have the same peers in TF_CONFIG"),
)
PATCHES: Mapping[str, Patch] = {each.name: each.patch for each in BROKEN}
