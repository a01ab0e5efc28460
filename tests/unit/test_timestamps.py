"""Times are RFC 3339 in UTC, and anything else is no time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob_api.timestamps import format_time, parse_time

PROPERTY = settings(derandomize=True, deadline=None, max_examples=200)
YEAR_10000 = 253_402_300_800


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_795_235_400, "2026-11-21T04:30:00Z"),
        (1_795_235_400.999, "2026-11-21T04:30:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (YEAR_10000 - 1, "9999-12-31T23:59:59Z"),
        (-62_135_596_800, "0001-01-01T00:00:00Z"),
    ],
)
def test_a_time_is_written_in_utc_to_the_second(seconds: float, text: str) -> None:
    assert format_time(seconds) == text
    assert parse_time(text) == int(seconds)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), YEAR_10000, -1e12, 1e300])
def test_what_is_no_time_can_not_be_written(seconds: float) -> None:
    with pytest.raises(ValueError, match="is not a time in seconds since 1970"):
        format_time(seconds)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-21T04:30:00.25Z", 1_795_235_400.25),
        ("2026-11-21T04:30:00.123456789Z", 1_795_235_400.123456),
        ("2026-11-21T05:30:00+01:00", 1_795_235_400),
        ("2026-11-20T22:30:00-06:00", 1_795_235_400),
        ("2026-11-21t04:30:00z", 1_795_235_400),
        ("0001-01-01T00:00:00+23:59", -62_135_596_800 - 23 * 3600 - 59 * 60),
    ],
)
def test_fractions_and_offsets_are_understood(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        None, 1, 1.5, b"2026-11-21T04:30:00Z", "", "yesterday", "2026-11-21", "2026-11-21T04:30:00", "20261121T043000Z",
        "2026-W47-6T04:30:00Z", "2026-13-21T04:30:00Z", "2026-11-31T04:30:00Z", "2026-11-21T24:30:00Z",
        "2026-11-21T04:30:60Z", "0000-11-21T04:30:00Z", "2026-11-21T04:30:00+24:00", "2026-11-21T04:30:00Z\n",
        "٢٠٢٦-11-21T04:30:00Z", "2026-11-21T04:30:00.Z",
    ],
)  # fmt: skip
def test_anything_else_is_no_time(text: object) -> None:
    assert parse_time(text) is None


@PROPERTY
@given(st.floats(min_value=-62_135_596_800, max_value=YEAR_10000 - 1))
def test_a_written_time_is_read_back_to_the_second(seconds: float) -> None:
    read = parse_time(format_time(seconds))
    assert read is not None
    assert read <= seconds + 1e-5
    assert seconds - read < 1 + 1e-5


@PROPERTY
@given(st.text())
def test_reading_never_raises(text: str) -> None:
    assert parse_time(text) is None
