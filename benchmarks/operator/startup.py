"""How long from `kubectl apply` until all replicas' containers run, their image present? On a real cluster.

Jobs of two workers, one after another, on the cluster that `make kind-up images push deploy` makes. A container only
waits for its end. All times are those at which an event of a watch arrives here (a pod's own times have seconds only):

    apply      kubectl apply is started → the job's event ADDED      kubectl, API server, CRD validation
    operator   the job's event ADDED → the last pod's event ADDED    its own share: dry run, status, Services, pods
    cluster    → all containers run                                  scheduler, kubelet, container runtime
    told       → the job's status says Running                       the operator again

    PYTHONPATH=tests .venv/bin/python benchmarks/operator/startup.py
"""

import argparse
import base64
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import stage

from qmljob_api import names
from support.api_client import ApiClient, Event, Object, Watch

ACCOUNT = "benchmark"
WAIT = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); signal.pause()"
WAIT_SECONDS = 120.0
PODS = "/api/v1/namespaces/{}/pods"
JOBS = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/{{}}/{names.PLURAL}"


@dataclass(frozen=True)
class Startup:
    """The times of one job, in seconds; `load` is the machine's when it began."""

    total: float
    apply: float
    operator: float
    cluster: float
    told: float
    load: float


class Kubectl:
    """kubectl, for one cluster."""

    def __init__(self, context: str) -> None:
        """`context` is kubectl's own name of the cluster."""
        self._command = ["kubectl", "--context", context]

    def __call__(self, *words: str, text: str = "") -> str:
        """Runs a command and returns what it prints.

        Raises:
            RuntimeError: it failed; the message is its own.
        """
        done = subprocess.run([*self._command, *words], input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout


class Arrivals:
    """The first times at which events of a watch arrived that mean something."""

    def __init__(self, watch: Watch, threads: ThreadPoolExecutor) -> None:
        """Follows the watch in a thread, since an event's time is that of its arrival."""
        self._pending: list[tuple[Callable[[Event], bool], Future[float]]] = []
        self._watch = watch
        threads.submit(self._follow)

    def first(self, predicate: Callable[[Event], bool]) -> Future[float]:
        """Returns when the first event arrives from now on that the predicate holds for, by `time.monotonic`."""
        arrived: Future[float] = Future()
        self._pending.append((predicate, arrived))
        return arrived

    def _follow(self) -> None:
        for event in self._watch:
            now = time.monotonic()
            for entry in [entry for entry in self._pending if entry[0](event)]:
                self._pending.remove(entry)
                entry[1].set_result(now)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--context", default="kind-qmljob", help="the cluster, as kubectl knows it")
    parser.add_argument("--namespace", default="benchmark-startup", help="is made, and deleted in the end")
    parser.add_argument("--image", default="qmljob/training:0.1.0", help="is on all nodes, and has Python")
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, help="the times are written here as JSON")
    return parser.parse_args(arguments)


@contextmanager
def client_of(kubectl: Kubectl, namespace: str) -> Iterator[ApiClient]:
    """Makes a namespace with an identity that may watch it; both are gone in the end."""
    cluster = json.loads(kubectl("config", "view", "--raw", "--minify", "--output=json"))["clusters"][0]["cluster"]
    kubectl("create", "namespace", namespace)
    try:
        kubectl("create", "serviceaccount", ACCOUNT, f"--namespace={namespace}")
        grant = ("--clusterrole=edit", f"--serviceaccount={namespace}:{ACCOUNT}", f"--namespace={namespace}")
        kubectl("create", "rolebinding", ACCOUNT, *grant)
        token = kubectl("create", "token", ACCOUNT, f"--namespace={namespace}", "--duration=2h").strip()
        with tempfile.NamedTemporaryFile() as ca:
            ca.write(base64.b64decode(cluster["certificate-authority-data"]))
            ca.flush()
            yield ApiClient(cluster["server"], ca=Path(ca.name), token=token)
    finally:
        kubectl("delete", "namespace", namespace)


def job_document(name: str, options: argparse.Namespace) -> Object:
    """Returns a job whose containers wait for their end."""
    document = stage.job_document(name, {"worker": options.workers})
    template = document["spec"]["replicaSpecs"]["worker"]["template"]
    template["spec"] = {
        "terminationGracePeriodSeconds": 5,
        "containers": [
            {
                "name": "trainer",
                "image": options.image,
                "imagePullPolicy": "Never",
                "command": ["python", "-c", WAIT],
                "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
            }
        ],
    }
    return document


def measure(kubectl: Kubectl, jobs: Arrivals, pods: Arrivals, name: str, options: argparse.Namespace) -> Startup:
    """Applies one job, and returns its times. The job is deleted, and its pods are gone, when this returns."""
    replicas = [f"{name}-worker-{index}" for index in range(options.workers)]
    added = jobs.first(lambda event: event.type == "ADDED" and event.name == name)
    told = jobs.first(lambda event: event.name == name and stage.runs(event))
    made = [pods.first(is_made(replica)) for replica in replicas]
    running = [pods.first(is_running(replica)) for replica in replicas]
    gone = [pods.first(is_gone(replica)) for replica in replicas]
    load, began = os.getloadavg()[0], time.monotonic()
    kubectl("apply", "--filename=-", f"--namespace={options.namespace}", text=json.dumps(job_document(name, options)))
    applied, told_at = added.result(WAIT_SECONDS), told.result(WAIT_SECONDS)
    made_at, run_at = last(made), last(running)
    kubectl("delete", names.PLURAL, name, f"--namespace={options.namespace}", "--wait=false")
    last(gone)
    return Startup(run_at - began, applied - began, made_at - applied, run_at - made_at, told_at - run_at, load)


def last(arrivals: Sequence[Future[float]]) -> float:
    """Returns when the last one arrived."""
    return max(arrival.result(WAIT_SECONDS) for arrival in arrivals)


def is_made(pod: str) -> Callable[[Event], bool]:
    """Returns whether an event shows that a pod was created."""
    return lambda event: event.type == "ADDED" and event.name == pod


def is_running(pod: str) -> Callable[[Event], bool]:
    """Returns whether an event shows that a pod's container runs."""

    def holds(event: Event) -> bool:
        statuses = (event.object.get("status") or {}).get("containerStatuses") or []
        return event.name == pod and bool(statuses) and all("running" in each["state"] for each in statuses)

    return holds


def is_gone(pod: str) -> Callable[[Event], bool]:
    """Returns whether an event shows that a pod is gone."""
    return lambda event: event.type == "DELETED" and event.name == pod


def show(found: Sequence[Startup]) -> None:
    """Prints a table of the times."""
    print("| seconds | p50 | p95 | least | most |\n| --- | --- | --- | --- | --- |")
    for field in fields(Startup):
        values = [getattr(each, field.name) for each in found]
        hundredths = statistics.quantiles(values, n=100, method="inclusive")
        cells = (hundredths[49], hundredths[94], min(values), max(values))
        print(f"| {field.name} | {' | '.join(f'{cell:.3f}' for cell in cells)} |")


def main(arguments: Sequence[str]) -> int:
    """Measures and prints; returns the exit status."""
    options = parse_arguments(arguments)
    kubectl = Kubectl(options.context)
    place = (f"--namespace={names.OPERATOR_NAMESPACE}", "--output=json")
    deployment = json.loads(kubectl("get", "deployment", names.OPERATOR, *place))
    if not deployment["status"].get("readyReplicas"):
        sys.exit(f"no operator is ready on {options.context}: make deploy")
    found = []
    with client_of(kubectl, options.namespace) as client:
        machine = stage.describe_machine(client.call("GET", "/version")["gitVersion"])
        machine["operator"] = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
        print(machine)
        with (
            client.watch(JOBS.format(options.namespace)) as job_watch,
            client.watch(PODS.format(options.namespace)) as pod_watch,
            ThreadPoolExecutor(2) as threads,
        ):
            jobs, pods = Arrivals(job_watch, threads), Arrivals(pod_watch, threads)
            try:
                for number in range(options.jobs):
                    found.append(measure(kubectl, jobs, pods, f"startup-{number}", options))
                    print(", ".join(f"{name} {value:.3f}" for name, value in asdict(found[-1]).items()), flush=True)
            finally:
                job_watch.close()
                pod_watch.close()
    show(found)
    if options.output:
        options.output.write_text(json.dumps({"machine": machine, "jobs": [asdict(each) for each in found]}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
