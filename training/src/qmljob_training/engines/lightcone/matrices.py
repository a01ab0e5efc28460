"""From the values of symbols to the matrices of all blocks of one width, as few wide TensorFlow ops."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from qmljob_training.engines.lightcone.fusion import Block
from qmljob_training.engines.lightcone.lowering import Affine, Primitive

if TYPE_CHECKING:
    import tensorflow as tf

Matrix = NDArray[np.complex128]


def embed(matrix: Matrix, places: Sequence[int], width: int) -> Matrix:
    """Returns `matrix`, which acts on the qubits at `places`, as a matrix on `width` qubits."""
    rest = [index for index in range(width) if index not in places]
    order = np.argsort([*places, *rest])
    whole = np.kron(matrix, np.eye(2 ** len(rest))).reshape((2,) * (2 * width))
    axes = (*order, *(order + width))
    return np.asarray(whole.transpose(axes).reshape(2**width, 2**width), np.complex128)


def constant_matrix(block: Block) -> Matrix:
    """Returns the matrix of a block without symbols."""
    width = len(block.qubits)
    matrix = np.eye(2**width, dtype=np.complex128)
    for primitive, places in block.members:
        matrix = embed(primitive.unitary(primitive.exponent.constant), places, width) @ matrix
    return matrix


@dataclass(frozen=True)
class _Factor:
    """A primitive on all qubits of its block, with the constants beside it multiplied in."""

    exponent: Affine
    frequencies: NDArray[np.float64]
    matrices: Matrix


@dataclass(frozen=True, eq=False)
class MatrixTable:
    """All distinct blocks of one width: products of factors, padded to the same length with identities.

    Attributes:
        scales: float64 [blocks, length, symbols]: exponents = scales @ symbols + constants.
        constants: float64 [blocks, length].
        frequencies: float64 [blocks, length, components].
        components: complex128 [blocks, length, components, d, d].
    """

    scales: NDArray[np.float64]
    constants: NDArray[np.float64]
    frequencies: NDArray[np.float64]
    components: Matrix

    def unitaries(self, symbols: "tf.Tensor") -> "tf.Tensor":
        """Returns the matrices, complex [..., blocks, d, d], for values of the symbols [..., symbols]."""
        import tensorflow as tf

        real = symbols.dtype
        complex_type = tf.complex64 if real == tf.float32 else tf.complex128
        exponents = tf.einsum("...s,bls->...bl", symbols, tf.constant(self.scales, real))
        exponents += tf.constant(self.constants, real)
        angles = exponents[..., tf.newaxis] * tf.constant(np.pi * self.frequencies, real)
        phases = tf.complex(tf.cos(angles), tf.sin(angles))[..., tf.newaxis, tf.newaxis]
        factors = tf.reduce_sum(phases * tf.constant(self.components, complex_type), axis=-3)
        return _ordered_product(factors)


def matrix_table(blocks: Sequence[Block], symbols: Sequence[str]) -> MatrixTable:
    """Returns the table of blocks, all on the same number of qubits, in their order."""
    chains = [_factors(block) for block in blocks]
    size = 2 ** len(blocks[0].qubits)
    length = max(1, *(len(chain) for chain in chains)) if len(chains) > 1 else max(1, len(chains[0]))
    terms = max((len(factor.frequencies) for chain in chains for factor in chain), default=1)
    place = {name: index for index, name in enumerate(symbols)}
    scales = np.zeros((len(chains), length, len(symbols)))
    constants = np.zeros((len(chains), length))
    frequencies = np.zeros((len(chains), length, terms))
    components = np.zeros((len(chains), length, terms, size, size), np.complex128)
    components[:, :, 0] = np.eye(size)
    for row, chain in enumerate(chains):
        for column, factor in enumerate(chain):
            for name, scale in factor.exponent.terms:
                scales[row, column, place[name]] = scale
            constants[row, column] = factor.exponent.constant
            frequencies[row, column, : len(factor.frequencies)] = factor.frequencies
            components[row, column, : len(factor.frequencies)] = factor.matrices
    return MatrixTable(scales, constants, frequencies, components)


def _factors(block: Block) -> list[_Factor]:
    width = len(block.qubits)
    factors: list[_Factor] = []
    before = np.eye(2**width, dtype=np.complex128)
    for primitive, places in block.members:
        if not primitive.symbols:
            constant = embed(primitive.unitary(primitive.exponent.constant), places, width)
            if factors:
                factors[-1] = _Factor(factors[-1].exponent, factors[-1].frequencies, constant @ factors[-1].matrices)
            else:
                before = constant @ before
            continue
        matrices = _embedded(primitive, places, width)
        factors.append(_Factor(primitive.exponent, primitive.frequencies, matrices if factors else matrices @ before))
    return factors or [_Factor(Affine(), np.zeros(1), before[np.newaxis])]


def _embedded(primitive: Primitive, places: Sequence[int], width: int) -> Matrix:
    return np.array([embed(matrix, places, width) for matrix in primitive.matrices])


def _ordered_product(factors: "tf.Tensor") -> "tf.Tensor":
    """Returns factors[-1] @ ... @ factors[0] over axis -3, in pairs: the depth is logarithmic."""
    import tensorflow as tf

    length = factors.shape[-3]
    while length > 1:
        paired = tf.linalg.matmul(factors[..., 1::2, :, :], factors[..., 0 : length - 1 : 2, :, :])
        factors = paired if length % 2 == 0 else tf.concat([paired, factors[..., -1:, :, :]], axis=-3)
        length = factors.shape[-3]
    return factors[..., 0, :, :]
