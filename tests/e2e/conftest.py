"""What the tests on a cluster share: the cluster of `make kind-up`, and a namespace for each test."""

import hashlib
import os
import shutil
from collections.abc import Generator, Iterator

import pytest

from e2e.kube import CONTEXT, OPERATOR_NAMESPACE, Kube

REPORT = pytest.StashKey[Kube]()


@pytest.fixture(scope="session")
def cluster() -> None:
    """A cluster with the operator on it; ends the session with one line where there is none."""
    if shutil.which("kubectl") is None:
        pytest.exit("tests/e2e needs kubectl; `make e2e` says what else, and makes the cluster", returncode=1)
    operator = Kube(OPERATOR_NAMESPACE)
    answer = operator.says("rollout", "status", "deployment/qmljob-operator", "--timeout=120s")
    if "successfully rolled out" not in answer:
        last = answer.strip().splitlines()[-1] if answer.strip() else "no answer"
        pytest.exit(f"tests/e2e needs the operator on {CONTEXT}: {last}; `make e2e` puts it there", returncode=1)


@pytest.fixture
def kube(cluster: None, request: pytest.FixtureRequest) -> Iterator[Kube]:
    """A namespace of the test's own, under the restricted Pod Security Standard, that knows the emulated bucket."""
    digest = hashlib.sha256(f"{request.node.nodeid} {os.getpid()}".encode()).hexdigest()[:8]
    kube = Kube(f"e2e-{digest}")
    store = Kube("default").get("configmap", "qmljob-environment")["data"]
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": kube.namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "qmljob-environment"}, "data": store},
    )
    request.node.stash[REPORT] = kube
    yield kube
    kube.run("delete", "namespace", kube.namespace, "--wait=false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds what a person needs to the report of a test that failed, while its namespace is still there."""
    report = yield
    if report.when == "call" and report.failed and REPORT in item.stash:
        report.sections.append((f"cluster, namespace {item.stash[REPORT].namespace}", item.stash[REPORT].report()))
    return report
