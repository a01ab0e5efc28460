"""The contract of QMLJob: what the operator, the client, the worker and the inference program agree on.

Everything here is plain data and pure functions. The room depends on pydantic and on nothing else.
"""
