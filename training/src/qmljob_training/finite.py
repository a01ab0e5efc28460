"""Numbers that are no numbers, found where they come in: data once when it is made, parameters when they are loaded."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qmljob_training.errors import ConfigurationError
from qmljob_training.workloads.protocol import DataSet, Split


def check_finite(data: DataSet) -> None:
    """Raises ConfigurationError, with the example and the feature, where a data set holds NaN or infinity."""
    for name, split in (("training", data.train), ("test", data.test)):
        if found := first_not_finite(split):
            raise ConfigurationError(f"the data set's {name} split: {found}; repair the data, or leave the example out")


def first_not_finite(split: Split) -> str | None:
    """Returns a clause on the first number of a split that is not finite; None where all are."""
    if (place := _first(split.features)) is not None:
        return f"feature {place[1]} of example {place[0]} is {split.features[place]}"
    if (place := _first(split.labels)) is not None:
        return f"the label of example {place[0]} is {split.labels[place]}"
    return None


def not_finite_in(arrays: Iterable[tuple[str, NDArray[Any]]]) -> str | None:
    """Returns a clause on the first number of named arrays that is not finite; None where all are."""
    for name, values in arrays:
        if np.issubdtype(values.dtype, np.inexact) and (place := _first(values)) is not None:
            return f"{name}{list(map(int, place))} is {values[place]}"
    return None


def _first(values: NDArray[Any]) -> tuple[int, ...] | None:
    wrong = ~np.isfinite(values)
    return tuple(int(index) for index in np.argwhere(wrong)[0]) if wrong.any() else None
