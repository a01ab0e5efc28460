"""TF_CONFIG: how the replicas of a gang find each other, as `TFConfigClusterResolver` reads it.

The format is TensorFlow's: https://www.tensorflow.org/guide/distributed_training#setting_up_tf_config_environment_variable
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qmljob_api.types import Role

_ROLES = ", ".join(role.value for role in Role)


class TFConfigError(ValueError):
    """TF_CONFIG can't be used; the message is one line and says what would be right."""


@dataclass(frozen=True, slots=True)
class Task:
    """Which replica of the cluster this process is."""

    type: str
    index: int


@dataclass(frozen=True, slots=True)
class TFConfig:
    """A checked TF_CONFIG. `cluster` maps a role to the `host:port` of its replicas, in the order of their index."""

    cluster: dict[str, tuple[str, ...]]
    task: Task

    @property
    def chief(self) -> Task:
        """The task that writes checkpoints and the artifact: the chief, else worker 0."""
        return Task(Role.CHIEF.value if Role.CHIEF.value in self.cluster else Role.WORKER.value, 0)

    @property
    def is_chief(self) -> bool:
        """Whether this process is the chief."""
        return self.task == self.chief

    @property
    def address(self) -> str | None:
        """This process's own `host:port`; None for an evaluator, which nobody connects to."""
        return self.cluster[self.task.type][self.task.index] if self.task.type in self.cluster else None


def build_tf_config(cluster: Mapping[str, Sequence[str]], role: str, index: int) -> str:
    """Returns TF_CONFIG's value for one replica. An evaluator's `role` is not a key of `cluster`."""
    document = {
        "cluster": {name: list(addresses) for name, addresses in cluster.items()},
        "task": {"type": str(role), "index": index},
    }
    return json.dumps(document)


def parse_tf_config(text: str) -> TFConfig:
    """Returns what a TF_CONFIG says. Raises TFConfigError with one line that says what is wrong and what to do."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        raise TFConfigError(f"TF_CONFIG is not JSON{where}: write one object with 'cluster' and 'task'") from None
    if not isinstance(document, dict):
        raise TFConfigError("TF_CONFIG is not a JSON object: write one with 'cluster' and 'task'")
    cluster = _cluster(document.get("cluster"))
    return TFConfig(cluster, _task(document.get("task"), cluster))


def _cluster(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict) or not value:
        raise TFConfigError('TF_CONFIG has no cluster: give it as {"worker": ["host:port", …]}')
    cluster: dict[str, tuple[str, ...]] = {}
    seen: dict[str, str] = {}
    for role, addresses in value.items():
        _check_role(role, "cluster")
        if role == Role.EVALUATOR.value:
            raise TFConfigError("TF_CONFIG's cluster has an evaluator: remove it; an evaluator is a task only")
        if not isinstance(addresses, list) or not addresses:
            raise TFConfigError(f'TF_CONFIG\'s cluster.{role} is not a list of addresses: give it as ["host:port", …]')
        for index, address in enumerate(addresses):
            where = f"cluster.{role}[{index}]"
            _check_address(address, where)
            if address in seen:
                raise TFConfigError(f"TF_CONFIG has the address {address} twice, at {seen[address]} and {where}")
            seen[address] = where
        cluster[role] = tuple(addresses)
    if Role.CHIEF.value not in cluster and Role.WORKER.value not in cluster:
        raise TFConfigError("TF_CONFIG's cluster has neither a chief nor a worker: add one")
    return cluster


def _task(value: Any, cluster: dict[str, tuple[str, ...]]) -> Task:
    if not isinstance(value, dict) or "type" not in value or "index" not in value:
        raise TFConfigError('TF_CONFIG has no task: give it as {"type": "worker", "index": 0}')
    role, index = value["type"], value["index"]
    _check_role(role, "task.type")
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise TFConfigError(f"TF_CONFIG's task.index is {_shown(index)}: give a whole number from 0")
    if role == Role.EVALUATOR.value:
        return Task(role, index)
    if role not in cluster:
        raise TFConfigError(f"TF_CONFIG's task is a {role}, but its cluster has none: add {role!r} to the cluster")
    size = len(cluster[role])
    if index >= size:
        raise TFConfigError(
            f"TF_CONFIG's task.index is {index}, but the cluster has {size} of {role}: use 0 to {size - 1}"
        )
    return Task(role, index)


def _check_role(role: Any, where: str) -> None:
    if not isinstance(role, str) or role not in {member.value for member in Role}:
        raise TFConfigError(f"TF_CONFIG's {where} names the unknown role {_shown(role)}: use one of {_ROLES}")


def _check_address(address: Any, where: str) -> None:
    host, separator, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    valid_port = port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535
    if not separator or not host or host != host.strip() or "/" in host or not valid_port:
        raise TFConfigError(f"TF_CONFIG's {where} is {_shown(address)}: give host:port, with a port from 1 to 65535")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"
