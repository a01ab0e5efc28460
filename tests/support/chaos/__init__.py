"""Crashes and faults at every call of every scenario, and what must hold all the same (docs/chaos.md)."""
