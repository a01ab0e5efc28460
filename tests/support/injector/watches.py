"""A watch's events on their way, and what may happen to them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from support.injector.exchange import status_document
from support.injector.faults import Fault, FaultKind

_GONE = json.dumps({"type": "ERROR", "object": status_document(410)}).encode() + b"\n"


class WatchEnds(Exception):
    """The stream ends here."""


@dataclass
class Stream:
    """The events of one watch, and its fault. `passed` are the events that came before it struck."""

    fault: Fault | None
    passed: list[bytes] = field(default_factory=list)
    struck: bool = False
    _rest: bytes = b""
    _lost: int = 0

    def take(self, data: bytes) -> Iterator[bytes]:
        """Takes what the server sent; yields what the client gets.

        Raises:
            WatchEnds: it gets no more.
        """
        if self.fault is None:
            yield data
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield from self._event(self.fault, line + b"\n")

    def _event(self, fault: Fault, line: bytes) -> Iterator[bytes]:
        if not self.struck and len(self.passed) < fault.event:
            self.passed.append(line)
            yield line
            return
        first, self.struck = not self.struck, True
        match fault.kind:
            case FaultKind.STALL:
                return
            case FaultKind.SKIP if self._lost < fault.count:
                self._lost += 1
                return
            case FaultKind.CLOSE:
                raise WatchEnds
            case FaultKind.GONE:
                yield _GONE
                raise WatchEnds
            case FaultKind.REPLAY if first:
                yield from self.passed
        yield line
