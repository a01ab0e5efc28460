"""What can go wrong with a report."""


class ReportError(Exception):
    """The report can't be written; one line says why and what to do."""


class NoDescriptionError(Exception):
    """There is no description of the artifact; one line says why. The report is written without it."""
