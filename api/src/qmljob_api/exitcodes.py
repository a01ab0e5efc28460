"""Exit codes of the worker and inference programs.

They are API: failure rules in a QMLJob name them, and the operator's default rules act on them. The numbers follow
BSD's sysexits.h where a name fits, and stay clear of 1 and 2 (any Python program) and 126-165 (shells and signals).
"""

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """How a QMLJob program ended, with a sentence on when it does."""

    sentence: str

    def __new__(cls, value: int, sentence: str = "") -> Self:
        """Keeps the sentence beside the number."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member

    SUCCESS = 0, "The work is done."
    INVALID_CONFIGURATION = (
        64,
        "The flags, TF_CONFIG or store can't work as given: the same start would fail again, so the job fails.",
    )
    BAD_ARTIFACT = 65, "The artifact or checkpoint is missing, damaged, or of another model: the job fails."
    LOST_PEER = 69, "Another replica went away. Never a root cause: some other replica's end explains it."
    STORE_FAILED = (
        74,
        "The store refused a read or write in the middle of a run (full disk, bucket away): worth another attempt.",
    )
    PREEMPTED = 75, "SIGTERM was answered by a checkpoint and a clean exit; not charged."


def describe(code: int) -> str:
    """Returns a short phrase for an exit code, as a person would say it (`137` -> `killed by SIGKILL`)."""
    try:
        return ExitCode(code).name.lower().replace("_", " ")
    except ValueError:
        pass
    if code < 0 or 128 < code <= 165:
        return f"killed by {_signal_name(-code if code < 0 else code - 128)}"
    return f"exit code {code}"


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
