"""What is remembered of a job between passes, and what a refusal means for the next one."""

from collections.abc import Awaitable
from dataclasses import dataclass, field, replace

from qmljob_operator.controller.cluster import TransientError
from qmljob_operator.observation import Answer, Verdict

REFUSED_SECONDS = (5.0, 60.0)
"""The shortest and the longest time between two tries of what the API server refuses; each is twice the one before."""
NEVER_SECONDS = 24 * 3600.0
"""For what can never be created as it is: an edit of the job makes it another question, and forgets this answer."""
SILENT_TRIES = 3
"""After how many failed passes a user is told that there is no answer: a webhook may be away for days."""


@dataclass(slots=True)
class Memory:
    """What is remembered of a job between passes. All of it may be lost: it saves requests, and decides nothing.

    Attributes:
        uid: of the job; another job of the same name starts with an empty memory.
        generation: the one that the answers below are about.
        dry_run: the last answer to a dry run.
        refused: why an object could not be created.
        refusals: how many in a row there were.
        first_seen: when the end of a pod was first seen, by the pod's uid.
    """

    uid: str
    generation: int
    dry_run: Answer | None = None
    refused: Answer | None = None
    refusals: int = 0
    first_seen: dict[str, float] = field(default_factory=dict)
    status_written_at: float = 0.0
    progress_asked_at: float = 0.0

    def timed(self, answer: Answer, now: float) -> Answer:
        """Returns an answer, and where it is a refusal with the time of the next try."""
        if answer.verdict is Verdict.ACCEPTED:
            self.refusals = 0
            return answer
        shortest, longest = REFUSED_SECONDS
        delay = min(longest, shortest * 2.0**self.refusals) if answer.verdict is not Verdict.INVALID else NEVER_SECONDS
        self.refusals = min(self.refusals + 1, 16)
        return replace(answer, retry_at=now + delay)


async def or_blocked(asking: Awaitable[Answer], failures: int) -> Answer:
    """Returns the answer. A server that has failed to give one for long is a refusal: its user is told so.

    Raises:
        TransientError: there was no answer, and not for long: so many passes before failed, too.
    """
    try:
        return await asking
    except TransientError as error:
        if failures < SILENT_TRIES:
            raise
        return Answer(Verdict.FORBIDDEN, f"no answer from the API server, which is asked again: {error}")
