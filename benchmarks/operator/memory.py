"""How much memory does the operator take, and how fast does it make pods? Idle, then with many running jobs.

Its resident set and its processor time are what it says itself on /metrics, looked at twice a second. Pods are started
by a played kubelet after all of them were created: so the time until then is the operator's and the API server's.

    PYTHONPATH=tests .venv/bin/python benchmarks/operator/memory.py
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import stage

from support.kubelet import running_kubelet
from support.operator_process import OperatorProcess

MEBIBYTE = 2**20
NAMESPACE = "many"


@dataclass(frozen=True)
class Memory:
    """The resident set over a time, in MiB: when the time was over, and at its highest."""

    at_the_end: float
    highest: float


@dataclass(frozen=True)
class Outcome:
    """All figures.

    Attributes:
        jobs: how many.
        pods: of all jobs together.
        idle: with nothing to do.
        starting: from the creation of the jobs until the last one runs.
        running: while all of them run.
        created_seconds: from the first job's creation until the last one was accepted.
        pods_seconds: from the first job's creation until the last pod was created.
        pods_cpu_seconds: the operator's processor time within `pods_seconds`.
        running_seconds: from the start of the first pod until the last job's status says Running.
        running_cpu_share: the operator's processor time while all jobs run, as a share of one core.
        load_before: of the machine, when it began.
        load_after: of the machine, in the end.
    """

    jobs: int
    pods: int
    idle: Memory
    starting: Memory
    running: Memory
    created_seconds: float
    pods_seconds: float
    pods_cpu_seconds: float
    running_seconds: float
    running_cpu_share: float
    load_before: float
    load_after: float


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--workers", type=int, default=4, help="of each job")
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    parser.add_argument("--running-seconds", type=float, default=180.0, help="an audit of the caches comes every 120 s")
    parser.add_argument("--output", type=Path, help="the figures are written here as JSON")
    return parser.parse_args(arguments)


class Sampler:
    """Looks at a process's memory while something else goes on."""

    def __init__(self, operator: OperatorProcess) -> None:
        """Looks at nothing yet."""
        self._operator = operator
        self._seen: list[float] = []

    def look(self) -> None:
        """Takes one sample."""
        self._seen.append(self._operator.metric("process_resident_memory_bytes") / MEBIBYTE)

    def over(self, seconds: float) -> None:
        """Takes samples for a time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look()
            time.sleep(0.5)

    def result(self) -> Memory:
        """Returns what was seen since the last result."""
        self.look()
        seen, self._seen = self._seen, []
        return Memory(round(seen[-1], 1), round(max(seen), 1))


def measure(on: stage.Stage, options: argparse.Namespace) -> Outcome:
    """Makes the jobs, lets them run, and returns the figures."""
    plane, sampler, load = on.plane, Sampler(on.operator), os.getloadavg()[0]
    plane.make_namespace(NAMESPACE)
    sampler.over(options.idle_seconds)
    idle, pods = sampler.result(), options.jobs * options.workers
    with running_kubelet(plane, NAMESPACE) as kubelet, plane.watch(on.jobs_path(NAMESPACE)) as jobs:
        with plane.watch(f"/api/v1/namespaces/{NAMESPACE}/pods") as created:
            began, cpu = time.monotonic(), cpu_seconds(on)
            for number in range(options.jobs):
                job = stage.job_document(f"job-{number:03}", {"worker": options.workers})
                plane.call("POST", on.jobs_path(NAMESPACE), job)
            created_seconds = time.monotonic() - began
            for _ in range(pods):
                created.until(lambda event: event.type == "ADDED", timeout=stage.LIMIT_SECONDS, what="a pod")
            pods_seconds, pods_cpu_seconds = time.monotonic() - began, cpu_seconds(on) - cpu
        sampler.look()
        with kubelet.playing():
            began, run = time.monotonic(), set[str]()
            while len(run) < options.jobs:
                run.add(jobs.until(stage.runs, timeout=stage.LIMIT_SECONDS, what="Running").name)
                sampler.look()
            running_seconds = time.monotonic() - began
            starting = sampler.result()
            cpu = cpu_seconds(on)
            sampler.over(options.running_seconds)
            cpu_share = (cpu_seconds(on) - cpu) / options.running_seconds
    return Outcome(
        options.jobs,
        pods,
        idle,
        starting,
        sampler.result(),
        round(created_seconds, 2),
        round(pods_seconds, 2),
        round(pods_cpu_seconds, 2),
        round(running_seconds, 2),
        round(cpu_share, 3),
        round(load, 1),
        round(os.getloadavg()[0], 1),
    )


def cpu_seconds(on: stage.Stage) -> float:
    """Returns the operator's processor time since its start."""
    return on.operator.metric("process_cpu_seconds_total")


def show(outcome: Outcome) -> None:
    """Prints the figures."""
    print(f"| resident set, MiB | at the end | highest |\n| --- | --- | --- |\n| idle | {row(outcome.idle)} |")
    print(f"| {outcome.jobs} jobs start | {row(outcome.starting)} |")
    print(f"| {outcome.jobs} jobs, {outcome.pods} pods run | {row(outcome.running)} |\n")
    print(f"first job created to last job accepted: {outcome.created_seconds:.2f} s")
    print(f"first job created to last of {outcome.pods} pods created: {outcome.pods_seconds:.2f} s", end="")
    print(f", of which the operator computes {outcome.pods_cpu_seconds:.2f} s")
    print(f"first pod started to last job Running: {outcome.running_seconds:.2f} s")
    print(f"the operator's processor time while all run: {outcome.running_cpu_share:.1%} of a core")
    print(f"load {outcome.load_before} before, {outcome.load_after} after")


def row(memory: Memory) -> str:
    """Returns the cells of a table."""
    return f"{memory.at_the_end:.1f} | {memory.highest:.1f}"


def main(arguments: Sequence[str]) -> int:
    """Measures and prints; returns the exit status."""
    options = parse_arguments(arguments)
    with stage.running_stage() as on:
        machine = stage.describe_machine(on.server_version())
        print(machine)
        outcome = measure(on, options)
    show(outcome)
    if options.output:
        options.output.write_text(json.dumps({"machine": machine, **asdict(outcome)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
