"""Which replicas a job has, and how they find each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qmljob_api.names import replica_name
from qmljob_api.types import QMLJob, Role


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod of a role."""

    role: Role
    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Topology:
    """All replicas of a job: roles in the order of `Role`, each role's replicas in the order of their index."""

    replicas: tuple[Replica, ...]

    @property
    def chief(self) -> Replica:
        """The replica whose success is the job's under successPolicy Chief: the chief, else worker 0.

        Raises ValueError for a topology without chief and worker, which the parser lets no job have.
        """
        for role in (Role.CHIEF, Role.WORKER):
            for replica in self.of(role):
                return replica
        raise ValueError("this topology has neither a chief nor a worker: add one to spec.replicaSpecs")

    def of(self, role: Role) -> tuple[Replica, ...]:
        """Returns the replicas of a role, in the order of their index."""
        return tuple(replica for replica in self.replicas if replica.role is role)

    def cluster(self, addresses: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Returns TF_CONFIG's `cluster`: role to the addresses of its replicas, without the evaluator.

        `addresses` maps a replica's name to its `host:port`.
        """
        members = {role: self.of(role) for role in Role if role is not Role.EVALUATOR}
        return {
            role.value: tuple(addresses[replica.name] for replica in replicas)
            for role, replicas in members.items()
            if replicas
        }


def build_topology(job: QMLJob) -> Topology:
    """Returns the replicas that the job asks for."""
    return topology_of(job.metadata.name, {role: spec.replicas for role, spec in job.spec.replica_specs.present()})


def topology_of(job_name: str, roles: Mapping[Role, int]) -> Topology:
    """Returns the replicas of a job of this name that has so many of each role."""
    return Topology(
        tuple(
            Replica(role, index, replica_name(job_name, role.value, index))
            for role in Role
            for index in range(roles.get(role, 0))
        )
    )


def service_addresses(job: QMLJob, topology: Topology) -> dict[str, str]:
    """Returns each replica's rendezvous address on a cluster: its name to `qcnn-worker-0.<namespace>.svc:2222`."""
    return {
        replica.name: f"{replica.name}.{job.metadata.namespace}.svc:{job.spec.port}" for replica in topology.replicas
    }


def listed(names: Sequence[str]) -> str:
    """Returns names as a person lists them; of many, the first three: `a, b, c and 5 more`."""
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:3])} and {len(names) - 3} more"
