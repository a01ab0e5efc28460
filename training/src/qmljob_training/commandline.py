"""What the flags of all programs have in common: their errors, and how numbers and locations are read."""

import argparse
import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

from qmljob_training.errors import ConfigurationError

_ARGUMENT = re.compile(r"^argument ([^:]+): ")


class FlagParser(argparse.ArgumentParser):
    """Reports errors as ConfigurationError: argparse's own exit code is 2, which any Python program may end with."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raises ConfigurationError with the flag and its value in front (`--qubits 0: must be 1 or more`)."""
        what = _ARGUMENT.sub(r"\1 ", message)
        raise ConfigurationError(f"{what}; see {self.prog} --help")


def whole_number(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    """Returns a parser of whole numbers from `least` to `most`, for a flag's `type`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text}: must be a whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{text}: must be {least} or more")
        if value > most:
            raise argparse.ArgumentTypeError(f"{text}: must be {most} or less")
        return value

    return parse


port_number = whole_number(1, 65535)
"""Parses a TCP port, for a flag's `type`."""


def location(text: str) -> str:
    """Parses a store's location, for a flag's `type`; an empty one is what an unset variable leaves."""
    if not text.strip("/ "):
        raise argparse.ArgumentTypeError("is empty: name a folder or a gs:// location, or leave the flag out")
    return text


def positive_number(text: str) -> float:
    """Parses a finite number above 0, for a flag's `type`."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: must be a number") from None
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text}: must be a finite number above 0")
    return value


def add_artifact_flags(parser: argparse._ActionsContainer) -> None:
    """Adds the flags that `artifact_location` reads."""
    parser.add_argument("--weights-gcs-bucket", metavar="BUCKET", help="bucket of the weights")
    parser.add_argument("--weights-gcs-path", metavar="PATH", help="path of the weights in the bucket (… .h5)")
    parser.add_argument("--artifact", metavar="LOCATION", help="the same as one gs:// or file:// location")


def artifact_location(given: argparse.Namespace) -> str | None:
    """Returns the one location that --artifact, or the tutorial's --weights-gcs-bucket and --weights-gcs-path, name.

    Raises:
        ConfigurationError: both ways at once, or half of the second.
    """
    bucket, path = given.weights_gcs_bucket, given.weights_gcs_path
    if given.artifact and (bucket or path):
        raise ConfigurationError("--artifact: give either it or --weights-gcs-bucket with --weights-gcs-path, not both")
    for flag, value in (("--weights-gcs-bucket", bucket), ("--weights-gcs-path", path), ("--artifact", given.artifact)):
        if value is not None and not value.strip("/"):
            raise ConfigurationError(f"{flag} is empty: name a place for the weights, or leave the flag out")
    if bool(bucket) != bool(path):
        missing = "--weights-gcs-path" if bucket else "--weights-gcs-bucket"
        raise ConfigurationError(f"{missing} is missing: the bucket and the path of the weights go together")
    location: str | None = given.artifact
    return f"gs://{bucket.removeprefix('gs://').strip('/')}/{path.lstrip('/')}" if bucket and path else location
