"""Workloads: a model together with its data set. `protocol.py` says what one is; `qcnn.py` is the first."""
