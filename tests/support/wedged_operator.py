"""The hurried operator with a bug: each pass over a job whose name is `wedge` begins and never ends.

python -m support.wedged_operator …                # takes the operator's own flags
"""

import asyncio
import sys
from typing import Any

from qmljob_operator import __main__ as program
from qmljob_operator.controller import health
from qmljob_operator.controller.reconcile import Reconciler
from qmljob_operator.controller.workqueue import JobKey
from support import hurried_operator

NAME = "wedge"
STALLED_SECONDS = 2.0
"""In the place of two minutes."""


def wedge() -> None:
    """Puts the bug in."""
    sound = Reconciler.reconcile

    async def reconcile(self: Reconciler, key: JobKey) -> Any:
        if key.name.startswith(NAME):
            await asyncio.Event().wait()
        return await sound(self, key)

    Reconciler.reconcile = reconcile  # type: ignore[method-assign]
    health.STALLED_SECONDS = STALLED_SECONDS


if __name__ == "__main__":
    hurried_operator.hurry()
    wedge()
    sys.exit(program.main())
