"""The report of a run."""

from pathlib import Path


class ReportError(Exception):
    """The report can't be written; the text says why."""


def write_report(run_dir: Path) -> Path:
    """Returns the record of the run, which is all there is to report."""
    return run_dir / "run.json"
