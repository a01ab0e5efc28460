"""Events on a job, as `kubectl describe` shows them."""

import hashlib

from qmljob_api import names
from qmljob_api.timestamps import format_time
from qmljob_operator.observation import Document
from qmljob_operator.planning.plan import Event


def build_event(job: Document, event: Event, *, now: float, instance: str) -> Document:
    """Returns a v1 Event about a job.

    Its name follows from what it says of which job, so that the same news is told once, however often a pass over it is
    made. `instance` names the operator's process.
    """
    metadata = job["metadata"]
    digest = hashlib.sha256("\n".join((metadata["uid"], event.reason.value, event.note)).encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{digest}", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
        "reason": event.reason.value,
        "message": event.note,
        "type": "Warning" if event.warning else "Normal",
        "count": 1,
        "firstTimestamp": format_time(now),
        "lastTimestamp": format_time(now),
        "source": {"component": names.FIELD_MANAGER},
        "reportingComponent": names.FIELD_MANAGER,
        "reportingInstance": instance,
    }
