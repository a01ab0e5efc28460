"""How many requests does the operator need for a job? Counted in the API server's audit log.

Two questions. From the creation of a job until it runs, and a moment longer: all of the operator's requests that are
about the job, for several ways in which a cluster may start pods. And of a job that runs and has nothing new to say:
how many writes there are (one job repeats its last progress line, another one says nothing at all).

    PYTHONPATH=tests .venv/bin/python benchmarks/operator/request_counts.py

Exit status 1 where a bound is not kept. The requests of the operator itself (watches, lists, lease, discovery, version)
are shown apart: there are as many of them with no job as with a thousand.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import stage

from qmljob_api.progress import Progress, to_line
from qmljob_api.timestamps import parse_time
from support.api_client import Watch
from support.audit_log import Record, describe, is_write
from support.kubelet import Kubelet, running_kubelet

START_BOUND = 14
IDLE_BOUND = 0
AFTERMATH_SECONDS = 2.0
"""How long after `Running` requests still count as those of the start."""
CREATING = "ContainerCreating"


@dataclass(frozen=True)
class Start:
    """A job's way to `Running`.

    Attributes:
        gap_seconds: between the starts of two pods.
        requests: about the job: seconds since the job's creation, and what was asked.
        own: the operator's other requests in this time.
        running_seconds: from the job's creation to the event that shows it running.
        load: of the machine.
    """

    gap_seconds: float
    requests: list[tuple[float, str]]
    own: dict[str, int]
    running_seconds: float
    load: float


@dataclass(frozen=True)
class Idle:
    """A time in which two running jobs had nothing new to say: writes of any kind, and reads about the jobs."""

    minutes: float
    writes: dict[str, int]
    reads: dict[str, int]
    own: dict[str, int]
    load: float


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--roles", type=stage.parse_roles, default={"worker": 4}, help="(default: worker=4)")
    parser.add_argument("--gaps", default="0,1,4", help="seconds between the starts of two pods; a job for each")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the running jobs are observed; 0: not")
    parser.add_argument("--output", type=Path, help="the records are written here as JSON")
    options = parser.parse_args(arguments)
    options.gaps = [float(gap) for gap in options.gaps.split(",")]
    return options


def measure_start(on: stage.Stage, kubelet: Kubelet, name: str, roles: Mapping[str, int], gap: float) -> Start:
    """Creates a job, starts its pods one after another, and returns the requests that it took."""
    plane, namespace = on.plane, kubelet.namespace
    mark, load = plane.audit_mark(), os.getloadavg()[0]
    with (
        plane.watch(on.jobs_path(namespace)) as jobs,
        plane.watch(f"/api/v1/namespaces/{namespace}/pods") as pods,
    ):
        plane.call("POST", on.jobs_path(namespace), stage.job_document(name, roles))
        began = time.monotonic()
        waiting = await_pods(kubelet, pods, sum(roles.values()))
        for number, pod in enumerate(waiting):
            time.sleep(gap if number else 0.0)
            kubelet.start(pod)
        jobs.until(stage.runs, what="Running")
        running_seconds = time.monotonic() - began
        time.sleep(AFTERMATH_SECONDS)
    records = on.operator.requests(since=mark)
    created = next(each for each in plane.audit(since=mark) if describe(each).startswith("create qmljobs"))
    began_at = time_of(created)
    about = [each for each in records if is_about_jobs(each)]
    return Start(
        gap,
        [(round(time_of(each) - began_at, 3), in_words(each)) for each in about],
        tally(each for each in records if not is_about_jobs(each)),
        round(running_seconds, 2),
        round(load, 1),
    )


def await_pods(kubelet: Kubelet, pods: Watch, count: int) -> list[str]:
    """Plays what comes before the start of each pod: a node takes it, and makes its container."""
    taken: list[str] = []
    while len(taken) < count:
        taken.append(pods.until(lambda event: event.type == "ADDED", what="a pod").name)
        kubelet.waiting(taken[-1], CREATING, "")
    return sorted(taken)


@contextmanager
def running_job(on: stage.Stage, namespace: str, roles: Mapping[str, int]) -> Iterator[tuple[Kubelet, Watch]]:
    """Makes a job run; gives its kubelet and a watch of its namespace's jobs."""
    on.plane.make_namespace(namespace)
    with (
        running_kubelet(on.plane, namespace) as kubelet,
        on.plane.watch(on.jobs_path(namespace)) as jobs,
        kubelet.playing(),
    ):
        on.plane.call("POST", on.jobs_path(namespace), stage.job_document("qcnn", roles))
        jobs.until(stage.runs, what="Running")
        yield kubelet, jobs


def measure_idle(on: stage.Stage, roles: Mapping[str, int], minutes: float) -> Idle:
    """Returns the requests while one job repeats a progress line, and another one says nothing."""
    with running_job(on, "silent", roles), running_job(on, "repeating", roles) as (kubelet, jobs):
        kubelet.say(chief_of(roles), to_line(progress()))
        jobs.until(lambda event: "progress" in (event.object.get("status") or {}), what="progress")
        time.sleep(AFTERMATH_SECONDS)
        mark, load = on.plane.audit_mark(), os.getloadavg()[0]
        time.sleep(minutes * 60)
        records = on.operator.requests(since=mark)
    about = [each for each in records if is_about_jobs(each)]
    return Idle(
        minutes,
        tally(each for each in about if is_write(each)),
        tally(each for each in about if not is_write(each)),
        tally(each for each in records if not is_about_jobs(each)),
        round(load, 1),
    )


def chief_of(roles: Mapping[str, int]) -> str:
    """Returns the replica whose progress counts."""
    return f"qcnn-{'chief' if 'chief' in roles else 'worker'}-0"


def progress() -> Progress:
    """Returns a progress line's content."""
    return Progress(
        role="worker",
        index=0,
        attempt=0,
        epoch=3,
        epochs=50,
        step=12,
        loss=0.5,
        sign_accuracy=0.75,
        val_loss=0.5,
        val_sign_accuracy=0.75,
        learning_rate=0.02,
        seconds=2.0,
        validation_seconds=0.5,
        examples_per_second=56.0,
    )


def is_about_jobs(record: Record) -> bool:
    """Whether a request is about some job: not a list, a watch, a lease, or a question about the API itself."""
    resource = (record.get("objectRef") or {}).get("resource")
    return resource is not None and resource != "leases" and record["verb"] not in {"list", "watch"}


def in_words(record: Record) -> str:
    """Returns a request as one reads it."""
    return ("dry run: " if "dryRun" in record["requestURI"] else "") + describe(record)


def kind_of(record: Record) -> str:
    """Returns what a request is about, without names: `list pods`."""
    target = record.get("objectRef") or {}
    resource = "/".join(part for part in (target.get("resource"), target.get("subresource")) if part)
    return f"{record['verb']} {resource or record['requestURI'].split('?')[0]}"


def tally(records: Iterable[Record]) -> dict[str, int]:
    """Counts requests by what they are about."""
    return dict(sorted(Counter(map(kind_of, records)).items()))


def time_of(record: Record) -> float:
    """Returns when a request arrived, in seconds since the epoch."""
    at = parse_time(record["requestReceivedTimestamp"])
    if at is None:
        raise ValueError(f"an audit record has no time: {record}")
    return at


def show_start(start: Start) -> None:
    """Prints a job's requests."""
    how = "all at once" if start.gap_seconds == 0 else f"one after another, {start.gap_seconds:g} s apart"
    print(f"\npods start {how}: {len(start.requests)} requests (bound {START_BOUND}); ", end="")
    print(f"Running after {start.running_seconds:.2f} s, load {start.load}")
    for seconds, words in start.requests:
        print(f"  {seconds:8.3f} s  {words}")
    print(f"  the operator's own: {start.own}")


def show_idle(idle: Idle) -> None:
    """Prints the requests about jobs that have nothing new to say."""
    print(f"\n{idle.minutes:g} minutes of two running jobs: {sum(idle.writes.values())} writes (bound {IDLE_BOUND})")
    print(f"  writes: {idle.writes}\n  reads: {idle.reads}\n  the operator's own: {idle.own}\n  load {idle.load}")


def main(arguments: Sequence[str]) -> int:
    """Measures and prints; returns the exit status."""
    options = parse_arguments(arguments)
    with stage.running_stage() as on:
        machine = stage.describe_machine(on.server_version())
        print(f"{options.roles}; {machine}")
        on.plane.make_namespace("starts")
        starts = []
        with running_kubelet(on.plane, "starts") as kubelet:
            for number, gap in enumerate(options.gaps):
                starts.append(measure_start(on, kubelet, f"start-{number}", options.roles, gap))
                show_start(starts[-1])
                on.plane.empty_namespace("starts")
        idle = measure_idle(on, options.roles, options.minutes) if options.minutes else None
    if idle is not None:
        show_idle(idle)
    if options.output:
        record = {"machine": machine, "roles": options.roles, "starts": [asdict(start) for start in starts]}
        options.output.write_text(json.dumps(record | {"idle": asdict(idle) if idle else None}, indent=1))
    kept = all(len(start.requests) <= START_BOUND for start in starts)
    return 0 if kept and (idle is None or sum(idle.writes.values()) <= IDLE_BOUND) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
