"""TF_CONFIG as a replica reads it, and the check of its own port."""

import json
import socket
from collections.abc import Iterator

import pytest

from qmljob_training.errors import ConfigurationError
from qmljob_training.rendezvous import Peer, Rendezvous, check_port, read_rendezvous
from qmljob_training.strategies.multi_worker_mirrored import MultiWorkerMirrored

WORKERS = {"worker": ["a:1", "b:2"]}
WITH_CHIEF = {"chief": ["c:3"], "worker": ["a:1", "b:2"]}


def read(cluster: object, role: object, index: object, **env: str) -> Rendezvous:
    return read_rendezvous(
        {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": role, "index": index}}), **env}
    )


# Cluster, task -> rank among those that train, how many there are, whether it is the chief, names of the peers.
PLACES = [
    pytest.param(WORKERS, "worker", 0, (0, 2, True, ["worker-1"]), id="worker 0 is the chief where there is none"),
    pytest.param(WORKERS, "worker", 1, (1, 2, False, ["worker-0"]), id="worker 1"),
    pytest.param({"worker": ["a:1"]}, "worker", 0, (0, 1, True, []), id="a gang of one"),
    pytest.param(WITH_CHIEF, "chief", 0, (0, 3, True, ["worker-0", "worker-1"]), id="the chief comes first"),
    pytest.param(WITH_CHIEF, "worker", 0, (1, 3, False, ["chief-0", "worker-1"]), id="worker 0 behind a chief"),
    pytest.param(WITH_CHIEF, "worker", 1, (2, 3, False, ["chief-0", "worker-0"]), id="worker 1 behind a chief"),
    pytest.param({"chief": ["c:3"]}, "chief", 0, (0, 1, True, []), id="a chief alone"),
]


@pytest.mark.parametrize(("cluster", "role", "index", "expected"), PLACES)
def test_a_replicas_place_in_the_gang(
    cluster: dict[str, list[str]], role: str, index: int, expected: tuple[int, int, bool, list[str]]
) -> None:
    found = read(cluster, role, index)
    assert (found.rank, found.workers, found.is_chief, [peer.name for peer in found.peers]) == expected
    assert found.address == cluster[role][index]
    assert found.port == int(cluster[role][index].split(":")[1])


def test_every_replica_has_a_rank_of_its_own_and_one_is_the_chief() -> None:
    gang = [read(WITH_CHIEF, role, index) for role, addresses in WITH_CHIEF.items() for index in range(len(addresses))]
    assert sorted(replica.rank for replica in gang) == [0, 1, 2]
    assert [replica.is_chief for replica in gang].count(True) == 1
    assert {replica.members for replica in gang} == {gang[0].members}


@pytest.mark.parametrize("env", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "  \n"}], ids=["unset", "empty", "blank"])
def test_without_tf_config_a_process_is_the_only_worker(env: dict[str, str]) -> None:
    found = read_rendezvous(env)
    assert (found.role, found.rank, found.workers, found.is_chief, found.peers) == ("worker", 0, 1, True, ())
    assert found.address is None
    assert found.port is None


def test_peers_carry_the_jobs_name_where_there_is_one() -> None:
    assert read(WORKERS, "worker", 0, QMLJOB_NAME="qcnn").peers == (Peer("qcnn-worker-1", "b:2"),)


BAD = [
    pytest.param("{", "TF_CONFIG is not JSON at character 2", id="not JSON"),
    pytest.param("[]", "TF_CONFIG is not a JSON object", id="a list"),
    pytest.param('{"task": {"type": "worker", "index": 0}}', "TF_CONFIG has no cluster", id="no cluster"),
    pytest.param('{"cluster": {"worker": ["a:1"]}}', "TF_CONFIG has no task", id="no task"),
    pytest.param(
        '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 2}}',
        "TF_CONFIG's task.index is 2, but the cluster has 2 of worker: use 0 to 1",
        id="an index outside of the cluster",
    ),
    pytest.param(
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "master", "index": 0}}',
        "TF_CONFIG's task.type names the unknown role",
        id="an unknown role",
    ),
    pytest.param(
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}',
        "TF_CONFIG's task is a chief, but its cluster has none",
        id="a role that the cluster lacks",
    ),
    pytest.param(
        '{"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}}',
        'TF_CONFIG\'s cluster.worker[0] is "a": give host:port',
        id="an address without a port",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_tf_config_that_cannot_work_is_refused_in_a_line(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        read_rendezvous({"TF_CONFIG": text})
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


# Roles of DESIGN that MultiWorkerMirroredStrategy has no place for. An evaluator would make it raise KeyError.
@pytest.mark.parametrize(
    ("cluster", "role", "message"),
    [
        pytest.param(
            WORKERS, "evaluator", "TF_CONFIG's task is evaluator 0: multi-worker-mirrored has only", id="evaluator"
        ),
        pytest.param(
            {**WORKERS, "ps": ["p:9"]}, "ps", "TF_CONFIG's task is ps 0: multi-worker-mirrored has only", id="ps"
        ),
        pytest.param({**WORKERS, "ps": ["p:9"]}, "worker", "TF_CONFIG's cluster has a ps", id="a worker beside a ps"),
    ],
)
def test_a_role_that_the_strategy_does_not_have_is_refused_in_a_line(
    cluster: dict[str, list[str]], role: str, message: str
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        MultiWorkerMirrored().check(read(cluster, role, 0))
    assert str(refusal.value).startswith(message)
    assert "replicaSpecs" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("cluster", "role"), [(WORKERS, "worker"), (WITH_CHIEF, "worker"), (WITH_CHIEF, "chief")])
def test_chief_and_workers_are_the_strategys_roles(cluster: dict[str, list[str]], role: str) -> None:
    MultiWorkerMirrored().check(read(cluster, role, 0))


@pytest.fixture(params=["127.0.0.1", "0.0.0.0"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    with socket.socket() as holder:
        # As gRPC does: two servers could then share the port, each with a part of the connections.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((request.param, 0))
        holder.listen()
        yield holder


def test_a_taken_port_is_refused_in_a_line(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(ConfigurationError) as refusal:
        check_port(port, "TF_CONFIG's port")
    assert str(refusal.value).startswith(f"TF_CONFIG's port {port} can't be used (")
    assert "choose another port" in str(refusal.value)


def test_a_port_is_free_again_once_its_server_is_gone(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = listener.accept()
        accepted.close()  # the server's end closes first: its address stays in TIME_WAIT
        client.recv(1)
        listener.close()
    check_port(port, "TF_CONFIG's port")
