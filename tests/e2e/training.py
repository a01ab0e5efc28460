"""What a test sees of a training that runs in pods: progress lines, and the weights that it leaves in the bucket."""

import time
from contextlib import closing

from e2e.kube import Document, Kube
from qmljob_api import names
from qmljob_api.progress import parse_progress


def until_pod_runs(kube: Kube, name: str, *, attempt: int = 0) -> Document:
    """Returns a replica's pod as soon as its container has started in an attempt; it may have ended since."""

    def runs(pod: Document) -> bool:
        states = [status["state"] for status in pod["status"].get("containerStatuses", [])]
        has_started = any("running" in state or "terminated" in state for state in states)
        return has_started and pod["metadata"]["labels"][names.LABEL_ATTEMPT] == str(attempt)

    return kube.until("pod", name, runs, what=f"running in attempt {attempt}")


def until_epoch(
    kube: Kube, epoch: int, *, replica: str = "qcnn-worker-0", attempt: int = 0, seconds: float = 120
) -> list[int]:
    """Returns the epochs that a replica has reported in an attempt, as soon as `epoch` or a later one is among them.

    The first one tells where the attempt began. A log that breaks off while the program runs is read anew.
    """
    deadline = time.monotonic() + seconds
    lines: list[str] = []
    while (left := deadline - time.monotonic()) > 0:
        ended = until_pod_runs(kube, replica, attempt=attempt)["status"]["phase"] in ("Succeeded", "Failed")
        seen: list[int] = []
        lines = []
        with closing(kube.lines("logs", replica, "--follow", seconds=left)) as log:
            for line in log:
                lines.append(line)
                progress = parse_progress(line)
                if progress is not None and progress.attempt == attempt:
                    seen.append(progress.epoch)
                    if progress.epoch >= epoch:
                        return seen
        if ended:
            break
    raise AssertionError(f"{replica} has not come to epoch {epoch} in attempt {attempt}:\n{''.join(lines[-40:])}")


def weights(kube: Kube, *, job: str = "qcnn") -> str:
    """Returns the sha256 of the weights that a job of `sample.job` has left in the bucket."""
    manifest = kube.bucket_object(f"{kube.namespace}/{job}/qcnn_weights.json")
    sha256: str = manifest["weights"]["sha256"]
    return sha256


def uids(kube: Kube, *, job: str = "qcnn") -> dict[str, str]:
    """Returns the uids of a job's replicas, by the pods' names."""
    pods = kube.list("pods", f"{names.LABEL_JOB}={job},{names.LABEL_ROLE}")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
