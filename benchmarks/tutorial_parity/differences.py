"""Means, standard deviations and standard errors of the difference between two sets of runs."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Sample:
    """Mean and standard deviation (n - 1 in its denominator) of n runs."""

    mean: float
    sd: float
    n: int


@dataclass(frozen=True)
class Difference:
    """The second sample's mean less the first's.

    Attributes:
        standard_error: of the difference.
        ratio: |difference| / standard error; infinite where the error is 0 and the difference is not.
        paired: whether the standard error is that of the pairs' differences.
    """

    metric: str
    first: Sample
    second: Sample
    difference: float
    standard_error: float
    ratio: float
    paired: bool

    def as_dict(self) -> dict[str, object]:
        """Returns the difference as nested plain values (an infinite ratio as None, which JSON can hold)."""
        return {**asdict(self), "ratio": self.ratio if math.isfinite(self.ratio) else None}


def sample(values: Sequence[float]) -> Sample:
    """Summarises at least two finite values.

    Raises:
        ValueError: fewer than two values, or one that is not finite.
    """
    if len(values) < 2:
        raise ValueError(f"{len(values)} run gives no standard deviation; compare at least 2 seeds")
    if not all(math.isfinite(value) for value in values):
        raise ValueError("a run ended with a loss that is not finite; look at its log")
    return Sample(fmean(values), stdev(values), len(values))


def compare(metric: str, first: Sequence[float], second: Sequence[float], *, paired: bool) -> Difference:
    """Compares two sets of runs.

    Independent runs: SE² = s1²/n1 + s2²/n2 (Welch). Paired runs, value i of both from the same data: SE² = s_d²/n of
    the differences.
    """
    one, two = sample(first), sample(second)
    if paired:
        error = sample([b - a for a, b in zip(first, second, strict=True)]).sd / math.sqrt(one.n)
    else:
        error = math.sqrt(one.sd**2 / one.n + two.sd**2 / two.n)
    difference = two.mean - one.mean
    ratio = abs(difference) / error if error > 0 else (math.inf if difference else 0.0)
    return Difference(metric, one, two, difference, error, ratio, paired)
