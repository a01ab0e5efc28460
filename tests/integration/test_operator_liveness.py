"""`/healthz` is red for what a new process would mend, within a stated time, and for nothing else."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from qmljob_api import names
from qmljob_api.conditions import Phase
from qmljob_api.testing import manifest
from qmljob_operator.controller import health
from support.api_client import LIMIT_SECONDS
from support.control_plane import ControlPlane
from support.impatient_operator import WEDGE
from support.injector.calls import Call
from support.injector.faults import Fault, FaultKind
from support.injector.proxy import injector_before
from support.kubelet import Kubelet, starts_and_goes
from support.operator_process import PROGRAM, OperatorProcess, running_operator
from support.stories import Story, scene
from support.story_actions import both, create, patch, until

pytestmark = pytest.mark.usefixtures("empty_stage", "operator_rights")

IMPATIENT_PROGRAM = "support.impatient_operator"
LOOK_AGAIN_SECONDS = 0.1
PERIOD_SECONDS, TIMEOUT_SECONDS, THRESHOLD = 10.0, 5.0, 3
"""The kubelet's probes, as manifests/base/operator.yaml has them."""
OUTAGE_SECONDS = 300.0


def await_health(operator: OperatorProcess, told: Callable[[int, str], bool], *, within: float) -> str:
    """Waits until `/healthz` answers what is wanted; returns its text."""
    again = threading.Event()
    status, text = operator.get("/healthz")
    for _ in range(int(within / LOOK_AGAIN_SECONDS)):
        if told(status, text):
            return text
        again.wait(LOOK_AGAIN_SECONDS)
        status, text = operator.get("/healthz")
    raise AssertionError(f"/healthz answers {status}: {text}")


def test_a_queue_that_stands_still_is_red(kubelet: Kubelet, tmp_path: Path) -> None:
    flags = ("--no-leader-election", "--workers=2")
    plane, jobs = kubelet.plane, f"/apis/{names.API_VERSION}/namespaces/{kubelet.namespace}/{names.PLURAL}"
    with running_operator(
        plane, tmp_path / "log", namespaces=(kubelet.namespace,), flags=flags, program=IMPATIENT_PROGRAM
    ) as operator:
        plane.call("POST", jobs, manifest({"name": f"{WEDGE}-0"}))
        plane.call("POST", jobs, manifest({"name": "qcnn"}))
        plane.wait_until(
            "GET", f"{jobs}/qcnn", lambda answer: "status" in answer.body, what="a pass that hangs stops no other job"
        )
        assert operator.get("/healthz") == (200, "ok\n")

        plane.call("POST", jobs, manifest({"name": f"{WEDGE}-1"}))
        plane.call("POST", jobs, manifest({"name": "waits"}))
        text = await_health(operator, lambda status, _: status == 503, within=LIMIT_SECONDS)
        assert text.startswith("queue: jobs wait, and none was taken up for "), text


def test_a_watch_that_delivers_nothing_is_red_and_what_it_lacked_is_known_all_the_same(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    stall = Fault(Call("watch:pods"), FaultKind.STALL)
    with (
        injector_before(kubelet.plane, stall) as injector,
        running_operator(
            kubelet.plane,
            tmp_path / "log",
            namespaces=(kubelet.namespace,),
            program=IMPATIENT_PROGRAM,
            url=injector.url,
        ) as operator,
        scene(kubelet.plane, kubelet, operator) as stage,
        stage.playing(Story("", [], kubelet=starts_and_goes)),
    ):
        assert operator.get("/healthz") == (200, "ok\n")
        create()(stage)
        assert stage.timeline.until(lambda: len(stage.timeline.present("pods")) == 2)
        again = threading.Event()
        for number in range(int(LIMIT_SECONDS / LOOK_AGAIN_SECONDS)):
            # Something that the watch lacks at each audit.
            patch("pods", "worker-0", {"metadata": {"annotations": {"number": str(number)}}})(stage)
            if operator.get("/healthz")[0] == 503:
                break
            again.wait(LOOK_AGAIN_SECONDS)
        assert operator.get("/healthz") == (503, "watch-streams: no longer delivered: pods\n")
        until(phase=Phase.RUNNING)(stage)


def test_an_event_loop_that_was_blocked_is_red(kubelet: Kubelet, tmp_path: Path) -> None:
    with running_operator(kubelet.plane, tmp_path / "log", namespaces=(kubelet.namespace,)) as operator:
        operator.pause()
        with pytest.raises(OSError, match="timed out"):
            operator.get("/healthz", seconds=health.BLOCKED_SECONDS + 2.0)
        operator.resume()
        text = await_health(operator, lambda status, _: status == 503, within=LIMIT_SECONDS)
        assert "event-loop: " in text
        assert "blocked for 1" in text


class Probes:
    """The kubelet's liveness probes of an operator: whether it would have started it anew."""

    def __init__(self, operator: OperatorProcess) -> None:
        """Nothing is asked yet."""
        self._operator = operator
        self._failures = 0
        self.restarts = 0

    def ask(self) -> None:
        """One probe."""
        try:
            healthy = self._operator.get("/healthz", seconds=TIMEOUT_SECONDS)[0] == 200
        except OSError:
            healthy = False
        self._failures = 0 if healthy else self._failures + 1
        self.restarts += self._failures == THRESHOLD or not self._operator.running


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_outage_of_five_minutes_a_quiet_cluster_and_standing_by_restart_nothing(
    control_plane: ControlPlane, kubelet: Kubelet, tmp_path: Path
) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{names.OPERATOR_NAMESPACE}/leases"
    control_plane.request("DELETE", f"{leases}/{names.OPERATOR}")
    pair = (f"--lease-namespace={names.OPERATOR_NAMESPACE}",)
    with ExitStack() as stack:
        proxy = stack.enter_context(injector_before(control_plane))

        def start(name: str, flags: tuple[str, ...] = ("--no-leader-election",)) -> OperatorProcess:
            log, scope = tmp_path / name, () if name != "alone" else (kubelet.namespace,)
            url = proxy.url if name == "alone" else None
            return stack.enter_context(
                running_operator(control_plane, log, namespaces=scope, flags=flags, program=PROGRAM, url=url)
            )

        alone, leader, standby = start("alone"), start("leader", pair), start("standby", pair)
        stage = stack.enter_context(scene(control_plane, kubelet, alone))
        stack.enter_context(stage.playing(Story("", [], kubelet=starts_and_goes)))
        both(create(), until(phase=Phase.RUNNING))(stage)
        before = stage.seen()
        probes = [Probes(operator) for operator in (alone, leader, standby)]
        proxy.cut()
        again = threading.Event()
        for _ in range(int(OUTAGE_SECONDS / PERIOD_SECONDS)):
            again.wait(PERIOD_SECONDS)
            for each in probes:
                each.ask()
        assert alone.get("/readyz")[0] == 503
        proxy.mend()
        for _ in range(THRESHOLD + 1):
            again.wait(PERIOD_SECONDS)
            for each in probes:
                each.ask()
        assert alone.get("/readyz")[0] == 200
        assert [each.restarts for each in probes] == [0, 0, 0]
        stage.come_to_rest()
        assert stage.seen() == before
        stage.check_promises()
