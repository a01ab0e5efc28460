"""NaN and infinity are found where they come in, and named by their place."""

import numpy as np
import pytest

from qmljob_training.checkpoint import Checkpoint, Position, decode, encode
from qmljob_training.errors import BadArtifactError, ConfigurationError
from qmljob_training.finite import check_finite, first_not_finite, not_finite_in
from qmljob_training.workloads.protocol import DataSet, Split

GOOD = Split(np.zeros((3, 2), np.float32), np.ones(3, np.float32))


def spoilt(value: float, example: int, feature: int | None) -> Split:
    split = Split(GOOD.features.copy(), GOOD.labels.copy())
    if feature is None:
        split.labels[example] = value
    else:
        split.features[example, feature] = value
    return split


@pytest.mark.parametrize(
    ("value", "example", "feature", "said"),
    [
        pytest.param(np.nan, 2, 1, "feature 1 of example 2 is nan", id="NaN"),
        pytest.param(np.inf, 0, 0, "feature 0 of example 0 is inf", id="infinite"),
        pytest.param(-np.inf, 1, 0, "feature 0 of example 1 is -inf", id="minus infinite"),
        pytest.param(np.nan, 1, None, "the label of example 1 is nan", id="a label"),
    ],
)
@pytest.mark.parametrize("which", ["training", "test"])
def test_a_number_of_the_data_set_is_named_by_example_and_feature(
    value: float, example: int, feature: int | None, said: str, which: str
) -> None:
    bad = spoilt(value, example, feature)
    assert first_not_finite(bad) == said
    with pytest.raises(ConfigurationError, match=f"the data set's {which} split: {said}; repair the data"):
        check_finite(DataSet(bad, GOOD) if which == "training" else DataSet(GOOD, bad))


def test_finite_numbers_pass() -> None:
    check_finite(DataSet(GOOD, GOOD))
    assert not_finite_in([("weights", np.array([1e38, -1e-45], np.float32)), ("steps", np.array([1]))]) is None


def test_a_checkpoint_with_a_parameter_that_is_no_number_is_refused() -> None:
    state = {"model/000/symbols": np.array([0.0, np.nan], np.float32), "optimizer/000/step": np.array(3)}
    with pytest.raises(BadArtifactError, match=r"model/000/symbols\[1\] is nan"):
        decode(encode(Checkpoint(Position(), state)))
