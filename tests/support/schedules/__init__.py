"""Random schedules: whole operators in virtual time, on an API server in a dictionary (docs/chaos.md)."""
