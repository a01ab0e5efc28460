"""How a program ends: one line and an exit code, never a traceback for what was to be expected."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from qmljob_api.exitcodes import ExitCode
from qmljob_training.errors import ProgramError
from qmljob_training.stores import Fenced, ObjectNotFound, StoreError, StoreMisconfigured

_STORE_EXIT_CODES: tuple[tuple[type[StoreError], ExitCode], ...] = (
    (StoreMisconfigured, ExitCode.INVALID_CONFIGURATION),
    (ObjectNotFound, ExitCode.BAD_ARTIFACT),
    (Fenced, ExitCode.PREEMPTED),
    (StoreError, ExitCode.STORE_FAILED),
)


def end(program: Callable[[Sequence[str]], None], arguments: Sequence[str]) -> NoReturn:
    """Runs a program and ends the process with its exit code; an expected error is one line on stderr.

    The process ends by `os._exit`: after a peer is lost, TensorFlow's own clean-up may hang or abort.
    """
    try:
        program(arguments)
        code = 0
    except SystemExit as leave:  # --help
        code = leave.code if isinstance(leave.code, int) else 1
    except ProgramError as error:
        code = _report(error, error.exit_code)
    except StoreError as error:
        code = _report(error, next(code for kind, code in _STORE_EXIT_CODES if isinstance(error, kind)))
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except Exception:  # a bug: the traceback is for whoever mends it
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a reader that went away
            stream.flush()
    os._exit(code)


def _report(error: Exception, code: ExitCode) -> int:
    prefix = "" if code is ExitCode.PREEMPTED else "error: "
    print(f"{prefix}{error}", file=sys.stderr)
    return int(code)
