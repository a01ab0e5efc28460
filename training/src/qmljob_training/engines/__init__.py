"""Engines simulate circuits. `protocol.py` says what one is; `tfq.py` is TensorFlow Quantum, `lightcone` our own."""
