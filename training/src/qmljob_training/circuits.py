"""Puts circuits together to what an engine takes. Without TensorFlow: also used before that is set up."""

from collections.abc import Sequence

import cirq

from qmljob_training.engines.protocol import CircuitModel
from qmljob_training.errors import ConfigurationError


def circuit_model(
    encoding: cirq.Circuit,
    ansatz: cirq.Circuit,
    observables: Sequence[cirq.PauliSum | cirq.PauliString],
    feature_symbols: Sequence[str] | None = None,
) -> CircuitModel:
    """Checks circuits against each other and orders their symbols (see QuantumLayer).

    Raises:
        ConfigurationError: a symbol is in both circuits, the features don't match the encoding's symbols, or an
            observable can't be read.
    """
    encoded = cirq.parameter_names(encoding)
    trained = cirq.parameter_names(ansatz)
    if shared := encoded & trained:
        raise ConfigurationError(f"symbols in both encoding and ansatz: {', '.join(sorted(shared))}; rename one side")
    features = tuple(feature_symbols) if feature_symbols is not None else tuple(sorted(encoded))
    if set(features) != encoded or len(features) != len(encoded):
        raise ConfigurationError(
            f"feature_symbols {', '.join(features)} are not the encoding's symbols {', '.join(sorted(encoded))}"
        )
    if not observables:
        raise ConfigurationError("no observables: give a Pauli string or Pauli sum for each readout")
    sums = tuple(
        term if isinstance(term, cirq.PauliSum) else cirq.PauliSum.from_pauli_strings(term) for term in observables
    )
    if bad := next((term for term in sums if any(abs(pauli.coefficient.imag) > 0 for pauli in term)), None):
        raise ConfigurationError(f"observable {bad} is not Hermitian: give its terms real coefficients")
    return CircuitModel(encoding, ansatz, sums, features, tuple(sorted(trained)))
