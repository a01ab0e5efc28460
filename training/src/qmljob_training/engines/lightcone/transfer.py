"""Pauli transfer matrices: gates as real matrices on operators.

With the Pauli strings sigma_i on k qubits, U^dagger sigma_i U = sum_j R_ij sigma_j, R_ij = Tr(sigma_i U sigma_j
U^dagger) / 2**k (Greenbaum 2015, arXiv:1509.02921, section 2). For a primitive, R is a trigonometric polynomial of the
exponent, whose frequencies are the differences of the primitive's (Schuld, Sweke and Meyer 2021, arXiv:2008.08605).
"""

from dataclasses import dataclass
from functools import cache, reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from qmljob_training.engines.lightcone.lowering import Primitive

if TYPE_CHECKING:
    import tensorflow as tf

_PAULIS = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]])
_SMALLEST = 1e-12


@cache
def pauli_strings(width: int) -> NDArray[np.complex128]:
    """Returns all Pauli strings, complex128 [4**width, 2**width, 2**width]; I, X, Y, Z, the first qubit's slowest."""

    def product(left: NDArray, right: NDArray) -> NDArray:
        return np.einsum("iab,jcd->ijacbd", left, right).reshape(4 * len(left), 2 * left.shape[1], 2 * left.shape[1])

    return np.asarray(reduce(product, [_PAULIS] * width), np.complex128)


def transfer_matrix(left: NDArray[np.complex128], right: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Returns Tr(sigma_i left sigma_j right^dagger) / d: the transfer matrix where left is right."""
    size = len(left)
    strings = pauli_strings(size.bit_length() - 1)
    moved = np.einsum("ab,jbd,cd->jac", left, strings, right.conj(), optimize=True)
    return np.asarray(np.einsum("ica,jac->ij", strings, moved, optimize=True) / size, np.complex128)


def transfer_matrices(unitaries: "tf.Tensor") -> "tf.Tensor":
    """Returns the transfer matrices, real [blocks, 4**k, 4**k], of unitaries, complex [blocks, 2**k, 2**k]."""
    import tensorflow as tf

    size = unitaries.shape[-1]
    strings = pauli_strings(size.bit_length() - 1)
    into = tf.constant(strings.transpose(0, 2, 1).reshape(len(strings), -1), unitaries.dtype)
    out = tf.constant(strings.reshape(len(strings), -1).T / size, unitaries.dtype)
    pairs = tf.einsum("nab,ncd->nacbd", unitaries, tf.math.conj(unitaries))
    return tf.math.real(into @ tf.reshape(pairs, (-1, size * size, size * size)) @ out)


@dataclass(frozen=True, eq=False)
class TrigonometricTransfer:
    """R(e) = sum_t f_t(e) matrices[t], with f_t(e) = cos(pi frequencies[t] e - pi/2 sines[t]).

    Attributes:
        frequencies: float64 [terms]; 0 for the constant part.
        sines: float64 [terms]: 1 where the term is a sine, else 0.
        matrices: float64 [terms, 4**k, 4**k].
    """

    frequencies: NDArray[np.float64]
    sines: NDArray[np.float64]
    matrices: NDArray[np.float64]


def trigonometric_transfer(primitive: Primitive) -> TrigonometricTransfer:
    """Returns the transfer matrix of a primitive as a function of its exponent."""
    by_frequency: dict[float, NDArray[np.complex128]] = {}
    for one, left in zip(primitive.frequencies, primitive.matrices, strict=True):
        for other, right in zip(primitive.frequencies, primitive.matrices, strict=True):
            frequency = round(float(one - other), 12)
            # exp(i x) R + its conjugate at -x is 2 Re(R) cos x - 2 Im(R) sin x; collect both under |frequency|.
            part = transfer_matrix(left, right)
            if frequency < 0.0:
                frequency, part = -frequency, part.conj()
            by_frequency[frequency] = by_frequency.get(frequency, np.zeros_like(part)) + part
    terms = [(frequency, 0.0, part.real) for frequency, part in by_frequency.items()]
    terms += [(frequency, 1.0, -part.imag) for frequency, part in by_frequency.items() if frequency > 0.0]
    terms = [term for term in sorted(terms, key=lambda term: term[:2]) if np.abs(term[2]).max() > _SMALLEST]
    return TrigonometricTransfer(
        np.array([term[0] for term in terms]), np.array([term[1] for term in terms]), np.array([t[2] for t in terms])
    )
