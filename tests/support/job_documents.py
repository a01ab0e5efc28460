"""Documents of jobs and statuses, drawn for property tests: valid ones, and what damages them."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.reasons import Reason
from qmljob_api.status import (
    AttemptRecord,
    Condition,
    Gang,
    JobStatus,
    LastFailure,
    ProgressStatus,
    Replacing,
    ReplicaStatus,
    ResultsStatus,
)
from qmljob_api.testing import manifest
from qmljob_api.timestamps import format_time
from qmljob_api.types import (
    MAX_SECONDS,
    CleanPodPolicy,
    CodeOperator,
    FailureAction,
    Role,
    SuccessPolicy,
)

Document = dict[str, Any]

_JUNK_TEXTS = ["", "x", "A b", "é", "rendezvous", "123", "a" * 64, "1", "true"]
_JUNK_NUMBERS = [0, -1, 1, 2, 3, 69, 300, 1.5, 2222, 70000, 2**31, 2**40]
_JUNK_BRANCHES: list[Any] = [[], {}, ["x"], [1, 1], {"x": 1}, [{}]]
# Fresh ones, since what is drawn may itself be changed.
JUNK = st.sampled_from([*_JUNK_TEXTS, *_JUNK_NUMBERS, True, False, *_JUNK_BRANCHES]).map(copy.deepcopy)
"""Values of every kind and size that a place of a manifest may be wrong with; in another place each may be right."""

_NAMES = st.sampled_from(["trainer", "tensorflow", "sidecar", "a", "x-1"])
_SECONDS = st.integers(1, MAX_SECONDS)


def _optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    return st.fixed_dictionaries({}, optional=fields)


def _templates() -> st.SearchStrategy[Document]:
    container = st.fixed_dictionaries(
        {"name": _NAMES},
        optional={"image": st.just("i"), "command": st.just(["python"]), "env": st.just([{"name": "A", "value": "b"}])},
    )
    spec = st.fixed_dictionaries(
        {"containers": st.lists(container, min_size=1, max_size=3, unique_by=lambda item: item["name"])},
        optional={
            "restartPolicy": st.just("Never"),
            "nodeSelector": st.just({"a": "b"}),
            "securityContext": st.just({"runAsUser": 1000}),
        },
    )
    metadata = _optional(labels=st.just({"team": "qml"}), annotations=st.just({"note": "x"}))
    return st.fixed_dictionaries({"spec": spec}, optional={"metadata": metadata})


def _replicas(most: int) -> st.SearchStrategy[Document]:
    return st.fixed_dictionaries({"template": _templates()}, optional={"replicas": st.integers(1, most)})


@st.composite
def jobs(draw: st.DrawFn) -> Document:
    """Draws a manifest that is right."""
    leader = draw(st.sampled_from([Role.CHIEF, Role.WORKER]))
    roles = {leader.value: _replicas(1 if leader is Role.CHIEF else 120)}
    more = {"ps": _replicas(12), "worker": _replicas(12), "evaluator": _replicas(1)}
    codes = st.lists(st.integers(1, 255).filter(lambda code: code != 69), min_size=1, max_size=4, unique=True)
    on_codes = st.fixed_dictionaries(
        {"values": codes},
        optional={
            "operator": st.sampled_from(CodeOperator).map(str),
            "roles": st.lists(st.sampled_from(Role).map(str), min_size=1, max_size=4),
        },
    )
    rule = st.fixed_dictionaries({"onExitCodes": on_codes, "action": st.sampled_from(FailureAction).map(str)})
    port = st.fixed_dictionaries({"name": st.sampled_from(["profiler", "http", "a-1"]), "port": st.integers(1, 2221)})
    spec = _optional(
        suspend=st.booleans(),
        runPolicy=_optional(
            backoffLimit=st.integers(0, 10_000),
            activeDeadlineSeconds=_SECONDS,
            startupDeadlineSeconds=_SECONDS,
            ttlSecondsAfterFinished=st.integers(0, MAX_SECONDS),
            cleanPodPolicy=st.sampled_from(CleanPodPolicy).map(str),
            unreachableSeconds=_SECONDS,
            forceDeleteUnreachable=st.booleans(),
        ),
        successPolicy=st.sampled_from(SuccessPolicy).map(str),
        failurePolicy=_optional(rules=st.lists(rule, max_size=3)),
        port=st.integers(2222, 65535),
        ports=st.lists(port, max_size=3, unique_by=(lambda item: item["name"], lambda item: item["port"])),
        inference=st.fixed_dictionaries({"template": _templates()}),
    )
    optional = {role: strategy for role, strategy in more.items() if role != leader.value}
    specs = st.fixed_dictionaries(roles, optional=optional)
    # The longest of these names are too long for some of what is made from them.
    name = draw(st.sampled_from(["qcnn", "a", "q-1", "qcnn-8", "q8", "a" * 40, "a" * 46, "a" * 47, "a" * 52, "a" * 53]))
    return copy.deepcopy(manifest({"name": name}, **draw(spec), replicaSpecs=draw(specs)))


@st.composite
def damaged_jobs(draw: st.DrawFn) -> Document:
    """Draws a manifest with one or two changes, each of which may be for the worse: a value, a field less or more."""
    document = draw(jobs())
    for _ in range(draw(st.integers(1, 2))):
        change = draw(st.sampled_from(["replace", "replace", "replace", "overturn", "remove", "add"]))
        places = list(_places(document["spec"], depth=draw(st.sampled_from([0, 0, 0, 4]))))
        if change == "replace":
            # What replaces a whole branch is refused for its kind alone.
            places = [(parent, key) for parent, key in places if not isinstance(parent[key], dict | list)]
        if not places:
            continue
        parent, key = draw(st.sampled_from(places))
        if change in ("replace", "overturn"):
            parent[key] = draw(JUNK)
        elif change == "remove":
            del parent[key]
        elif isinstance(parent, dict):
            parent[draw(st.sampled_from(["unknown", "replicas", "name", "port", "worker"]))] = draw(JUNK)
    return document


_KNOWN = ("metadata", "labels", "spec", "restartPolicy", "containers", "name")


def _places(value: Any, depth: int, level: int | None = None) -> Iterator[tuple[Any, Any]]:
    """Yields (parent, key) of each place that the API's own types speak of.

    That is little of a pod template's inside; `depth` is how far to go into one, `level` how far it went.
    """
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        if level is None or (level < depth and (isinstance(key, int) or key in _KNOWN)):
            yield value, key
            inner = 0 if key == "template" else None if level is None else level + 1
            yield from _places(item, depth, inner)


_TIMES = st.integers(0, 4_000_000_000).map(format_time)
_COUNTS = st.integers(0, 1000)
_REPLICAS = st.sampled_from(["qcnn-worker-0", "qcnn-worker-1", "qcnn-evaluator-0"])
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=30) | st.just("x" * 5000)
_NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False)
_REASONS = st.sampled_from(Reason).map(str)


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def _tuples(strategy: st.SearchStrategy[Any], **options: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, **options).map(tuple)


_CONDITIONS = st.builds(
    Condition,
    type=st.sampled_from(ConditionType),
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=_REASONS,
    message=_TEXTS,
    observed_generation=_maybe(_COUNTS),
    last_transition_time=_maybe(_TIMES),
)


def statuses() -> st.SearchStrategy[JobStatus]:
    """Statuses that an operator may write; a job that both succeeded and failed is not among them."""
    gang = st.builds(
        Gang,
        attempt=_COUNTS,
        generation=_COUNTS,
        fingerprint=st.just("0123abcd"),
        roles=st.dictionaries(st.sampled_from(Role), _COUNTS),
        complete=st.booleans(),
        startTime=_TIMES,
        succeeded=_tuples(_REPLICAS, max_size=3),
        replacing=_tuples(st.builds(Replacing, replica=_REPLICAS, uid=st.just("u"), time=_TIMES), max_size=2),
    )
    numbers = dict.fromkeys(("loss", "sign_accuracy", "val_loss", "learning_rate", "seconds"), _NUMBERS)
    progress = st.builds(ProgressStatus, attempt=_maybe(_COUNTS), epoch=_maybe(_COUNTS), time=_maybe(_TIMES), **numbers)
    results = st.builds(ResultsStatus, artifact=_TEXTS, mse=_NUMBERS, fresh_seed=_maybe(_COUNTS), time=_maybe(_TIMES))
    failure = st.builds(
        LastFailure,
        replica=_REPLICAS,
        attempt=_COUNTS,
        exit_code=_maybe(st.integers(0, 255)),
        reason=_REASONS,
        message=_TEXTS,
        time=_maybe(_TIMES),
    )
    record = st.builds(
        AttemptRecord,
        attempt=_COUNTS,
        reason=_REASONS,
        charged=st.booleans(),
        replica=_maybe(_REPLICAS),
        message=_TEXTS,
        time=_maybe(_TIMES),
    )
    replica_status = st.builds(ReplicaStatus, replicas=_COUNTS, running=_COUNTS, succeeded=_COUNTS, failed=_COUNTS)
    return st.builds(
        JobStatus,
        observed_generation=_maybe(_COUNTS),
        phase=_maybe(st.sampled_from(Phase)),
        conditions=_tuples(_CONDITIONS, max_size=4, unique_by=lambda condition: condition.type).filter(_one_end),
        start_time=_maybe(_TIMES),
        completion_time=_maybe(_TIMES),
        attempt=_maybe(_COUNTS),
        restarts=_COUNTS,
        disruptions=_COUNTS,
        lost_peer_attempts=_COUNTS,
        gang=_maybe(gang),
        next_attempt_time=_maybe(_TIMES),
        replicas=_COUNTS,
        selector=st.just("qml.dev/job=qcnn"),
        ready=st.just("1/2"),
        replica_statuses=st.dictionaries(st.sampled_from(Role), replica_status),
        progress=_maybe(progress),
        results=_maybe(results),
        last_failure=_maybe(failure),
        history=_tuples(record, max_size=7),
    )


def _one_end(conditions: tuple[Condition, ...]) -> bool:
    ends = (ConditionType.SUCCEEDED, ConditionType.FAILED)
    return sum(condition.type in ends and condition.status == "True" for condition in conditions) < 2
