"""A replica's pod."""

from collections.abc import Mapping
from typing import Any

from qmljob_api import environment, names
from qmljob_api.tfconfig import build_tf_config
from qmljob_api.types import QMLJob, ReplicaSpec
from qmljob_operator.resources import common
from qmljob_operator.topology import Replica, Topology


def build_pod(
    job: QMLJob,
    topology: Topology,
    replica: Replica,
    *,
    attempt: int,
    restarts: int,
    addresses: Mapping[str, str],
    ports: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Returns the complete v1 Pod of a replica.

    Args:
        job: the job; its template is copied, never changed.
        topology: the replicas of the job.
        replica: the one to build.
        attempt: the gang's attempt, from 0.
        restarts: restarts charged so far.
        addresses: each replica's name to its rendezvous, `host:port` (see `service_addresses`).
        ports: this replica's own number for each name of `spec.ports`; those of the job where absent. A local run,
            where all replicas share one address, gives each its own.
    """
    template = _spec_of(job, replica).template
    numbers = {port.name: port.port for port in job.spec.ports} | dict(ports or {})
    spec = common.pod_spec(template)
    container = common.main_container(spec, names.TRAINER_CONTAINER_NAMES)
    tf_config = build_tf_config(topology.cluster(addresses), replica.role.value, replica.index)
    common.add_environment(
        container,
        {
            environment.TF_CONFIG: tf_config,
            **common.job_environment(job),
            environment.ATTEMPT: str(attempt),
            environment.RESTARTS: str(restarts),
            **{environment.port_variable(name): str(number) for name, number in numbers.items()},
        },
    )
    _declare_ports(container, {names.RENDEZVOUS_PORT_NAME: job.spec.port, **numbers})
    own_labels = {
        **common.labels(job, replica.role.value),
        names.LABEL_ROLE: replica.role.value,
        names.LABEL_INDEX: str(replica.index),
        names.LABEL_ATTEMPT: str(attempt),
    }
    base = common.metadata(job, replica.name, own_labels)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": common.template_metadata(template, base),
        "spec": spec,
    }


def _spec_of(job: QMLJob, replica: Replica) -> ReplicaSpec:
    return dict(job.spec.replica_specs.present())[replica.role]


def _declare_ports(container: common.Object, ports: Mapping[str, int]) -> None:
    own: list[common.Object] = container.get("ports") or []
    numbers = {entry.get("containerPort") for entry in own if entry.get("protocol", "TCP") == "TCP"}
    taken = {entry.get("name") for entry in own}
    declared: list[common.Object] = []
    for name, number in ports.items():
        if number in numbers:
            continue
        # A port's name is unique in a container: where the user gave it to another number, ours goes without one.
        entry: common.Object = {"containerPort": number, "protocol": "TCP"}
        declared.append(entry if name in taken else {"name": name, **entry})
    container["ports"] = [*own, *declared]
