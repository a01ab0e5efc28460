"""Two operators and a real API server: one leads, and the other one follows when it has to."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.control_plane import ControlPlane
from support.servers import bound
from support.tcp_proxy import tcp_proxy

RENEW, LEASE, RETRY = 5, 8, 1
_TESTS = Path(__file__).resolve().parents[1]
_LIMIT_SECONDS = 120


class Candidate:
    """A process that wants to lead; `heard` is everything that it said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.heard: list[dict[str, Any]] = []

    async def says(self, what: str) -> dict[str, Any]:
        """Waits for a line, and returns it."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.heard.append(json.loads(line))
            if self.heard[-1]["is"] == what:
                return self.heard[-1]
        raise AssertionError(f"it ended without saying {what!r}: {self.heard}")


@asynccontextmanager
async def candidate(kubeconfig: Path, namespace: str, identity: str) -> AsyncIterator[Candidate]:
    arguments = [str(kubeconfig), namespace, identity, str(RENEW), str(LEASE), str(RETRY)]
    process = await asyncio.create_subprocess_exec(
        *bound([sys.executable, "-m", "support.leader_program", *arguments]),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(_TESTS)},
    )
    started = Candidate(process)
    try:
        await started.says("ready")
        yield started
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
def kubeconfig(control_plane: ControlPlane, namespace: str) -> Callable[..., Path]:
    """Makes kubeconfigs of an account with an operator's rights on leases, and no other ones."""
    rights = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    control_plane.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "operator"}})
    control_plane.call("POST", f"{rbac}/roles", {"metadata": {"name": "operator"}, "rules": [rights]})
    binding = {
        "metadata": {"name": "operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
    }
    control_plane.call("POST", f"{rbac}/rolebindings", binding)
    token = control_plane.service_account_token(namespace, "operator")
    return lambda port=None: control_plane.kubeconfig_for(token, url=f"https://127.0.0.1:{port}" if port else None)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, _LIMIT_SECONDS))


def lease_of(control_plane: ControlPlane, namespace: str) -> dict[str, Any]:
    lease: dict[str, Any] = control_plane.call(
        "GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/operator"
    )
    return lease


def test_one_leads_and_the_other_one_follows_when_it_is_killed(
    control_plane: ControlPlane, namespace: str, kubeconfig: Callable[..., Path]
) -> None:
    async def main() -> None:
        async with (
            candidate(kubeconfig(), namespace, "first") as first,
            candidate(kubeconfig(), namespace, "second") as second,
        ):
            began = {
                asyncio.create_task(first.says("leading")): (first, second),
                asyncio.create_task(second.says("leading")): (second, first),
            }
            done, waiting = await asyncio.wait(began, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1
            leader, _ = began[done.pop()]
            follows = waiting.pop()
            held = lease_of(control_plane, namespace)
            os.kill(leader.process.pid, signal.SIGKILL)
            await follows
            lease = lease_of(control_plane, namespace)
            assert lease["spec"]["leaseTransitions"] == 1
            assert lease["spec"]["acquireTime"] > held["spec"]["renewTime"]
            assert {entry["manager"] for entry in lease["metadata"]["managedFields"]} == {"qmljob-operator"}

    run(main())


def test_a_leader_that_ends_hands_over(
    control_plane: ControlPlane, namespace: str, kubeconfig: Callable[..., Path]
) -> None:
    async def main() -> None:
        async with candidate(kubeconfig(), namespace, "first") as first:
            await first.says("leading")
            async with candidate(kubeconfig(), namespace, "second") as second:
                first.process.send_signal(signal.SIGTERM)
                stopped = await first.says("stopped")
                await first.says("ended")
                assert lease_of(control_plane, namespace)["spec"]["holderIdentity"] in {"", "second"}
                follows = await second.says("leading")
                assert stopped["at"] < follows["at"]
        assert lease_of(control_plane, namespace)["spec"]["leaseTransitions"] == 1

    run(main())


def test_a_leader_whose_api_server_hangs_has_written_for_the_last_time_before_another_one_leads(
    control_plane: ControlPlane, namespace: str, kubeconfig: Callable[..., Path]
) -> None:
    place = urlsplit(control_plane.url)
    assert place.hostname is not None
    assert place.port is not None
    host, port = place.hostname, place.port

    async def main() -> None:
        async with (
            tcp_proxy(host, port) as proxy,
            candidate(kubeconfig(proxy.port), namespace, "first") as first,
        ):
            await first.says("leading")
            async with candidate(kubeconfig(), namespace, "second") as second:
                proxy.freeze()
                stopped = await first.says("stopped")
                lost = await first.says("lost")
                assert "no answer within" in lost["why"]
                assert lease_of(control_plane, namespace)["spec"]["holderIdentity"] == "first"
                follows = await second.says("leading")
                assert stopped["wrote"] < follows["at"]
                assert stopped["at"] < follows["at"]

    run(main())


def test_a_leader_that_was_stopped_by_its_machine_does_not_write_when_it_goes_on(
    control_plane: ControlPlane, namespace: str, kubeconfig: Callable[..., Path]
) -> None:
    async def main() -> None:
        async with candidate(kubeconfig(), namespace, "first") as first:
            await first.says("leading")
            async with candidate(kubeconfig(), namespace, "second") as second:
                first.process.send_signal(signal.SIGSTOP)
                follows = await second.says("leading")
                first.process.send_signal(signal.SIGCONT)
                stopped = await first.says("stopped")
                await first.says("lost")
                assert stopped["wrote"] < follows["at"]
                assert lease_of(control_plane, namespace)["spec"]["holderIdentity"] == "second"

    run(main())


def test_without_the_right_to_a_lease_nobody_leads_and_the_log_says_why(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "nobody"}})
    kubeconfig = control_plane.kubeconfig_for(control_plane.service_account_token(namespace, "nobody"))

    async def main() -> None:
        program = bound([sys.executable, "-m", "support.leader_program", str(kubeconfig), namespace, "nobody"])
        process = await asyncio.create_subprocess_exec(
            *program,
            *(str(RENEW), str(LEASE), str(RETRY)),
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(_TESTS)},
        )
        try:
            assert process.stderr is not None
            while b"could not be read: 403" not in (line := await process.stderr.readline()):
                assert line, "it ended without saying why"
            told = f'cannot get resource "leases" in API group "coordination.k8s.io" in the namespace "{namespace}"'
            assert told in line.decode()
        finally:
            process.kill()
            await process.wait()

    run(main())
