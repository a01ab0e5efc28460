"""Times as Kubernetes writes them: RFC 3339, in UTC, to the second."""

import re
from datetime import UTC, datetime

_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def format_time(seconds: float) -> str:
    """Returns a time, in seconds since the epoch, as `2026-11-21T04:30:00Z`. A fraction of a second is cut off.

    Raises ValueError for what is no time of the years 1 to 9999.
    """
    try:
        moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=0, tzinfo=None)
    except (OverflowError, OSError, ValueError) as error:
        raise ValueError(f"{seconds} is not a time in seconds since 1970; give one of the years 1 to 9999") from error
    return f"{moment.isoformat()}Z"


def parse_time(text: object) -> float | None:
    """Returns the seconds since the epoch that an RFC 3339 time stands for, or None for anything else.

    Fractions of a second (finer than microseconds are cut off) and offsets from UTC are understood.
    """
    if not isinstance(text, str) or not _RFC_3339.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.upper()).timestamp()
    except (OverflowError, ValueError):
        return None
