"""A strategy for one process: plain gradient descent, a step a call."""

from collections.abc import Callable
from typing import Any

import numpy as np

from qmljob_training.batches import Shard
from qmljob_training.errors import ConfigurationError
from qmljob_training.evaluation import Evaluation
from qmljob_training.rendezvous import Rendezvous
from qmljob_training.strategies.protocol import State, StepsResult
from qmljob_training.workloads.protocol import DataSet, Split


class OneProcess:
    """Has no peers, and refuses to have any."""

    name = "toy-strategy"

    def check(self, rendezvous: Rendezvous) -> None:
        if rendezvous.workers > 1:
            raise ConfigurationError(f"TF_CONFIG has {rendezvous.workers} workers: {self.name} trains with one")

    def connect(self, rendezvous: Rendezvous) -> None:
        """Nobody to wait for."""

    def exchange(self, value: int) -> tuple[int, ...]:
        return (value,)

    def trainer(self, build_model: Callable[[], Any], data: DataSet, learning_rate: float) -> "GradientDescent":
        return GradientDescent(build_model(), data, learning_rate)


class GradientDescent:
    """A trainer without an optimizer's slots."""

    def __init__(self, model: Any, data: DataSet, learning_rate: float) -> None:
        self.model = model
        self._data = data
        self._rate = learning_rate

    @property
    def graph(self) -> Any:
        import tensorflow as tf

        return tf.function(self.model).get_concrete_function(self._data.train.features[:1]).graph

    def run_steps(self, shard: Shard, *, stop: bool, step_seconds: float) -> StepsResult:
        sums = [self._step(*step) for step in zip(shard.indices, shard.weights, shard.batch_sizes, strict=True)]
        squared_errors, hits = np.array(sums, np.float64).T
        return StepsResult(squared_errors, hits, stop, step_seconds)

    def evaluate(self, split: Split) -> Evaluation:
        predictions, readouts = (part.numpy().astype(np.float64) for part in self.model(split.features))
        return Evaluation(predictions, readouts)

    def state(self) -> State:
        return {f"{index:03d}/{variable.name}": variable.numpy() for index, variable in enumerate(self.model.variables)}

    def restore(self, state: State) -> None:
        self.model.set_weights([state[name] for name in sorted(state)])

    def _step(self, indices: Any, weights: Any, batch_size: Any) -> tuple[float, float]:
        import tensorflow as tf

        features, labels = self._data.train.features[indices], self._data.train.labels[indices]
        with tf.GradientTape() as tape:
            predictions, _ = self.model(features, training=True)
            squared_errors = tf.reduce_sum(weights * tf.square(predictions - labels))
            loss = squared_errors / batch_size
        variables = self.model.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(self._rate * gradient)
        hits = np.sum(weights * ((predictions.numpy() >= 0) == (labels >= 0)))
        return float(squared_errors), float(hits)
