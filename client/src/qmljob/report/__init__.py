"""The report of a run: one HTML file that holds everything, and its figures as PNG files beside it."""

from qmljob.report.errors import ReportError
from qmljob.report.write import write_report

__all__ = ["ReportError", "write_report"]
