"""`python -m qmljob_operator`: runs QMLJobs on a Kubernetes cluster."""

import asyncio
import logging
import sys

from kubernetes.aio.config import ConfigException

from qmljob_operator.controller.handlers import WatchFailed
from qmljob_operator.controller.leader import LeaseLost
from qmljob_operator.controller.logs import configure
from qmljob_operator.controller.parallel import PARALLEL_REQUESTS
from qmljob_operator.controller.program import Program, connect
from qmljob_operator.controller.settings import Settings, parse_settings

logger = logging.getLogger("qmljob_operator")


def main() -> int:
    """Runs the operator; returns its exit code."""
    settings = parse_settings(sys.argv[1:])
    configure(settings.log_format, settings.log_level)
    try:
        asyncio.run(_run(settings))
    except ConfigException as error:
        logger.error("no credentials for a cluster: %s; run in a pod, or set KUBECONFIG", error)
        return 1
    except (LeaseLost, WatchFailed) as error:
        logger.error("stopping: %s", error)
        return 1
    return 0


async def _run(settings: Settings) -> None:
    connections = settings.workers * PARALLEL_REQUESTS + 16
    async with await connect(connections) as client, await connect(2) as lease_client:
        await Program(settings, client, lease_client).run()


if __name__ == "__main__":
    sys.exit(main())
