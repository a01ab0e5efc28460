"""What a model answers on a split, and how far that is from the labels: one rule for training and inference."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qmljob_training.workloads.protocol import Split

BATCH = 64
"""Examples simulated at once: bounds the memory of a large split."""


@dataclass(frozen=True)
class Evaluation:
    """The model's answers on a split. predictions: float64 [examples]; readouts: float64 [examples, readouts]."""

    predictions: NDArray[np.float64]
    readouts: NDArray[np.float64]

    def mean_squared_error(self, split: Split) -> float:
        """Returns the mean of (prediction - label)², summed in float64."""
        return float(np.mean(np.square(self.predictions - split.labels)))

    def sign_accuracy(self, split: Split) -> float:
        """Returns the share of examples whose prediction has the label's sign; 0 counts as positive."""
        return float(np.mean((self.predictions >= 0) == (split.labels >= 0)))


def evaluate(model: Any, split: Split) -> Evaluation:
    """Runs a Keras model (see `Workload.model`) over a split, without a strategy."""
    import tensorflow as tf

    answer = tf.function(lambda features: model(features, training=False), reduce_retracing=True)
    parts = [answer(tf.constant(split.features[first : first + BATCH])) for first in range(0, len(split), BATCH)]
    predictions, readouts = (
        np.concatenate([part[which].numpy().astype(np.float64) for part in parts]) for which in (0, 1)
    )
    return Evaluation(predictions, readouts.reshape(len(split), -1))
