"""What a report is made from, gathered from a run's folder. A run that failed early leaves little of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qmljob.local.record import ProgressBook, RecordError, RunRecord, read_record
from qmljob.report.describe import describe
from qmljob.report.errors import NoDescriptionError, ReportError
from qmljob_api.description import ArtifactDescription
from qmljob_api.progress import Progress, parse_progress

TAIL_LINES = 10
_TAIL_BYTES = 16_384
_LINE_CHARACTERS = 300
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Material:
    """Everything that a report shows.

    Attributes:
        description: of the artifact; None where there is none.
        timings: the progress lines of each replica that reports, one an epoch.
        tails: the last lines of logs, by their path in the run folder; of the replicas whose failure ended an attempt.
        notes: one sentence for each thing that is missing, with the reason.
    """

    folder: Path
    record: RunRecord
    description: ArtifactDescription | None
    timings: Mapping[str, tuple[Progress, ...]]
    tails: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]


def gather(folder: Path) -> Material:
    """Reads a run's folder, and asks the training program to describe the artifact.

    Raises:
        ReportError: the folder holds no record of a run.
    """
    try:
        record = read_record(folder)
    except RecordError as error:
        raise ReportError(str(error)) from None
    notes = []
    description = None
    try:
        description = describe(record)
    except NoDescriptionError as error:
        notes.append(f"No circuits and readouts: {error}.")
    if not record.progress:
        notes.append("No losses and times: no epoch was finished, or the program prints no progress lines.")
    return Material(folder, record, description, timings_of(folder, record), tails_of(folder, record), tuple(notes))


def timings_of(folder: Path, record: RunRecord) -> dict[str, tuple[Progress, ...]]:
    """Returns the progress of each replica; what the record lacks is read from the logs."""
    known = dict(record.replica_progress)
    if record.progress:
        known.setdefault(record.chief, record.progress)
    book = ProgressBook()
    for attempt in record.attempts:
        for end in attempt.ends:
            if end.replica not in known and end.replica in record.replicas:
                for line in _lines(folder, end.log):
                    progress = parse_progress(line)
                    if progress is not None:
                        book.add(end.replica, progress)
    known |= book.all()
    return {replica: known[replica] for replica in record.replicas if known.get(replica)}


def tails_of(folder: Path, record: RunRecord) -> dict[str, tuple[str, ...]]:
    """Returns the last lines of the logs of replicas at fault, without progress lines and terminal codes."""
    tails = {}
    for attempt in record.attempts:
        for end in attempt.ends:
            if end.replica == attempt.cause:
                lines = [line for line in _lines(folder, end.log, _TAIL_BYTES) if parse_progress(line) is None]
                tails[end.log] = tuple(line[:_LINE_CHARACTERS] for line in lines[-TAIL_LINES:])
    return tails


def _lines(folder: Path, log: str, last_bytes: int | None = None) -> list[str]:
    path = (folder / log).resolve()
    # The record is a file like any other: it must not make us show what lies elsewhere.
    if not path.is_relative_to(folder.resolve()):
        return []
    try:
        with path.open("rb") as file:
            if last_bytes is not None:
                file.seek(max(path.stat().st_size - last_bytes, 0))
            data = file.read()
    except OSError:
        return []
    return [_TERMINAL_CODES.sub("", line) for line in data.decode("utf-8", "replace").splitlines()]
