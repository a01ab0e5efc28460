"""The hurried operator with a short patience with itself, and with a bug: passes over some jobs begin and never end.

python -m support.impatient_operator …                # takes the operator's own flags
"""

import asyncio
import sys
from typing import Any

from qmljob_operator import __main__ as program
from qmljob_operator.controller import audit, health
from qmljob_operator.controller.reconcile import Reconciler
from qmljob_operator.controller.workqueue import JobKey
from support import hurried_operator

WEDGE = "wedge"
"""How the name of a job begins whose passes never end."""
STALLED_SECONDS = 2.0
AUDIT_SECONDS = 2.0
GRACE_SECONDS = 0.5


def be_impatient() -> None:
    """Shortens the times after which the operator calls itself ill."""
    health.STALLED_SECONDS = STALLED_SECONDS
    audit.AUDIT_SECONDS = AUDIT_SECONDS
    audit.GRACE_SECONDS = GRACE_SECONDS


def wedge() -> None:
    """Puts the bug in."""
    sound = Reconciler.reconcile

    async def reconcile(self: Reconciler, key: JobKey) -> Any:
        if key.name.startswith(WEDGE):
            await asyncio.Event().wait()
        return await sound(self, key)

    Reconciler.reconcile = reconcile  # type: ignore[method-assign]


if __name__ == "__main__":
    hurried_operator.hurry()
    be_impatient()
    wedge()
    sys.exit(program.main())
