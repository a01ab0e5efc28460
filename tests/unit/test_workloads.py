"""The two networks as workloads: the shipped contract, their sizes, what they refuse."""

from qmljob_training import runtime

runtime.prepare_environment()  # before TensorFlow is imported below

import cirq  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

from qmljob_training import plugins  # noqa: E402
from qmljob_training.engines.tfq import TfqEngine  # noqa: E402
from qmljob_training.errors import ConfigurationError  # noqa: E402
from qmljob_training.testing.workload_contract import (  # noqa: E402
    WORKLOAD_CHECKS,
    WorkloadCase,
    WorkloadCheck,
    the_same_options_give_the_same_bits,
)
from qmljob_training.workloads.protocol import Workload, WorkloadOptions  # noqa: E402
from qmljob_training.workloads.qcnn import PureQcnn, Qcnn  # noqa: E402

CASES = [("qcnn", 3), ("qcnn", 4), ("qcnn-pure", 4)]


def workload(name: str) -> Workload:
    return plugins.load(plugins.WORKLOADS, name, Workload)


@pytest.mark.parametrize(("name", "qubits"), CASES)
@pytest.mark.parametrize("check", WORKLOAD_CHECKS, ids=lambda check: check.__name__)
def test_our_workloads_keep_the_contract(check: WorkloadCheck, name: str, qubits: int) -> None:
    check(WorkloadCase(workload(name), WorkloadOptions(qubits, examples=20, seed=5), TfqEngine()))


class Unseeded(Qcnn):
    """A workload that draws from NumPy's global generator."""

    def draw(self, options):
        drawn = super().draw(options)
        return type(drawn)(np.random.permutation(drawn.features), drawn.labels)


def test_the_contract_finds_a_workload_that_is_not_seeded() -> None:
    with pytest.raises(AssertionError):
        the_same_options_give_the_same_bits(WorkloadCase(Unseeded(), WorkloadOptions(3, 20, 0), TfqEngine()))


# A layer trains 20 symbols: 14 of the 15 that its convolution is given, and the 6 of its pooling. The head of `qcnn`
# has readouts x 8 + 8 numbers in its hidden layer and 8 + 1 in its output.
@pytest.mark.parametrize(
    ("name", "qubits", "symbols", "readouts", "parameters"),
    [
        pytest.param("qcnn", 8, 20, 4, 20 + (4 * 8 + 8) + (8 + 1), id="the tutorial's model: 69"),
        pytest.param("qcnn", 3, 20, 2, 20 + (2 * 8 + 8) + (8 + 1), id="the smallest register"),
        pytest.param("qcnn", 5, 20, 3, 20 + (3 * 8 + 8) + (8 + 1), id="an odd register"),
        pytest.param("qcnn-pure", 8, 60, 1, 60, id="the tutorial's first model: three layers"),
        pytest.param("qcnn-pure", 4, 40, 1, 40, id="two layers"),
    ],
)
def test_sizes_of_the_models(name: str, qubits: int, symbols: int, readouts: int, parameters: int) -> None:
    options = WorkloadOptions(qubits, examples=20, seed=0)
    model = workload(name).model(options, TfqEngine())
    assert len(workload(name).symbols(options)) == symbols
    assert model.count_params() == parameters
    assert [tuple(output.shape) for output in model.outputs] == [(None,), (None, readouts)]


def test_quantum_and_classical_weights_have_seeds_of_their_own() -> None:
    # Qubits and examples leave the weights as they are: what differs between two runs is what their flags say.
    few = Qcnn().model(WorkloadOptions(8, 20, 3), TfqEngine()).get_weights()
    many = Qcnn().model(WorkloadOptions(8, 160, 3), TfqEngine()).get_weights()
    for one, other in zip(few, many, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.isin(few[1].ravel(), few[3].ravel()).any()


def test_the_networks_share_their_data() -> None:
    options = WorkloadOptions(8, 160, 2)
    one, other = Qcnn().data(options), PureQcnn().data(options)
    np.testing.assert_array_equal(one.train.features, other.train.features)
    np.testing.assert_array_equal(one.test.labels, other.test.labels)


@pytest.mark.parametrize(
    ("name", "qubits", "examples", "message"),
    [
        pytest.param("qcnn", 2, 160, "--qubits 2: qcnn needs at least 3 qubits", id="two qubits have no ring"),
        pytest.param("qcnn-pure", 2, 160, "--qubits 2: qcnn-pure needs at least 3 qubits", id="two qubits, pure"),
        pytest.param("qcnn-pure", 3, 160, "needs a power of two; use 4", id="three qubits can't be halved"),
        pytest.param("qcnn-pure", 12, 160, "needs a power of two; use 8 or 16", id="twelve can't be halved to one"),
        pytest.param("qcnn", 8, 1, "--examples 1: both splits need an example; use 2 or more", id="one example"),
    ],
)
def test_options_that_cannot_work_are_refused_in_a_line(name: str, qubits: int, examples: int, message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        workload(name).check(WorkloadOptions(qubits, examples, 0))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("name", "qubits"), [("qcnn", 3), ("qcnn", 23), ("qcnn-pure", 8), ("qcnn-pure", 16)])
def test_the_smallest_and_larger_registers_are_accepted(name: str, qubits: int) -> None:
    workload(name).check(WorkloadOptions(qubits, 160, 0))


@pytest.mark.parametrize(("name", "qubits"), CASES)
def test_circuits_to_draw_hold_the_models_own(name: str, qubits: int) -> None:
    options = WorkloadOptions(qubits, 20, 0)
    circuits = workload(name).circuits(options)
    assert {"Encoding", "Ansatz"} <= circuits.keys()
    assert tuple(sorted(cirq.parameter_names(circuits["Ansatz"]))) == workload(name).symbols(options)
