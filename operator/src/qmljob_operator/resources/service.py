"""A replica's Service: the stable name under which its peers find it."""

from typing import Any

from qmljob_api import names
from qmljob_api.types import QMLJob
from qmljob_operator.resources import common
from qmljob_operator.topology import Replica


def build_service(job: QMLJob, replica: Replica) -> dict[str, Any]:
    """Returns the headless v1 Service of a replica, with the rendezvous and all of `spec.ports`.

    It publishes an address that is not ready yet, since replicas must meet before any of them can be ready. The
    selector leaves the attempt out, so that the Service outlives restarts.
    """
    selector = {
        names.LABEL_JOB: job.metadata.name,
        names.LABEL_ROLE: replica.role.value,
        names.LABEL_INDEX: str(replica.index),
    }
    numbers = {names.RENDEZVOUS_PORT_NAME: job.spec.port, **{port.name: port.port for port in job.spec.ports}}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": common.metadata(job, replica.name, {**common.labels(job, replica.role.value), **selector}),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector,
            "ports": [
                {"name": name, "port": number, "targetPort": number, "protocol": "TCP"}
                for name, number in numbers.items()
            ],
        },
    }
