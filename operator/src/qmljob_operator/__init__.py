"""Builders and policies of QMLJob: pure functions from a job to what should be, and from what happened to what follows.

Nothing here reads a clock, an environment or a cluster, and nothing changes its arguments.
"""
