"""What integration tests share: a real API server with its database, namespaces in it, and what plays the cluster."""

import itertools
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from qmljob_api import names
from support.control_plane import ControlPlane, running_control_plane
from support.control_plane_programs import control_plane_programs
from support.gcs_emulator import emulator_binary
from support.kubelet import Kubelet, running_kubelet
from support.operator_process import OperatorProcess, install_operator, running_operator
from support.stories import Scene, scene

_ROOT = Path(__file__).resolve().parents[2]
_CRD = _ROOT / "manifests" / "crd" / "qmljobs.qml.dev.yaml"
_BUILDS = {"control_plane": control_plane_programs, "emulator": emulator_binary}
_NUMBERS = itertools.count()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Downloads or builds what the chosen tests need: here no test's time limit runs, and what it says is shown."""
    if session.config.option.collectonly:
        return
    wanted = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    for fixture, build in _BUILDS.items():
        if fixture in wanted:
            build()


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane with all rights, for all tests of the session; a test's own place in it is `namespace`."""
    with running_control_plane() as running:
        # Before anything else: admission of owner references reads the kinds once, and again after half a minute only.
        running.define_kind(_CRD)
        yield running


@pytest.fixture(scope="session")
def crd(control_plane: ControlPlane) -> str:
    """The kind QMLJob, defined and served; the value is the definition's name."""
    return f"{names.PLURAL}.{names.GROUP}"


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A new namespace; what is in it at the end is deleted, and nothing outside it is touched."""
    name = f"test-{next(_NUMBERS)}-{secrets.token_hex(3)}"
    control_plane.make_namespace(name)
    yield name
    control_plane.empty_namespace(name)


@pytest.fixture
def kubelet(control_plane: ControlPlane, namespace: str) -> Iterator[Kubelet]:
    """Plays scheduler and kubelet in the namespace, on a node of its own."""
    with running_kubelet(control_plane, namespace) as running:
        yield running


@pytest.fixture(scope="session")
def operator_rights(control_plane: ControlPlane, crd: str) -> None:
    """The operator's namespace, ServiceAccount and rights, and the kind that it serves."""
    install_operator(control_plane)


@pytest.fixture(scope="session")
def shared_operator(
    control_plane: ControlPlane, operator_rights: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator for all namespaces, with short waits, for all tests: `operator` has it ready."""
    with running_operator(control_plane, tmp_path_factory.mktemp("operator") / "log") as running:
        yield running


@pytest.fixture
def operator(shared_operator: OperatorProcess) -> Iterator[OperatorProcess]:
    """A running operator; a test may kill and start it. It must not log an error."""
    if not shared_operator.running:
        shared_operator.start()
    before = len(shared_operator.log())
    yield shared_operator
    assert shared_operator.complaints(before) == []


@pytest.fixture
def stage(control_plane: ControlPlane, kubelet: Kubelet, operator: OperatorProcess) -> Iterator[Scene]:
    """A namespace for a story, with an operator that knows it."""
    with scene(control_plane, kubelet, operator) as running:
        yield running


@pytest.fixture
def empty_stage(control_plane: ControlPlane, shared_operator: OperatorProcess) -> None:
    """No operator runs: for tests that start their own."""
    shared_operator.kill()
