"""The data set: cluster states of which one qubit is rotated, labelled by how far."""

import cirq
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob_training.workloads import cluster_excitation
from qmljob_training.workloads.protocol import DataSet, Split, WorkloadOptions

properties = settings(derandomize=True, deadline=None, max_examples=50)
registers = st.integers(3, 12)
counts = st.integers(2, 200)
seeds = st.integers(0, 2**31 - 1)


def rows(split: Split) -> set[bytes]:
    return {row.tobytes() for row in split.features}


def state_vector(circuit: cirq.Circuit, qubits: list[cirq.GridQubit]) -> np.ndarray:
    return cirq.Simulator(dtype=np.complex128).simulate(circuit, qubit_order=qubits).final_state_vector


@properties
@given(registers, counts, seeds)
def test_example_i_rotates_qubit_i_mod_n_alone(qubits: int, examples: int, seed: int) -> None:
    features = cluster_excitation.draw(qubits, examples, seed).features
    assert features.shape == (examples, qubits)
    assert features.dtype == np.float32
    rotated = np.zeros_like(features, dtype=bool)
    rotated[np.arange(examples), np.arange(examples) % qubits] = True
    assert not features[~rotated].any()
    assert (np.abs(features[rotated]) <= np.float32(np.pi)).all()


@properties
@given(registers, counts, seeds)
def test_a_label_says_whether_the_angle_is_at_most_half_pi(qubits: int, examples: int, seed: int) -> None:
    drawn = cluster_excitation.draw(qubits, examples, seed)
    angles = drawn.features.astype(np.float64).sum(axis=1)
    certain = np.abs(np.abs(angles) - np.pi / 2) > 1e-6  # float32 may round an angle across the border
    np.testing.assert_array_equal(
        drawn.labels[certain], np.where(np.abs(angles[certain]) <= np.pi / 2, np.float32(1), np.float32(-1))
    )
    assert drawn.labels.dtype == np.float32


def test_angles_are_uniform_on_the_whole_circle() -> None:
    angles = cluster_excitation.draw(5, 20_000, 3).features.sum(axis=1)
    counts_in_bins, _ = np.histogram(angles, bins=8, range=(-np.pi, np.pi))
    # 2,500 expected in each; 5 standard deviations of a binomial count are 234.
    assert np.abs(counts_in_bins - 2500).max() < 234


@properties
@given(registers, counts, seeds)
def test_the_splits_unite_to_what_was_drawn_and_share_nothing(qubits: int, examples: int, seed: int) -> None:
    options = WorkloadOptions(qubits, examples, seed)
    data, drawn = cluster_excitation.data_set(options), cluster_excitation.draw(qubits, examples, seed)
    np.testing.assert_array_equal(np.concatenate([data.train.features, data.test.features]), drawn.features)
    np.testing.assert_array_equal(np.concatenate([data.train.labels, data.test.labels]), drawn.labels)
    assert rows(data.train) & rows(data.test) == set()
    assert len(data.train) == int(examples * 0.7)  # the tutorial's own split


@pytest.mark.parametrize(("examples", "train"), [(2, 1), (3, 2), (10, 7), (160, 112), (200, 140)])
def test_seven_tenths_are_for_training(examples: int, train: int) -> None:
    assert cluster_excitation.train_size(examples) == train


def bits_of(data: DataSet) -> bytes:
    return b"".join(part.tobytes() for split in (data.train, data.test) for part in (split.features, split.labels))


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    drawn = [bits_of(cluster_excitation.data_set(WorkloadOptions(8, 160, seed))) for seed in (0, 0, 1, 2**31 - 1)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3


def test_fewer_examples_of_a_seed_are_the_first_of_more() -> None:
    few, many = cluster_excitation.draw(4, 10, 5), cluster_excitation.draw(4, 40, 5)
    np.testing.assert_array_equal(few.features, many.features[:10])


@pytest.mark.parametrize("qubits", range(3, 9))
def test_the_cluster_state_is_held_by_its_stabilisers(qubits: int) -> None:
    # Briegel and Raussendorf 2001: K_i = Z_{i-1} X_i Z_{i+1} on a ring, each with expectation value 1.
    bits = cluster_excitation.register(qubits)
    state = state_vector(cluster_excitation.cluster_state(bits), bits)
    positions = {bit: index for index, bit in enumerate(bits)}
    for index in range(qubits):
        left, right = bits[index - 1], bits[(index + 1) % qubits]
        stabiliser = cirq.Z(left) * cirq.X(bits[index]) * cirq.Z(right)
        assert stabiliser.expectation_from_state_vector(state, positions) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("qubits", [3, 4, 7])
def test_the_encoding_is_the_cluster_state_then_one_rotation_a_qubit(qubits: int) -> None:
    bits = cluster_excitation.register(qubits)
    angles = np.random.default_rng(0).uniform(-np.pi, np.pi, qubits)
    names = cluster_excitation.feature_symbols(qubits)
    resolved = cirq.resolve_parameters(cluster_excitation.encoding(bits), dict(zip(names, angles, strict=True)))
    expected = state_vector(cluster_excitation.cluster_state(bits), bits)
    for position, angle in enumerate(angles):
        # exp(-i angle X / 2) on one axis of the tensor, written out.
        rotation = np.array(
            [[np.cos(angle / 2), -1j * np.sin(angle / 2)], [-1j * np.sin(angle / 2), np.cos(angle / 2)]]
        )
        tensor = np.moveaxis(expected.reshape((2,) * qubits), position, 0)
        expected = np.moveaxis(np.tensordot(rotation, tensor, axes=1), 0, position).reshape(-1)
    np.testing.assert_allclose(state_vector(resolved, bits), expected, atol=1e-12)


@pytest.mark.parametrize("qubits", [3, 10, 100])
def test_feature_symbols_sort_as_they_count(qubits: int) -> None:
    names = cluster_excitation.feature_symbols(qubits)
    assert len(set(names)) == qubits
    assert list(names) == sorted(names)
