"""Words of the API that explain themselves: an enum whose members carry a sentence on when they hold."""

from enum import StrEnum
from typing import Self


class Explained(StrEnum):
    """A word, with a sentence on when it holds. Members are written `NAME = "Word", "When it holds."`."""

    sentence: str

    def __new__(cls, value: str, sentence: str = "") -> Self:
        """Keeps the sentence beside the value."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member
