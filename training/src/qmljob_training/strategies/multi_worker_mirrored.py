"""Strategy `multi-worker-mirrored`: synchronous data parallelism by tf.distribute.MultiWorkerMirroredStrategy.

Every worker holds all weights; gradients are summed by a ring all-reduce in each step. Many steps run in one graph
call, since a call from Python costs milliseconds where a step may cost less.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from qmljob_training.batches import Shard, slice_size
from qmljob_training.errors import BadArtifactError, ConfigurationError, LostPeerError
from qmljob_training.evaluation import BATCH, Evaluation
from qmljob_training.rendezvous import Rendezvous
from qmljob_training.strategies.protocol import State, StepsResult, Trainer
from qmljob_training.workloads.protocol import DataSet, Split


class MultiWorkerMirrored:
    """See the module."""

    name = "multi-worker-mirrored"

    def check(self, rendezvous: Rendezvous) -> None:
        if rendezvous.role not in ("chief", "worker"):
            raise ConfigurationError(
                f"TF_CONFIG's task is {rendezvous.role} {rendezvous.index}: {self.name} has only chief and worker; "
                f"remove the role {rendezvous.role} from replicaSpecs, or choose another --strategy"
            )
        if "ps" in rendezvous.roles:
            raise ConfigurationError(f"TF_CONFIG's cluster has a ps: {self.name} has none; remove it from replicaSpecs")

    def connect(self, rendezvous: Rendezvous) -> None:
        import tensorflow as tf

        communication = tf.distribute.experimental.CommunicationImplementation.RING
        options = tf.distribute.experimental.CommunicationOptions(implementation=communication)
        self._rendezvous = rendezvous
        with _peers_may_be_lost(tf):
            self._strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    def exchange(self, value: int) -> tuple[int, ...]:
        import tensorflow as tf

        own = np.zeros(self._rendezvous.workers, np.int64)
        own[self._rendezvous.rank] = value
        with _peers_may_be_lost(tf):
            values = self._strategy.reduce(tf.distribute.ReduceOp.SUM, tf.constant(own), axis=None).numpy()
        return tuple(int(each) for each in values)

    def trainer(self, build_model: Callable[[], Any], data: DataSet, learning_rate: float) -> Trainer:
        import tensorflow as tf

        with _peers_may_be_lost(tf):  # variables are sent from the chief to all
            return MirroredTrainer(self._strategy, self._rendezvous, build_model, data, learning_rate)


class MirroredTrainer:
    """A model whose weights are the same on every worker after every step."""

    def __init__(
        self, strategy: Any, rendezvous: Rendezvous, build_model: Callable[[], Any], data: DataSet, learning_rate: float
    ) -> None:
        import tensorflow as tf
        import tf_keras

        self._tf = tf
        self._strategy = strategy
        self._workers = rendezvous.workers
        self._rank = rendezvous.rank
        with strategy.scope():
            self.model = build_model()
            self._optimizer = tf_keras.optimizers.Adam(learning_rate)
            self._optimizer.build(self.model.trainable_variables)
        self._features = tf.constant(data.train.features)
        self._labels = tf.constant(data.train.labels)
        width = tf.TensorSpec((None, None), tf.int32)
        self._run_steps = tf.function(
            self._steps_graph,
            input_signature=(
                width,
                tf.TensorSpec((None, None), tf.float32),
                tf.TensorSpec((None,), tf.float32),
                tf.TensorSpec((2,), tf.float32),
            ),
        )
        self._evaluate = tf.function(
            self._evaluate_graph,
            input_signature=(tf.TensorSpec((None, None), tf.float32), tf.TensorSpec((), tf.int32)),
        )

    @property
    def graph(self) -> Any:
        """The graph of a run of steps, for TensorBoard."""
        return self._run_steps.get_concrete_function().graph

    def run_steps(self, shard: Shard, *, stop: bool, step_seconds: float) -> StepsResult:
        agreement = np.array([stop, step_seconds], np.float32)
        with _peers_may_be_lost(self._tf):
            sums, agreed = self._run_steps(shard.indices, shard.weights, shard.batch_sizes, agreement)
            squared_errors, hits = sums.numpy().astype(np.float64).T
            asked, seconds = agreed.numpy()
        return StepsResult(squared_errors, hits, bool(asked > 0), float(seconds) / self._workers)

    def evaluate(self, split: Split) -> Evaluation:
        chunk = BATCH * self._workers
        with _peers_may_be_lost(self._tf):
            parts = [self._answers(split.features[first : first + chunk]) for first in range(0, len(split), chunk)]
        answers = np.concatenate(parts)
        return Evaluation(predictions=answers[:, 0], readouts=answers[:, 1:])

    def state(self) -> State:
        with _peers_may_be_lost(self._tf):
            return {name: variable.numpy() for name, variable in self._variables().items()}

    def restore(self, state: State) -> None:
        variables = self._variables()
        if state.keys() != variables.keys():
            differing = ", ".join(sorted(state.keys() ^ variables.keys()))
            raise BadArtifactError(f"it is of another model or optimizer, and differs in {differing}")
        for name, variable in variables.items():
            if state[name].shape != tuple(variable.shape):
                raise BadArtifactError(
                    f"it is of another model: {name} has shape {state[name].shape}, not {variable.shape}"
                )
        for name, variable in variables.items():
            variable.assign(state[name])

    def _answers(self, features: Any) -> Any:
        """Returns float64 [examples, 1 + readouts]; each worker computes a contiguous part."""
        width = slice_size(len(features), self._workers)
        mine = np.zeros((width, *features.shape[1:]), np.float32)
        part = features[self._rank * width : (self._rank + 1) * width]
        mine[: len(part)] = part
        return self._evaluate(mine, self._rank * width).numpy().astype(np.float64)[: len(features)]

    def _variables(self) -> dict[str, Any]:
        # The learning rate is a flag of the run, not part of what training has learned.
        rate = self._optimizer.learning_rate
        slots = [variable for variable in self._optimizer.variables if variable is not rate]
        named = [("model", variable) for variable in self.model.variables] + [("optimizer", slot) for slot in slots]
        return {f"{kind}/{index:03d}/{variable.name}": variable for index, (kind, variable) in enumerate(named)}

    def _steps_graph(self, indices: Any, weights: Any, batch_sizes: Any, agreement: Any) -> tuple[Any, Any]:
        """Returns ([steps, 2] sums of squared errors and hits, [2] sums of `agreement`), over all workers."""
        tf = self._tf
        steps = tf.shape(batch_sizes)[0]
        sums = tf.TensorArray(tf.float32, size=steps, element_shape=(2,))
        for step in tf.range(steps):
            local = self._strategy.run(self._one_step, args=(indices[step], weights[step], batch_sizes[step]))
            sums = sums.write(step, local)
        total = tf.distribute.ReduceOp.SUM
        stacked = tf.reshape(sums.stack(), [-1])
        reduced = self._strategy.reduce(total, tf.concat([stacked, agreement], 0), axis=None)
        return tf.reshape(reduced[:-2], [-1, 2]), reduced[-2:]

    def _one_step(self, indices: Any, weights: Any, batch_size: Any) -> Any:
        """Trains on this worker's slice of one global batch; returns its [squared errors, hits]."""
        tf = self._tf
        features = tf.gather(self._features, indices)
        labels = tf.gather(self._labels, indices)
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            predictions, _ = self.model(features, training=True)
            squared_errors = tf.reduce_sum(weights * tf.square(predictions - labels))
            # Divided by the global batch: the sum over workers is then the gradient of the global mean.
            loss = squared_errors / batch_size
        self._optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        hits = tf.reduce_sum(weights * tf.cast((predictions >= 0) == (labels >= 0), tf.float32))
        return tf.stack([squared_errors, hits])

    def _evaluate_graph(self, features: Any, first: Any) -> Any:
        """Returns [padded examples, 1 + readouts]: every worker's answers in its own rows, summed over zeros."""
        tf = self._tf
        predictions, readouts = self.model(features, training=False)
        answers = tf.concat([predictions[:, tf.newaxis], readouts], axis=1)
        width = tf.shape(answers)[0]
        padded = tf.pad(answers, [[first, width * self._workers - width - first], [0, 0]])
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, padded, axis=None)


@contextmanager
def _peers_may_be_lost(tf: Any) -> Iterator[None]:
    """Turns what collective ops raise when a peer goes away into LostPeerError."""
    try:
        yield
    except (
        tf.errors.UnavailableError,
        tf.errors.AbortedError,
        tf.errors.CancelledError,
        tf.errors.DeadlineExceededError,
        tf.errors.FailedPreconditionError,
        tf.errors.UnknownError,
    ) as error:
        raise LostPeerError(f"lost a peer: {_reason(error)}; look at the other replicas' logs") from error


def _reason(error: Any) -> str:
    """Returns the line of a TensorFlow error that tells something; its first one is often a mere heading."""
    words = ("peer", "connect", "unavailable", "socket", "heartbeat")
    lines = [line.strip(" :;") for line in str(error.message).splitlines()]
    telling = (line for line in lines if any(word in line.lower() for word in words))
    return next(telling, type(error).__name__)[:200]
