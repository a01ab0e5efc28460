"""Faults as data: what happens to which call. One prints as words on one line, and is read from them again.

call=update:qmljobs/qcnn/status@2 fault=lose-answer
call=watch:pods@1 fault=skip event=3
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from support.injector.calls import Call, parse_call


class FaultKind(StrEnum):
    """What happens to a call."""

    LOSE = "lose"
    """It is not served, and its connection ends."""
    LOSE_ANSWER = "lose-answer"
    """It is served, and its connection ends before the answer."""
    CONFLICT = "409"
    """It is not served; the answers are those of an API server."""
    BUSY = "429"
    BROKEN = "500"
    UNAVAILABLE = "503"
    TIMEOUT = "timeout"
    """It is not served, and nothing is answered."""
    DELAY = "delay"
    """It is served late."""
    KILL_BEFORE = "kill-before"
    """The client is killed, and the call is not served."""
    KILL_AFTER = "kill-after"
    """The call is served, and the client is killed before the answer."""
    KILL_LATE = "kill-late"
    """The client is killed, and the call arrives later, when another one is at work."""
    RIVAL = "rival"
    """Another client begins to work, and the call arrives later: each takes itself for the only one."""
    STALL = "stall"
    """A watch: nothing comes any more, and nobody says so."""
    CLOSE = "close"
    """A watch: it ends."""
    REPLAY = "replay"
    """A watch: everything comes again."""
    SKIP = "skip"
    """A watch: events are lost."""
    GONE = "410"
    """A watch: the version that it began at is too old."""


CRASHES = (FaultKind.LOSE, FaultKind.LOSE_ANSWER, FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER)
"""What a crash or a cut connection does to a call."""
ANSWERS = (FaultKind.CONFLICT, FaultKind.BUSY, FaultKind.BROKEN, FaultKind.UNAVAILABLE, FaultKind.TIMEOUT)
"""What an API server in trouble answers."""
WATCH_FAULTS = (FaultKind.STALL, FaultKind.CLOSE, FaultKind.REPLAY, FaultKind.SKIP, FaultKind.GONE)
_DEFAULT_SECONDS = 2.0
_DEFAULT_COUNT = 2


@dataclass(frozen=True)
class Fault:
    """What happens to one call.

    Attributes:
        call: which one.
        kind: what.
        seconds: how late, for `delay`, `kill-late` and `rival`.
        event: after how many events of a watch it strikes.
        count: how many events `skip` loses.
    """

    call: Call
    kind: FaultKind
    seconds: float = _DEFAULT_SECONDS
    event: int = 0
    count: int = _DEFAULT_COUNT

    def __post_init__(self) -> None:
        """Refuses a watch's fault for another call, and the other way round."""
        if (self.kind in WATCH_FAULTS) is not self.call.is_watch:
            raise ValueError(f"fault={self.kind} is not for call={self.call}")

    def __str__(self) -> str:
        """Returns the fault as words; those that are as usual are left out."""
        more = {"seconds": (self.seconds, _DEFAULT_SECONDS), "event": (self.event, 0)}
        more["count"] = (self.count, _DEFAULT_COUNT)
        said = [f" {name}={value:g}" for name, (value, usual) in more.items() if value != usual]
        return f"call={self.call} fault={self.kind}{''.join(said)}"


def parse_fault(words: Mapping[str, str]) -> Fault:
    """Returns the fault that words (`call`, `fault`, …) stand for.

    Raises:
        ValueError: a word is missing or wrong.
    """
    unknown = words.keys() - {"call", "fault", "seconds", "event", "count"}
    if unknown or not {"call", "fault"} <= words.keys():
        raise ValueError(f"{words}: give call= and fault=, and seconds=, event= or count=, nothing else")
    try:
        kind = FaultKind(words["fault"])
    except ValueError:
        raise ValueError(f"fault={words['fault']}: there are {', '.join(FaultKind)}") from None
    return Fault(
        parse_call(words["call"]),
        kind,
        float(words.get("seconds", _DEFAULT_SECONDS)),
        int(words.get("event", 0)),
        int(words.get("count", _DEFAULT_COUNT)),
    )


def parse_words(line: str) -> dict[str, str]:
    """Returns the words `name=value` of a line.

    Raises:
        ValueError: a word is none of these.
    """
    words = [word.partition("=") for word in line.split()]
    wrong = [name for name, mark, value in words if not (name and mark and value)]
    if wrong:
        raise ValueError(f"{wrong[0]}: write name=value")
    return {name: value for name, _, value in words}


@dataclass(frozen=True)
class Noise:
    """Faults at random calls: a share of all calls of some kinds. The seed and a call decide, so it can be repeated."""

    seed: int
    share: float
    kinds: tuple[FaultKind, ...] = (*CRASHES[:2], *ANSWERS[1:4], FaultKind.DELAY)

    def fault_of(self, call: Call) -> Fault | None:
        """Returns what happens to a call."""
        chance = random.Random(f"{self.seed} {call}")
        if call.is_watch or chance.random() >= self.share:
            return None
        return Fault(call, chance.choice(self.kinds), seconds=round(chance.uniform(0.05, 1.0), 2))
