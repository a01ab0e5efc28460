"""A plan: the status to write and the objects to delete and create, or what must be known first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from qmljob_api.reasons import Reason
from qmljob_api.status import JobStatus
from qmljob_operator.kinds import Kind


class Total(StrEnum):
    """The counters that a plan moves."""

    CREATED = "created"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RESTARTED = "restarted"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a person should know. `note` is a whole sentence and needs no other source to be understood."""

    reason: Reason
    note: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """One more on a counter."""

    total: Total
    reason: str = ""
    charged: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """A deletion of exactly this object. `grace_seconds` None: its own grace."""

    kind: Kind
    name: str
    uid: str
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Relabel:
    """A pod whose labels somebody edited, and the labels that it must have."""

    name: str
    uid: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pass writes: the status first, then deletions, then repairs and creations; events after the status.

    Attributes:
        status: as it should be; equal to the observed one where nothing is to be written.
        urgent: whether the status says more than progress and counts of replicas, which can wait a few seconds.
        repairs: Services and the NetworkPolicy as they should be; they exist, and somebody edited them.
        wake_at: when to look again if nothing happens before, in seconds; None: at the next event.
    """

    status: JobStatus
    urgent: bool = False
    events: tuple[Event, ...] = ()
    counts: tuple[Count, ...] = ()
    deletes: tuple[Delete, ...] = ()
    relabels: tuple[Relabel, ...] = ()
    repairs: tuple[Mapping[str, Any], ...] = ()
    creates: tuple[Mapping[str, Any], ...] = ()
    wake_at: float | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """What must be read before there can be a plan.

    Attributes:
        nodes: names of nodes.
        dry_run: whether the API server would take the job's pods.
        log_of: a pod, whose last lines are wanted.
    """

    nodes: frozenset[str] = field(default_factory=frozenset)
    dry_run: bool = False
    log_of: str = ""
