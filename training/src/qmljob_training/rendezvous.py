"""How this replica finds the others: TF_CONFIG, read once and checked."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from qmljob_api import environment
from qmljob_api.names import replica_name
from qmljob_api.tfconfig import TFConfigError, parse_tf_config
from qmljob_training.errors import ConfigurationError


@dataclass(frozen=True)
class Peer:
    """Another replica: its name (`qcnn-worker-1`) and its address (`host:port`)."""

    name: str
    address: str


@dataclass(frozen=True)
class Rendezvous:
    """This replica's place in the gang.

    Attributes:
        role, index: of this replica.
        members: the replicas that compute gradients, the chief first, then the workers by index.
        roles: every role in TF_CONFIG's cluster.
        address: this replica's own `host:port`; None where there is no TF_CONFIG.
    """

    role: str
    index: int
    members: tuple[Peer, ...]
    roles: frozenset[str]
    address: str | None

    @property
    def port(self) -> int | None:
        """This replica's own port; None where there is no TF_CONFIG."""
        return int(self.address.rsplit(":", 1)[1]) if self.address is not None else None

    @property
    def workers(self) -> int:
        """The number of replicas that compute gradients."""
        return max(1, len(self.members))

    @property
    def rank(self) -> int:
        """This replica's position among those that compute gradients."""
        return self.index + (1 if self.role == "worker" and "chief" in self.roles else 0)

    @property
    def is_chief(self) -> bool:
        """Whether this replica writes checkpoints and the artifact."""
        return self.role in ("chief", "worker") and self.rank == 0

    @property
    def peers(self) -> tuple[Peer, ...]:
        """The other replicas that compute gradients."""
        return tuple(peer for rank, peer in enumerate(self.members) if rank != self.rank)


def read_rendezvous(env: Mapping[str, str]) -> Rendezvous:
    """Reads TF_CONFIG; without it this process is the only worker.

    Raises:
        ConfigurationError: TF_CONFIG is not valid.
    """
    text = env.get(environment.TF_CONFIG, "")
    if not text.strip():
        return Rendezvous(role="worker", index=0, members=(), roles=frozenset(("worker",)), address=None)
    try:
        config = parse_tf_config(text)
    except TFConfigError as error:
        raise ConfigurationError(str(error)) from error
    job = env.get(environment.NAME, "")
    members = tuple(
        Peer(replica_name(job, role, index) if job else f"{role}-{index}", address)
        for role in ("chief", "worker")
        for index, address in enumerate(config.cluster.get(role, ()))
    )
    own = config.cluster.get(config.task.type, ())
    return Rendezvous(
        role=str(config.task.type),
        index=config.task.index,
        members=members,
        roles=frozenset(str(role) for role in config.cluster),
        address=own[config.task.index] if own else None,
    )


def check_port(port: int, what: str) -> None:
    """Raises ConfigurationError where `port` is taken on this machine; `what` names it to the user."""
    bound(port, what).close()


def bound(port: int, what: str) -> socket.socket:
    """Returns a socket that holds a port of this machine.

    gRPC binds with SO_REUSEPORT: a second server on the same port would start without an error and take away part of
    the connections. SO_REUSEADDR alone tells a listening socket from one that is merely in TIME_WAIT.

    Raises:
        ConfigurationError: another process listens there.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind(("0.0.0.0", port))  # as TensorFlow's server does
    except OSError as error:
        holder.close()
        raise ConfigurationError(
            f"{what} {port} can't be used ({error.strerror}): end the process that listens there, "
            "or choose another port"
        ) from error
    return holder
