"""Lines of a pipe: the same ones, wherever the pipe cuts them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmljob.local.lines import LINE_LIMIT, LineSplitter


def lines_of(*parts: bytes) -> list[str]:
    splitter = LineSplitter()
    return [line for part in parts for line in splitter.feed(part)] + splitter.finish()


def test_half_a_character_at_the_end_is_a_line_of_its_own_after_a_carriage_return() -> None:
    assert lines_of(b"a\r", "ä".encode()[:1]) == ["a", "\N{REPLACEMENT CHARACTER}"]


LONG = "x" * LINE_LIMIT


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\n\nb", ["a", "", "b"]),
        ("\n", [""]),
        ("10 %\r20 %\rdone\n", ["10 %", "20 %", "done"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\r", ["a"]),
        (f"{LONG}\nb", [LONG, "b"]),
        (f"{LONG}y\nb", [LONG, "y", "b"]),
        (f"{LONG}{LONG}\r\nb", [LONG, LONG, "b"]),
        ("ä\n", ["ä"]),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_lines(text: str, lines: list[str]) -> None:
    assert lines_of(text.encode()) == lines


WORDS = st.lists(st.sampled_from(["a", "ä", "\n", "\r", "\r\n", LONG[:-1], LONG, LONG + "y", "\N{GRINNING FACE}"]))


@given(WORDS, st.lists(st.integers(0, 4 * LINE_LIMIT), max_size=8))
def test_where_the_pipe_cuts_does_not_matter(words: list[str], cuts: list[int]) -> None:
    data = "".join(words).encode()
    places = [0, *sorted(cuts), len(data)]
    parts = [data[start:end] for start, end in itertools.pairwise(places)]
    assert lines_of(*parts) == lines_of(data)


@given(st.lists(st.binary(max_size=8)))
def test_no_bytes_are_too_strange(parts: list[bytes]) -> None:
    assert lines_of(*parts) == lines_of(b"".join(parts))
