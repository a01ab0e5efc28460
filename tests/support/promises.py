"""What holds for every job at every time, read from what happened: the operator's promises, whatever the story.

Each check takes the happenings in a namespace in their order and returns sentences on what broke the promise.
"""

from collections.abc import Callable, Iterator, Sequence

from qmljob_api import names
from qmljob_api.conditions import ConditionType
from qmljob_api.status import JobStatus, parse_status
from qmljob_api.types import RunPolicy
from support.pod_promises import (
    an_attempt_has_one_rendezvous,
    attempts_do_not_overlap,
    created,
    one_pod_a_replica,
    owner_of,
)
from support.timeline import Happening

_BACKOFF_LIMIT = RunPolicy().backoff_limit
_FINAL = (ConditionType.SUCCEEDED, ConditionType.FAILED)


def broken_promises(happenings: Sequence[Happening]) -> list[str]:
    """Returns a sentence for each promise that was broken, and where."""
    return [f"{check.__doc__} {sentence}" for check in _CHECKS for sentence in check(happenings)]


def _statuses(happenings: Sequence[Happening]) -> Iterator[tuple[Happening, JobStatus, JobStatus]]:
    """Yields each change of a job with the status before and after it."""
    last: dict[str, JobStatus] = {}
    for each in happenings:
        if each.kind == names.PLURAL and each.type != "DELETED":
            status = parse_status(each.object.get("status"))
            yield each, last.get(each.uid, JobStatus()), status
            last[each.uid] = status


def _attempt_never_goes_down(happenings: Sequence[Happening]) -> Iterator[str]:
    """status.attempt never goes down, and is never lost."""
    for each, before, after in _statuses(happenings):
        if before.attempt is not None and (after.attempt is None or after.attempt < before.attempt):
            yield f"{each.name} at revision {each.revision}: {before.attempt}, then {after.attempt}"


def _attempts_are_written_ahead(happenings: Sequence[Happening]) -> Iterator[str]:
    """An attempt stands in the status before its first pod is created."""
    written: dict[str, int] = {}
    for each in happenings:
        if each.kind == names.PLURAL:
            written[each.uid] = max(written.get(each.uid, -1), _or(parse_status(each.object.get("status")).attempt, -1))
        elif (attempt := created(each)) is not None and attempt > written.get(owner_of(each.object), -1):
            yield f"{each.name} of attempt {attempt} was created at revision {each.revision}"


def _a_complete_gang_gets_no_pod(happenings: Sequence[Happening]) -> Iterator[str]:
    """Once gang.complete is written, no pod of the attempt is created, replicas that are replaced alone aside."""
    known: dict[str, JobStatus] = {}
    for each in happenings:
        if each.kind == names.PLURAL:
            known[each.uid] = parse_status(each.object.get("status"))
        elif (attempt := created(each)) is not None:
            gang = known.get(owner_of(each.object), JobStatus()).gang
            complete = gang is not None and gang.complete and gang.attempt == attempt
            if gang and complete and all(entry.replica != each.name for entry in gang.replacing):
                yield f"{each.name} of attempt {attempt} was created at revision {each.revision}"


def _one_charge_an_attempt(happenings: Sequence[Happening]) -> Iterator[str]:
    """Restarts and disruptions never go down, and go up by one at most with an attempt."""
    for each, before, after in _statuses(happenings):
        charged = after.restarts - before.restarts
        disrupted = after.disruptions - before.disruptions
        if min(charged, disrupted) < 0 or charged + disrupted > 1:
            yield f"{each.name} at revision {each.revision}: {charged} restarts and {disrupted} disruptions more"


def _finished_is_finished(happenings: Sequence[Happening]) -> Iterator[str]:
    """A terminal condition never flips, no other one joins it, and no pod of an attempt is created after it."""
    final: dict[str, frozenset[str]] = {}
    for each in happenings:
        if each.kind == names.PLURAL and each.type != "DELETED":
            status = parse_status(each.object.get("status"))
            now = frozenset(kind.value for kind in _FINAL if status.holds(kind))
            before = final.get(each.uid, frozenset())
            if len(now) > 1 or (before and now != before):
                yield f"{each.name} at revision {each.revision}: {sorted(before)}, then {sorted(now)}"
            final[each.uid] = now
        elif created(each) is not None and final.get(owner_of(each.object)):
            yield f"{each.name} was created at revision {each.revision}"


def _transition_times_tell_of_transitions(happenings: Sequence[Happening]) -> Iterator[str]:
    """A condition's lastTransitionTime moves with its status only."""
    for each, before, after in _statuses(happenings):
        for new in after.conditions:
            old = before.condition(new.type)
            if old and old.status == new.status and old.last_transition_time != new.last_transition_time:
                yield f"{each.name} at revision {each.revision}: {new.type.value}"


def _no_finalizer_is_set(happenings: Sequence[Happening]) -> Iterator[str]:
    """No finalizer on a user's object: an operator that is down must never block a delete."""
    for each in happenings:
        ours = [one for one in each.object["metadata"].get("finalizers") or () if names.GROUP in one]
        if ours:
            yield f"{each.kind} {each.name} at revision {each.revision}: {ours}"


def _restarts_are_limited(happenings: Sequence[Happening]) -> Iterator[str]:
    """No more restarts are charged than runPolicy.backoffLimit allows."""
    for each, _, after in _statuses(happenings):
        limit = (each.object["spec"].get("runPolicy") or {}).get("backoffLimit", _BACKOFF_LIMIT)
        if after.restarts > limit:
            yield f"{each.name} at revision {each.revision}: {after.restarts} of {limit}"


_CHECKS: tuple[Callable[[Sequence[Happening]], Iterator[str]], ...] = (
    _attempt_never_goes_down,
    _attempts_are_written_ahead,
    attempts_do_not_overlap,
    _a_complete_gang_gets_no_pod,
    one_pod_a_replica,
    an_attempt_has_one_rendezvous,
    _one_charge_an_attempt,
    _restarts_are_limited,
    _finished_is_finished,
    _transition_times_tell_of_transitions,
    _no_finalizer_is_set,
)


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value
