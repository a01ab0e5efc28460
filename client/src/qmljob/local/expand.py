"""`$(VAR)` in commands, arguments and environment values, as the kubelet expands it.

By the API reference of `EnvVar.value` and `Container.command`: `$$` stands for one `$`, so `$$(VAR)` is the text
`$(VAR)`; a reference to a variable that the container doesn't have stays as it is written.
"""

import re
from collections.abc import Iterable, Mapping

_TOKEN = re.compile(r"\$\$|\$\(([^)]*)\)")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Returns `text` with its references to `variables` replaced."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _TOKEN.sub(value, text)


def expand_environment(entries: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns the variables of a container: a value may refer to the variables that stand before it."""
    variables: dict[str, str] = {}
    for name, value in entries:
        variables[name] = expand(value, variables)
    return variables
