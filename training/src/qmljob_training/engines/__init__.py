"""Engines: what simulates circuits. `protocol.py` says what one is; `tfq.py` is TensorFlow Quantum."""
