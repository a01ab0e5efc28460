"""Progress lines and records of runs, for tests of those who read them."""

from datetime import UTC, datetime

from qmljob.local.record import Phase, RunRecord
from qmljob_api.progress import Progress


def progress(epoch: int, loss: float = 0.5, epochs: int = 10, seconds: float = 1.5) -> Progress:
    """Returns the line of an epoch of a run with 4 steps an epoch."""
    return Progress(
        role="worker",
        index=0,
        attempt=0,
        epoch=epoch,
        epochs=epochs,
        step=epoch * 4,
        loss=loss,
        sign_accuracy=0.75,
        val_loss=loss + 0.1,
        val_sign_accuracy=0.625,
        learning_rate=0.02,
        seconds=seconds,
        validation_seconds=0.5,
        examples_per_second=100.0,
    )


def record(**changes: object) -> RunRecord:
    """Returns the record of a run that succeeded, with some fields changed."""
    fields: dict[str, object] = {
        "phase": Phase.SUCCEEDED,
        "job": "qcnn",
        "namespace": "default",
        "uid": "u",
        "manifest": "qcnn.yaml",
        "store": "/s",
        "command": ("python",),
        "replicas": ("qcnn-worker-0",),
        "chief": "qcnn-worker-0",
        "started_at": datetime(2026, 1, 1, tzinfo=UTC),
        "ended_at": datetime(2026, 1, 1, 0, 0, 41, tzinfo=UTC),
        **changes,
    }
    return RunRecord.model_validate(fields)
