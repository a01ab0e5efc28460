"""The program's own errors. Each is one line that says what is wrong and what to do, and knows its exit code."""

from qmljob_api.exitcodes import ExitCode


class ProgramError(Exception):
    """Ends the program with `exit_code` and its message, without a traceback."""

    exit_code: ExitCode


class ConfigurationError(ProgramError):
    """Flags or environment that can't work as given."""

    exit_code = ExitCode.INVALID_CONFIGURATION


class BadArtifactError(ProgramError):
    """An artifact or checkpoint that is missing, damaged, or of another model."""

    exit_code = ExitCode.BAD_ARTIFACT


class LostPeerError(ProgramError):
    """Another replica went away, or never came."""

    exit_code = ExitCode.LOST_PEER


class PreemptedError(ProgramError):
    """SIGTERM was answered: the run can be resumed from its checkpoint."""

    exit_code = ExitCode.PREEMPTED
