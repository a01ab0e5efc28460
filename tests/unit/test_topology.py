"""Which replicas a job has, in which order, and under which addresses."""

import pytest

from qmljob_api.types import Metadata, QMLJob, QMLJobSpec, ReplicaSpec, ReplicaSpecs, Role
from qmljob_operator.topology import Topology, build_topology, service_addresses


def job(port: int = 2222, **counts: int) -> QMLJob:
    specs = {role: ReplicaSpec(replicas=count, template={}) for role, count in counts.items()}
    return QMLJob(
        metadata=Metadata(name="qcnn", namespace="lab"),
        spec=QMLJobSpec(replica_specs=ReplicaSpecs(**specs), port=port),
    )


@pytest.mark.parametrize(
    ("counts", "names", "chief"),
    [
        ({"worker": 1}, ["qcnn-worker-0"], "qcnn-worker-0"),
        ({"worker": 2}, ["qcnn-worker-0", "qcnn-worker-1"], "qcnn-worker-0"),
        ({"worker": 1, "chief": 1}, ["qcnn-chief-0", "qcnn-worker-0"], "qcnn-chief-0"),
        (
            {"evaluator": 1, "ps": 1, "worker": 1},
            ["qcnn-worker-0", "qcnn-ps-0", "qcnn-evaluator-0"],
            "qcnn-worker-0",
        ),
    ],
    ids=["one", "two workers", "a chief comes first", "the order of roles is fixed"],
)
def test_replicas_come_in_the_order_of_role_and_index(counts: dict[str, int], names: list[str], chief: str) -> None:
    topology = build_topology(job(**counts))
    assert [replica.name for replica in topology.replicas] == names
    assert topology.chief.name == chief


def test_replicas_are_ordered_by_number_not_by_text() -> None:
    workers = build_topology(job(worker=11)).of(Role.WORKER)
    assert [replica.index for replica in workers] == list(range(11))


def test_a_topology_without_anyone_who_trains_has_no_chief() -> None:
    with pytest.raises(ValueError, match="neither a chief nor a worker"):
        _ = Topology(()).chief


def test_an_address_is_the_services_name_in_its_namespace() -> None:
    one = job(port=7, worker=1, evaluator=1)
    assert service_addresses(one, build_topology(one)) == {
        "qcnn-worker-0": "qcnn-worker-0.lab.svc:7",
        "qcnn-evaluator-0": "qcnn-evaluator-0.lab.svc:7",
    }


def test_the_cluster_leaves_the_evaluator_out() -> None:
    one = job(worker=2, chief=1, evaluator=1)
    topology = build_topology(one)
    assert topology.cluster({replica.name: f"{replica.name}:1" for replica in topology.replicas}) == {
        "chief": ("qcnn-chief-0:1",),
        "worker": ("qcnn-worker-0:1", "qcnn-worker-1:1"),
    }
