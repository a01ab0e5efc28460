"""What an artifact's model answers, and how far that is from the labels."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray

from qmljob_training.workloads.protocol import Split

BATCH = 64
"""Examples simulated at once: bounds the memory of a large split."""


@dataclass(frozen=True)
class Score:
    """mse: mean squared error; sign_accuracy: share of right signs; predictions: float64 [examples]."""

    mse: float
    sign_accuracy: float
    predictions: NDArray[np.float64]


def evaluate(model: tf_keras.Model, split: Split) -> Score:
    """Scores a model on a split; sums are taken in float64, as training takes its validation loss."""
    answer = tf.function(lambda features: model(features, training=False)[0], reduce_retracing=True)
    parts = [answer(tf.constant(split.features[first : first + BATCH])) for first in range(0, len(split), BATCH)]
    predictions = np.concatenate([part.numpy().astype(np.float64) for part in parts])
    return Score(
        mse=float(np.mean(np.square(predictions - split.labels))),
        sign_accuracy=float(np.mean((predictions >= 0) == (split.labels >= 0))),
        predictions=predictions,
    )
