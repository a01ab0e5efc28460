"""A replica's Service: headless, with every port, found under the pod's own name."""

from typing import Any

from qmljob_api.parse import parse_job
from qmljob_operator.resources.pod import build_pod
from qmljob_operator.resources.service import build_service
from qmljob_operator.topology import build_topology, service_addresses

MANIFEST: dict[str, Any] = {
    "apiVersion": "qml.dev/v1alpha1",
    "kind": "QMLJob",
    "metadata": {"name": "qcnn", "namespace": "lab", "uid": "u-1"},
    "spec": {
        "ports": [{"name": "profiler", "port": 2223}],
        "replicaSpecs": {"worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "a"}]}}}},
    },
}


def test_the_service_publishes_all_ports_of_one_replica_before_it_is_ready() -> None:
    job = parse_job(MANIFEST).job
    assert job is not None
    service = build_service(job, build_topology(job).replicas[1])
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    assert service["metadata"]["name"] == "qcnn-worker-1"
    assert service["metadata"]["namespace"] == "lab"
    assert service["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"qml.dev/job": "qcnn", "qml.dev/role": "worker", "qml.dev/index": "1"},
        "ports": [
            {"name": "rendezvous", "port": 2222, "targetPort": 2222, "protocol": "TCP"},
            {"name": "profiler", "port": 2223, "targetPort": 2223, "protocol": "TCP"},
        ],
    }


def test_each_service_selects_exactly_its_own_pod_in_every_attempt() -> None:
    job = parse_job(MANIFEST).job
    assert job is not None
    topology = build_topology(job)
    addresses = service_addresses(job, topology)
    for attempt in (0, 5):
        pods = [
            build_pod(job, topology, replica, attempt=attempt, restarts=0, addresses=addresses)
            for replica in topology.replicas
        ]
        for replica in topology.replicas:
            selector = build_service(job, replica)["spec"]["selector"].items()
            selected = [pod["metadata"]["name"] for pod in pods if selector <= pod["metadata"]["labels"].items()]
            assert selected == [replica.name]
