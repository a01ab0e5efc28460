"""The program's own errors. Each is one line that says what is wrong and what to do, and knows its exit code."""

from qmljob_api.exitcodes import ExitCode

MESSAGE_LIMIT = 2000
"""Characters of a message that quotes what it is about."""


class ProgramError(Exception):
    """Ends the program with `exit_code` and its message, without a traceback."""

    exit_code: ExitCode


class ConfigurationError(ProgramError):
    """Flags or environment that can't work as given."""

    exit_code = ExitCode.INVALID_CONFIGURATION


class BadArtifactError(ProgramError):
    """An artifact or checkpoint that is missing, damaged, or of another model.

    Its message may quote what stands there, which anybody may have written: it stays one line of printable text.
    """

    exit_code = ExitCode.BAD_ARTIFACT

    def __init__(self, message: str) -> None:
        line = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in message)
        super().__init__(line if len(line) <= MESSAGE_LIMIT else f"{line[: MESSAGE_LIMIT - 1]}…")


class LostPeerError(ProgramError):
    """Another replica went away, or never came."""

    exit_code = ExitCode.LOST_PEER


class PreemptedError(ProgramError):
    """SIGTERM was answered: the run can be resumed from its checkpoint."""

    exit_code = ExitCode.PREEMPTED
