"""The contract of `Workload`, as checks that any implementation can be run against.

    @pytest.mark.parametrize("check", WORKLOAD_CHECKS, ids=lambda check: check.__name__)
    def test_my_workload_keeps_the_contract(check):
        check(WorkloadCase(MyWorkload(), WorkloadOptions(qubits=4, examples=40, seed=1), TfqEngine()))

Every worker builds data and model by itself, so both must come out the same, bit for bit, from the options alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from qmljob_training.engines.protocol import Engine
from qmljob_training.errors import ConfigurationError
from qmljob_training.workloads.protocol import DataSet, Split, TellsCircuits, Workload, WorkloadOptions


@dataclass(frozen=True)
class WorkloadCase:
    """A workload, options that suit it (20 examples or more), and an engine for its circuits."""

    workload: Workload
    options: WorkloadOptions
    engine: Engine

    def model(self, *, seed: int | None = None) -> Any:
        """Returns a new model, with another seed where one is given."""
        return self.workload.model(self._with(seed), self.engine)

    def data(self, *, seed: int | None = None) -> DataSet:
        """Returns the data set, with another seed where one is given."""
        return self.workload.data(self._with(seed))

    def _with(self, seed: int | None) -> WorkloadOptions:
        return self.options if seed is None else replace(self.options, seed=seed)


WorkloadCheck: TypeAlias = Callable[[WorkloadCase], None]


def assert_workload_contract(case: WorkloadCase) -> None:
    """Runs all checks; raises AssertionError where a promise is not kept."""
    for check in WORKLOAD_CHECKS:
        check(case)


def its_options_are_accepted(case: WorkloadCase) -> None:
    """`check` has nothing to say about options that work."""
    case.workload.check(case.options)


def too_few_examples_are_refused_in_a_line(case: WorkloadCase) -> None:
    """One example can't fill two splits."""
    try:
        case.workload.check(replace(case.options, examples=1))
    except ConfigurationError as error:
        refusal = str(error)
    else:
        refusal = ""
    assert refusal, "one example for two splits is accepted"
    assert "\n" not in refusal, f"a message is one line: {refusal}"


def data_has_the_promised_shapes(case: WorkloadCase) -> None:
    """float32 features [examples, features] and labels [examples] of -1 and 1, as many as the options say."""
    data = case.data()
    _assert_split(data.train)
    _assert_split(data.test)
    assert len(data.train) + len(data.test) == case.options.examples
    assert data.train.features.shape[1] == data.test.features.shape[1]
    drawn = case.workload.draw(case.options)
    _assert_split(drawn)
    assert len(drawn) == case.options.examples


def splits_share_no_example(case: WorkloadCase) -> None:
    """What is validated on was not trained on."""
    data = case.data()
    assert _rows(data.train) & _rows(data.test) == set()


def the_same_options_give_the_same_bits(case: WorkloadCase) -> None:
    """Data, draws and initial weights come from the options, whatever TensorFlow's and NumPy's global seeds are."""
    import tensorflow as tf

    found = []
    for global_seed in (1, 2):
        tf.random.set_seed(global_seed)
        np.random.seed(global_seed)
        found.append((_bits(case.data()), _split_bits(case.workload.draw(case.options)), _weights(case.model())))
    assert found[0] == found[1]


def another_seed_gives_other_data_and_weights(case: WorkloadCase) -> None:
    """Runs with different seeds are independent."""
    other = case.options.seed + 1
    assert _bits(case.data()) != _bits(case.data(seed=other))
    assert _weights(case.model()) != _weights(case.model(seed=other))


def the_model_answers_predictions_and_readouts(case: WorkloadCase) -> None:
    """features [batch, features] -> finite predictions [batch] and readouts [batch, readouts]; batches of any size."""
    model, features = case.model(), case.data().train.features
    predictions, readouts = (np.asarray(part) for part in model(features[:5]))
    assert predictions.shape == (5,)
    assert readouts.ndim == 2
    assert len(readouts) == 5
    assert np.isfinite(predictions).all()
    assert np.isfinite(readouts).all()
    alone, _ = model(features[:1])
    np.testing.assert_allclose(np.asarray(alone), predictions[:1], atol=1e-5)


def every_weight_is_trained(case: WorkloadCase) -> None:
    """The loss has a gradient in each trainable variable."""
    import tensorflow as tf

    model, train = case.model(), case.data().train
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(train.features[:5])[0] - train.labels[:5]))
    gradients = tape.gradient(loss, model.trainable_variables)
    missing = [v.name for v, gradient in zip(model.trainable_variables, gradients, strict=True) if gradient is None]
    assert model.trainable_variables
    assert missing == []


def symbols_are_those_of_the_models_layers(case: WorkloadCase) -> None:
    """`symbols` names the quantum weights in their order; a classical model has none."""
    layers = [layer for layer in case.model().layers if hasattr(layer, "weight_symbols")]
    assert case.workload.symbols(case.options) == tuple(name for layer in layers for name in layer.weight_symbols)


def circuits_can_be_drawn(case: WorkloadCase) -> None:
    """`circuits` gives titles and Cirq circuits."""
    for title, circuit in case.workload.circuits(case.options).items():
        assert title
        assert circuit.to_text_diagram()


def circuits_that_it_tells_are_those_of_the_model(case: WorkloadCase) -> None:
    """`circuit_models`, where there is one, returns what the model's layers ask an engine for, in their order."""
    if not isinstance(case.workload, TellsCircuits):
        return
    layers = [layer for layer in case.model().layers if hasattr(layer, "circuit_model")]
    told = case.workload.circuit_models(case.options)
    assert told == tuple(layer.circuit_model for layer in layers), "the circuits told are not those of the model"


WORKLOAD_CHECKS: tuple[WorkloadCheck, ...] = (
    its_options_are_accepted,
    too_few_examples_are_refused_in_a_line,
    data_has_the_promised_shapes,
    splits_share_no_example,
    the_same_options_give_the_same_bits,
    another_seed_gives_other_data_and_weights,
    the_model_answers_predictions_and_readouts,
    every_weight_is_trained,
    symbols_are_those_of_the_models_layers,
    circuits_can_be_drawn,
    circuits_that_it_tells_are_those_of_the_model,
)
"""All checks; each takes a case."""


def _assert_split(split: Split) -> None:
    assert split.features.dtype == split.labels.dtype == np.float32
    assert split.features.ndim == 2
    assert split.labels.shape == split.features.shape[:1]
    assert len(split) > 0
    assert set(np.unique(split.labels)) <= {-1.0, 1.0}


def _rows(split: Split) -> set[bytes]:
    return {row.tobytes() for row in split.features}


def _split_bits(split: Split) -> bytes:
    return split.features.tobytes() + split.labels.tobytes()


def _bits(data: DataSet) -> tuple[bytes, bytes]:
    return _split_bits(data.train), _split_bits(data.test)


def _weights(model: Any) -> tuple[bytes, ...]:
    return tuple(weight.tobytes() for weight in model.get_weights())
