"""The tutorial's data set as plain arrays: one rotated qubit an example."""

from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

QUBITS = 8
ROUNDS = 20
EXAMPLES = ROUNDS * QUBITS


class DataFileError(Exception):
    """A data file that cannot be used; the message says why."""


def draw_features(random: np.random.RandomState) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Draws excitations: for each round and each qubit, one angle uniform in [-π, π) on that qubit alone.

    Returns features of shape [160, 8] (the angle of each qubit's x rotation) and labels of shape [160]: 1 where the
    angle's magnitude is at most π/2, else -1.
    """
    angles = random.uniform(-np.pi, np.pi, size=EXAMPLES)
    features = np.zeros((EXAMPLES, QUBITS), np.float32)
    features[np.arange(EXAMPLES), np.arange(EXAMPLES) % QUBITS] = angles
    labels = np.where(np.abs(angles) <= np.pi / 2, 1.0, -1.0).astype(np.float32)
    return features, labels


def read_features(path: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Reads `features` [n, 8] and `labels` [n] from an .npz file.

    Raises:
        DataFileError: the file cannot be read, or an array is missing or of the wrong shape.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            features = np.asarray(arrays["features"], np.float32)
            labels = np.asarray(arrays["labels"], np.float32).reshape(-1)
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise DataFileError(f"{path}: no .npz file with arrays `features` and `labels` ({error})") from None
    if features.shape != (len(labels), QUBITS):
        raise DataFileError(f"{path}: features of shape {features.shape}, expected ({len(labels)}, {QUBITS})")
    return features, labels
