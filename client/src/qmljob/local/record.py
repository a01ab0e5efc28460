"""`run.json`: what happened in a local run, for the report and for whoever looks later."""

import json
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qmljob_api.progress import InferenceResult, Progress

RUN_FILE = "run.json"


class RecordError(Exception):
    """A run folder holds no readable record."""


class Phase(StrEnum):
    """How far a run has come."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    INTERRUPTED = "Interrupted"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ReplicaRecord(_Record):
    """The end of a replica. `stopped` says that the supervisor ended it, because the attempt was over."""

    replica: str
    exit_code: int
    finished_at: datetime
    stopped: bool
    log: str = Field(description="path in the run folder")


class AttemptRecord(_Record):
    """One start of the whole gang, and how it ended."""

    attempt: int
    restarts: int = Field(description="restarts charged before it")
    started_at: datetime
    ended_at: datetime
    ends: tuple[ReplicaRecord, ...]
    cause: str | None = Field(default=None, description="the replica whose failure ended the attempt")
    reason: str = Field(default="", description="a reason of the api, empty after a success")
    charged: bool = False


class RunRecord(_Record):
    """A local run. Times are UTC; losses and seconds are those of the progress lines."""

    format: Literal[1] = 1
    phase: Phase
    job: str
    namespace: str
    uid: str
    manifest: str = Field(description="path of the manifest")
    store: str = Field(description="folder that stands in for buckets")
    command: tuple[str, ...] = Field(description="the chief's command line, expanded")
    replicas: tuple[str, ...]
    chief: str
    started_at: datetime
    ended_at: datetime | None = None
    exit_code: int | None = Field(default=None, description="of `qmljob run`")
    attempts: tuple[AttemptRecord, ...] = ()
    progress: tuple[Progress, ...] = Field(default=(), description="the chief's, one an epoch, in order")
    replica_progress: dict[str, tuple[Progress, ...]] = Field(
        default_factory=dict, description="the same for each replica that reports"
    )
    inference: InferenceResult | None = None
    inference_exit_code: int | None = None
    artifact: str | None = Field(default=None, description="location, as inference was given it")
    artifact_path: str | None = Field(default=None, description="the file that holds it here")


class ProgressBook:
    """Collects progress lines. An epoch that was trained again after a restart counts once, by its last line."""

    def __init__(self) -> None:
        self._by_replica: dict[str, dict[int, Progress]] = {}

    def add(self, replica: str, progress: Progress) -> None:
        """Keeps a line, and forgets what this replica said about this epoch and later ones: they are trained anew."""
        known = self._by_replica.get(replica, {})
        if progress.seconds == 0 and progress.epoch in known:
            return  # a resumed replica repeats its last epoch's line, without the times that it no longer knows
        kept = {epoch: line for epoch, line in known.items() if epoch < progress.epoch}
        self._by_replica[replica] = {**kept, progress.epoch: progress}

    def of(self, replica: str) -> tuple[Progress, ...]:
        """Returns a replica's lines, in the order of epochs."""
        return tuple(self._by_replica.get(replica, {}).values())

    def all(self) -> dict[str, tuple[Progress, ...]]:
        """Returns the lines of every replica that reports."""
        return {replica: self.of(replica) for replica in self._by_replica}


def utc_now() -> datetime:
    """Returns the present time, in UTC."""
    return datetime.now(UTC)


def write_record(folder: Path, record: RunRecord) -> None:
    """Writes `run.json`; a reader sees the old or the new one, whole."""
    temporary = folder / (RUN_FILE + ".new")
    # Not model_dump_json: it makes null of a diverged loss (NaN), which is not read back as a number.
    temporary.write_text(json.dumps(record.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
    temporary.replace(folder / RUN_FILE)


def read_record(folder: Path) -> RunRecord:
    """Returns the record of a run.

    Raises:
        RecordError: it is missing or damaged.
    """
    path = folder / RUN_FILE
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RecordError(f"{path}: can't be read: {error.strerror}; give the folder of a run") from None
    except ValidationError:
        raise RecordError(f"{path}: not the record of a run; run the job again") from None
