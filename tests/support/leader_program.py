"""A candidate for a lease, as a process: it says what it is, and when it was last allowed to write.

    python -m support.leader_program KUBECONFIG NAMESPACE IDENTITY RENEW LEASE RETRY

Each line of its output is JSON: {"is": "leading", "at": …} and {"is": "stopped", "at": …, "wrote": …} with times of a
clock that all processes of a machine share; {"is": "lost", "why": …} at the end, or {"is": "ended"} after SIGTERM.
"""

import asyncio
import json
import signal
import sys
from contextlib import suppress

from kubernetes.aio import config

from qmljob_operator.controller.leader import Leadership, LeaseLost, NotLeading, boot_clock, lead

_WRITE_SECONDS = 0.02


def main() -> None:
    kubeconfig, namespace, identity, renew, lease, retry = sys.argv[1:]
    asyncio.run(run(kubeconfig, namespace, identity, float(renew), int(lease), float(retry)))


async def run(kubeconfig: str, namespace: str, identity: str, renew: float, lease: int, retry: float) -> None:
    leadership = Leadership(renew_seconds=renew)

    async def work() -> None:
        say("leading", at=boot_clock())
        wrote = 0.0
        try:
            while True:
                with suppress(NotLeading):
                    now = boot_clock()
                    leadership.check()
                    wrote = now
                await asyncio.sleep(_WRITE_SECONDS)
        finally:
            say("stopped", at=boot_clock(), wrote=wrote)

    async with await config.new_client_from_config(kubeconfig) as client:
        leading = asyncio.create_task(
            lead(
                client,
                leadership,
                namespace=namespace,
                name="operator",
                identity=identity,
                on_started=work,
                lease_seconds=lease,
                retry_seconds=retry,
            )
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leading.cancel)
        say("ready")
        try:
            await leading
        except LeaseLost as lost:
            say("lost", why=str(lost))
        except asyncio.CancelledError:
            say("ended")


def say(what: str, **fields: object) -> None:
    print(json.dumps({"is": what, **fields}), flush=True)


if __name__ == "__main__":
    main()
