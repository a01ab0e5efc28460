"""The operator in a hurry: where it waits tens of seconds for company on a cluster, it waits a moment here.

Run as `python -m support.hurried_operator FLAGS` in the place of `python -m qmljob_operator FLAGS`. Nothing but these
times differs; a time that is no longer where this file looks for it is an error.
"""

import functools
import sys
from collections.abc import Callable
from types import ModuleType

from qmljob_operator import __main__ as program
from qmljob_operator import policy
from qmljob_operator.controller import audit, leader, memory, reconcile, writer
from qmljob_operator.planning import attempts, finished, objects

SETTLE_SECONDS = 3.0
"""Times on a pod are to the second, so this is the shortest that is not over before it has begun."""
BACKOFF_SECONDS = 1.0
PATIENCE_SECONDS = 0.2
TIMES: tuple[tuple[ModuleType, str, object], ...] = (
    (attempts, "SETTLE_SECONDS", SETTLE_SECONDS),
    (audit, "PING_SECONDS", 1.0),
    (attempts, "PROGRESS_SECONDS", 0.5),
    (reconcile, "PROGRESS_SECONDS", 0.5),
    (writer, "PATIENCE_SECONDS", PATIENCE_SECONDS),
    (memory, "REFUSED_SECONDS", (0.2, 0.5)),
    (finished, "LINGER_SECONDS", 1.0),
    (finished, "RESULT_SECONDS", 1.0),
    (objects, "RESTART_GRACE_SECONDS", 1),
    (objects, "OVERDUE_SECONDS", 1.0),
    (objects, "FORCE_AFTER_SECONDS", 2),
    (objects, "FOREIGN_SECONDS", 0.5),
)
AUDIT_TIMES: tuple[tuple[ModuleType, str, object], ...] = (
    (audit, "AUDIT_SECONDS", 4.0),
    (audit, "GRACE_SECONDS", 1.0),
)
"""How soon a stream that lacks something is noticed: for tests of streams; a list costs more than it is worth else."""
DEFAULTS: tuple[tuple[Callable[..., object], str, float], ...] = (
    (leader.Leadership.__init__, "renew_seconds", 4.0),
    (leader.lead, "lease_seconds", 5),
    (leader.lead, "retry_seconds", 1.0),
)
"""Times that are the defaults of parameters. The lease is long enough for a machine that is busy with other tests."""


def hurry(*, audits: bool = False) -> None:
    """Shortens the times of this process, those of its audits where that is asked for."""
    for function, name, value in DEFAULTS:
        defaults = getattr(function, "__kwdefaults__", None) or {}
        if name not in defaults:
            raise AttributeError(f"{function.__qualname__} has no default of {name}: look where it went")
        defaults[name] = value
    for module, name, value in (*TIMES, *(AUDIT_TIMES if audits else ())):
        if not hasattr(module, name):
            raise AttributeError(f"{module.__name__} has no {name}: look where it went")
        setattr(module, name, value)
    attempts.decide = functools.partial(policy.decide, backoff_base=BACKOFF_SECONDS)  # type: ignore[assignment]


if __name__ == "__main__":
    hurry()
    sys.exit(program.main())
