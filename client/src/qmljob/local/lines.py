"""Bytes as they come from a pipe, as lines: the same lines, wherever the pipe cuts the bytes into parts."""

import codecs
import re

LINE_LIMIT = 16_384
"""Characters of a line; a longer one is cut into several."""

_ENDS_OF_LINE = re.compile(r"\r\n|\n|\r(?!\Z)")


class LineSplitter:
    """Splits a stream of UTF-8. A carriage return ends a line too: progress bars rewrite theirs."""

    def __init__(self) -> None:
        """Begins a stream."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> list[str]:
        """Takes the next bytes; returns the lines that are whole by now, and what is too long to wait for its end."""
        *whole, self._rest = _ENDS_OF_LINE.split(self._rest + self._decoder.decode(data))
        lines = [piece for line in whole for piece in _pieces(line)]
        # Something is always left of a long line, so that its end does not look like an empty line. A carriage return
        # that came last may be the half of one end.
        open_pieces = _pieces(self._rest.removesuffix("\r"))
        self._rest = self._rest[sum(map(len, open_pieces[:-1])) :]
        return [*lines, *open_pieces[:-1]]

    def finish(self) -> list[str]:
        """Returns what is left at the end of the stream."""
        *whole, last = _ENDS_OF_LINE.split(self._rest + self._decoder.decode(b"", final=True))
        self._rest = ""
        return [piece for line in [*whole, *filter(None, [last.removesuffix("\r")])] for piece in _pieces(line)]


def _pieces(line: str) -> list[str]:
    return [line[start : start + LINE_LIMIT] for start in range(0, max(len(line), 1), LINE_LIMIT)]
