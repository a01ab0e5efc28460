"""The operator's watch streams: which kinds there are when it starts, and what it does when one ends for good."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from kubernetes.aio.client.configuration import Configuration

from qmljob_api import names
from qmljob_api.testing import manifest
from qmljob_operator.controller.handlers import WatchFailed, watch
from support.api_client import LIMIT_SECONDS, MERGE_PATCH, Object
from support.control_plane import ControlPlane, running_control_plane
from support.kubelet import Kubelet
from support.operator_process import install_operator, running_operator

CRD = Path(__file__).resolve().parents[2] / "manifests" / "crd" / "qmljobs.qml.dev.yaml"
ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{names.OPERATOR}"


def await_words(operator_log: Path, words: str) -> None:
    again = threading.Event()
    for _ in range(int(LIMIT_SECONDS / 0.05)):
        if operator_log.exists() and words in operator_log.read_text():
            return
        again.wait(0.05)
    raise AssertionError(f"the log does not say {words!r}:\n{operator_log.read_text()[-2000:]}")


def test_an_operator_that_is_started_before_the_crd_waits_for_it_and_watches(tmp_path: Path) -> None:
    with running_control_plane() as plane:
        install_operator(plane)
        log = tmp_path / "log"

        def define_kind_late() -> None:
            await_words(log, "is the CRD installed?")
            plane.define_kind(CRD)

        late = threading.Thread(target=define_kind_late)
        late.start()
        with running_operator(plane, log):  # until it is ready
            late.join()
            jobs = f"/apis/{names.API_VERSION}/namespaces/default/{names.PLURAL}"
            with plane.watch(jobs) as watch:
                plane.call("POST", jobs, manifest({"name": "qcnn"}))
                watch.until(lambda event: "status" in event.object, what="a status")


@contextmanager
def without_the_right_to_watch(plane: ControlPlane, resource: str) -> Iterator[None]:
    """The operator may list a resource, and not watch it, until the block ends."""
    rules: list[Object] = plane.call("GET", ROLE)["rules"]
    fewer = [
        {**rule, "verbs": [verb for verb in rule["verbs"] if resource not in rule["resources"] or verb != "watch"]}
        for rule in rules
    ]
    assert fewer != rules
    plane.call("PATCH", ROLE, {"rules": fewer}, content_type=MERGE_PATCH)
    try:
        yield
    finally:
        plane.call("PATCH", ROLE, {"rules": rules}, content_type=MERGE_PATCH)


@pytest.mark.usefixtures("empty_stage", "operator_rights")
def test_an_operator_that_may_not_watch_says_so_and_goes_on_once_it_may(kubelet: Kubelet, tmp_path: Path) -> None:
    plane, log = kubelet.plane, tmp_path / "log"
    jobs = f"/apis/{names.API_VERSION}/namespaces/{kubelet.namespace}/{names.PLURAL}"
    with ExitStack() as stack:
        with without_the_right_to_watch(plane, names.PLURAL):
            stack.enter_context(running_operator(plane, log))
            await_words(log, "cannot watch resource")
        watch_of_jobs = stack.enter_context(plane.watch(jobs))
        plane.call("POST", jobs, manifest({"name": "qcnn"}))
        watch_of_jobs.until(lambda event: "status" in event.object, what="a status")


def test_a_stream_that_ends_for_good_takes_nothing_with_it(control_plane: ControlPlane) -> None:
    async def watch_without_credentials() -> str:
        configuration = Configuration(host=control_plane.url, ssl_ca_cert=str(control_plane.ca))
        configuration.api_key["BearerToken"] = "Bearer wrong"
        others = asyncio.create_task(asyncio.Event().wait())
        with pytest.raises(WatchFailed) as caught:
            await watch(configuration, [], lambda *_: None, identity="test", on_started=lambda: None)
        assert not others.done()
        others.cancel()
        return str(caught.value)

    assert asyncio.run(watch_without_credentials()) == "a watch failed: the API server does not accept the credentials"
