"""Native loops for engine `lightcone`, as TensorFlow ops: C++ in `source/`, compiled where it is installed.

`python -m qmljob_training native build` compiles them; `make setup` and the worker image do so. Without them the engine
computes the same numbers by TensorFlow and XLA.
"""
