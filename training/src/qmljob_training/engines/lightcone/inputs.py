"""Checks of what is computed with, outside of the graph: once for a data set, not in every step."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qmljob_training.errors import ConfigurationError


def check_features(features: NDArray[Any], symbols: Sequence[str]) -> None:
    """Raises ConfigurationError where a feature, of [examples, features], is NaN or infinite; names the first."""
    bad = np.argwhere(~np.isfinite(features))
    if len(bad):
        example, feature = (int(place) for place in bad[0])
        raise ConfigurationError(
            f"example {example}: feature {feature} ({symbols[feature]}) is {features[example, feature]}; "
            f"{len(bad)} of {features.size} are not finite: remove or replace these examples"
        )


def check_weights(weights: NDArray[Any], symbols: Sequence[str]) -> None:
    """Raises ConfigurationError where a weight, of [symbols], is NaN or infinite; names all."""
    bad = [f"{name} = {value}" for name, value in zip(symbols, weights, strict=True) if not np.isfinite(value)]
    if bad:
        raise ConfigurationError(f"weights that are not finite: {', '.join(bad)}; lower the learning rate")
