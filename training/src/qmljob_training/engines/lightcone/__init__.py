"""Engine `lightcone`: exact expectation values from the gates that can influence each readout, under XLA.

A circuit becomes primitives (`lowering.py`), those of a readout's past light cone are kept (`cone.py`) and fused into
blocks of two qubits (`fusion.py`), whose matrices are computed once a call (`matrices.py`). From there two ways lead
to the values: the observable is moved back through the circuit, as a network of small real tensors (`network.py`,
`contraction.py`, `heisenberg.py`), or state vectors are moved forward (`statevector.py`). `costs.py` chooses.
"""
