"""The worker program of QMLJob: workload x strategy x engine, with checkpoints, stores and progress.

`python -m qmljob_training --help` lists the flags. A user's package adds a workload, a strategy or an engine through
the entry-point groups `qmljob.workloads`, `qmljob.strategies` and `qmljob.engines`.
"""
