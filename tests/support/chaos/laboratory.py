"""Where cases run: one API server, many namespaces side by side, each with an operator and a cluster of its own.

One set of watches serves all namespaces, and one proxy's loop all operators: what a case costs is its own requests.
"""

import itertools
import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from qmljob_api import names
from support.api_client import LIMIT_SECONDS, Event, Object
from support.chaos.zygote import Zygote
from support.control_plane import ControlPlane
from support.controllers import Controllers
from support.injector.faults import Fault, Noise
from support.injector.proxy import Injector, InjectorHost, injectors
from support.injector.upstream import Upstream
from support.kubelet import Kubelet, Policy
from support.kubelet_logs import LogServer, log_server
from support.operator_process import OperatorProcess
from support.servers import lasting_ports
from support.timeline import PATHS, Timeline

_FLAGS = ("--no-leader-election", "--workers=2")
_OWNERS = frozenset({names.PLURAL, "jobs"})
_END: tuple[str, Event] = ("", Event("", {}))


class Cluster:
    """What a cluster does in a namespace without being told: kubelet, garbage collector, Job controller."""

    def __init__(self, kubelet: Kubelet, timeline: Timeline) -> None:
        """Nothing runs yet; the policy may be changed at any time."""
        self.kubelet = kubelet
        self.policy: Policy | None = None
        self.failures: list[BaseException] = []
        self._timeline = timeline
        self._controllers = Controllers(kubelet.plane, kubelet.namespace)
        self._news: queue.SimpleQueue[tuple[str, Event]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._follow, name=f"cluster {kubelet.namespace}", daemon=True)
        self._gone: set[str] = set()

    def tell(self, kind: str, event: Event) -> None:
        """Takes an event of a watch."""
        self._news.put((kind, event))

    def start(self) -> None:
        """Begins to act."""
        self._thread.start()

    def stop(self) -> None:
        """Ends."""
        self._news.put(_END)
        self._thread.join(LIMIT_SECONDS)

    def _follow(self) -> None:
        while (news := self._news.get()) is not _END:
            try:
                self._act(*news)
            except BaseException as error:
                self.failures.append(error)

    def _act(self, kind: str, event: Event) -> None:
        if event.type == "DELETED":
            if kind in _OWNERS:
                self._gone.add(event.object["metadata"]["uid"])
                for other in PATHS:
                    for item in self._timeline.present(other):
                        self._collect(other, item)
            return
        self._collect(kind, event.object)
        if kind == "pods" and self.policy is not None:
            self.kubelet.react(self.policy, event)
        if kind == "jobs" or (kind == "pods" and names.LABEL_ATTEMPT not in event.object["metadata"].get("labels", {})):
            self._controllers.run_jobs()

    def _collect(self, kind: str, item: Object) -> None:
        """Deletes what has lost its owner."""
        metadata = item["metadata"]
        owners = {each["uid"] for each in metadata.get("ownerReferences") or ()}
        if owners and owners <= self._gone and not metadata.get("deletionTimestamp"):
            path = f"{PATHS[kind].format(self.kubelet.namespace)}/{metadata['name']}"
            options = {"propagationPolicy": "Background", "preconditions": {"uid": metadata["uid"]}}
            self.kubelet.plane.request("DELETE", path, options)


@dataclass(frozen=True)
class Place:
    """A namespace with all that plays in it."""

    kubelet: Kubelet
    timeline: Timeline
    cluster: Cluster
    injector: Injector
    operator: OperatorProcess
    rival: OperatorProcess
    """Another one, which nobody breaks, and which does not run."""


class Laboratory:
    """Gives places for cases, from any thread."""

    def __init__(self, plane: ControlPlane, zygote: Zygote, host: InjectorHost, token: str, folder: Path) -> None:
        """`token` is the operator's; `folder` takes logs."""
        self.plane = plane
        self._zygote = zygote
        self._host = host
        self._token = token
        self._folder = folder
        self._numbers = itertools.count()
        self._ports = lasting_ports()
        self._lock = threading.Lock()
        self._places: dict[str, tuple[Timeline, Cluster]] = {}
        self._logs: LogServer | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Follows what happens in all places until the block ends."""
        with ExitStack() as stack:
            self._logs = stack.enter_context(log_server(self.plane))
            for kind, path in PATHS.items():
                stack.enter_context(
                    self.plane.watch(
                        path.replace("/namespaces/{}", ""), on_event=lambda event, kind=kind: self._tell(kind, event)
                    )
                )
            Kubelet(self.plane, "default", logs_port=self._logs.port).make_node()
            yield

    @contextmanager
    def place(
        self, *faults: Fault, noise: Noise | None = None, broken: str = "", flags: tuple[str, ...] = _FLAGS
    ) -> Iterator[Place]:
        """A new namespace, empty again after the block. Its operator does not run yet, and is killed in the end."""
        assert self._logs is not None
        with self._lock:
            namespace = f"case-{next(self._numbers)}"
        kubelet = Kubelet(self.plane, namespace, logs_port=self._logs.port)
        kubelet.logs = self._logs.logs
        timeline = Timeline()
        cluster = Cluster(kubelet, timeline)
        self._places[namespace] = (timeline, cluster)
        self.plane.make_namespace(namespace)
        with self._host.injector(*faults, noise=noise) as injector, self._host.injector() as clear:
            flags = (f"--namespaces={namespace}", *flags)
            operator = self._operator(f"{namespace}.log", injector.url, broken, flags)
            rival = self._operator(f"{namespace}-rival.log", clear.url, "", flags)
            cluster.start()
            try:
                yield Place(kubelet, timeline, cluster, injector, operator, rival)
            finally:
                rival.kill()
                operator.kill()
                cluster.stop()
                del self._places[namespace]
                self.plane.empty_namespace(namespace)

    def _operator(self, log: str, url: str, broken: str, flags: tuple[str, ...]) -> OperatorProcess:
        file = self._folder / log
        file.touch()
        kubeconfig = self.plane.kubeconfig_for(self._token, url=url)
        return OperatorProcess(self.plane, file, flags, self._zygote.launch(broken), kubeconfig, self._new_port)

    def _new_port(self) -> int:
        with self._lock:
            return next(self._ports)

    def _tell(self, kind: str, event: Event) -> None:
        parts = self._places.get(event.object["metadata"].get("namespace", ""))
        if parts is not None:
            timeline, cluster = parts
            timeline.note(kind, event)
            cluster.tell(kind, event)


@contextmanager
def laboratory(plane: ControlPlane, zygote: Zygote, token: str, folder: Path) -> Iterator[Laboratory]:
    """Runs a laboratory on a control plane that knows the kind and the operator's rights, until the block ends."""
    with injectors(Upstream(plane.url, plane.ca)) as host:
        lab = Laboratory(plane, zygote, host, token, folder)
        with lab.running():
            yield lab
