"""Strategies: how replicas work together. `protocol.py` says what one is."""
