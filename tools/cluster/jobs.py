"""Runs the sample on a cluster and tells how it goes: `jobs.py train FILE`, `jobs.py infer FILE`, through kubectl.

Both change nothing but what the file describes. What `train` made goes with `make delete-training`, what `infer` made
with `make delete-inference`.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.names import LABEL_JOB
from qmljob_api.progress import InferenceResult, parse_result
from qmljob_api.status import JobStatus, parse_status

Document = Mapping[str, Any]
TOLD_BY_PHASE = {
    ConditionType.RUNNING,
    ConditionType.SUSPENDED,
    ConditionType.SUCCEEDED,
    ConditionType.INFERENCE_SUCCEEDED,
}
COUNTED = {Phase.STARTING, Phase.RUNNING}


class Failed(Exception):
    """What was asked for did not come about; the message is for a person."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with a fixed cluster and namespace."""

    context: str
    namespace: str

    def command(self, *arguments: str) -> list[str]:
        return ["kubectl", "--context", self.context, "--namespace", self.namespace, *arguments]

    def run(self, *arguments: str, text: str | None = None) -> str:
        """Returns what kubectl prints; raises Failed with its own message."""
        done = subprocess.run(self.command(*arguments), input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"kubectl {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def show(self, *arguments: str) -> None:
        """Prints what kubectl has to say, whatever it is."""
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False)
        print((done.stdout or done.stderr).rstrip(), file=sys.stderr)

    def versions(self, kind: str, name: str) -> Iterator[Document]:
        """Yields an object as it is, and again at each change; raises Failed when it is gone."""
        while True:
            yield json.loads(self.run("get", kind, name, "--output=json"))
            watch = self.command("get", kind, name, "--watch", "--output-watch-events", "--output=json")
            with subprocess.Popen(watch, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
                assert process.stdout is not None
                try:
                    for event in documents(process.stdout):
                        if event["type"] == "DELETED":
                            raise Failed(f"{kind} {name} was deleted")
                        yield event["object"]
                finally:
                    process.terminate()


def documents(stream: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects of a stream as soon as they are whole, on one line each or on several."""
    text = ""
    for line in stream:
        text += line
        try:
            document = json.loads(text)
        except json.JSONDecodeError:
            continue
        yield document
        text = ""


@dataclass(slots=True)
class Story:
    """What was told of a job, so that only news is told."""

    phase: str | None = None
    attempt: int | None = None
    epoch: tuple[int | None, int | None] = (None, None)
    told: dict[str, tuple[str, str]] = field(default_factory=dict)

    def news(self, status: JobStatus) -> Iterator[str]:
        """Yields a line for each thing that is new."""
        if status.attempt is not None and status.attempt != self.attempt:
            if self.attempt is not None:
                counts = f"{status.restarts} restart(s) charged, {status.disruptions} disruption(s)"
                yield f"attempt {status.attempt} after: {last_cause(status)} ({counts})"
            self.attempt = status.attempt
        yield from self._epoch(status)
        if status.phase and status.phase != self.phase:
            self.phase = status.phase
            yield f"{status.phase}, {status.ready} replicas run" if status.phase in COUNTED else str(status.phase)
        for condition in status.conditions:
            state = (condition.status, condition.reason)
            news = self.told.get(condition.type) != state and condition.type not in TOLD_BY_PHASE
            if news and condition.status == "True":
                yield f"{condition.type}: {condition.message or condition.reason}"
            self.told[condition.type] = state

    def _epoch(self, status: JobStatus) -> Iterator[str]:
        progress = status.progress
        if progress is None or (progress.attempt, progress.epoch) == self.epoch:
            return
        self.epoch = (progress.attempt, progress.epoch)
        yield f"epoch {progress.epoch}/{progress.epochs}  loss {progress.loss}  validation loss {progress.val_loss}"


def last_cause(status: JobStatus) -> str:
    return status.history[-1].message or status.history[-1].reason if status.history else "an unknown cause"


def train(kubectl: Kubectl, document: Document) -> None:
    """Applies a QMLJob and follows it to its end, and to that of its inference; raises Failed."""
    name, wants_inference = document["metadata"]["name"], "inference" in document["spec"]
    print(kubectl.run("apply", "--filename", "-", text=yaml.safe_dump(document)).strip())
    story = Story()
    for version in kubectl.versions("qmljob", name):
        status = parse_status(version.get("status"))
        if status.observed_generation != version["metadata"]["generation"]:
            continue  # what it tells is about the job before this edit
        for line in story.news(status):
            print(line, flush=True)
        if status.holds(ConditionType.FAILED) or status.holds(ConditionType.INVALID):
            explain_job(kubectl, name, status)
            raise Failed(
                f"qmljob {name} {'failed' if status.holds(ConditionType.FAILED) else 'is invalid'} (see above)"
            )
        if not status.holds(ConditionType.SUCCEEDED):
            continue
        if status.holds(ConditionType.INFERENCE_FAILED):
            explain_job(kubectl, name, status)
            raise Failed(f"training of {name} succeeded, its inference failed (see above)")
        if not wants_inference or status.holds(ConditionType.INFERENCE_SUCCEEDED):
            if status.results is not None:
                print(f"mean squared error {status.results.mse} on {status.results.examples} examples")
            return


def explain_job(kubectl: Kubectl, name: str, status: JobStatus) -> None:
    """Prints what a person needs to find out why a job failed."""
    if status.last_failure is not None:
        failure = status.last_failure
        code = "" if failure.exit_code is None else f" with exit code {failure.exit_code}"
        print(f"--- {failure.replica} failed in attempt {failure.attempt}{code}; its last lines:", file=sys.stderr)
        print(failure.message, file=sys.stderr)
    print("--- events", file=sys.stderr)
    kubectl.show("events", "--for", f"qmljob/{name}")
    print("--- pods", file=sys.stderr)
    kubectl.show("get", "pods", "--selector", f"{LABEL_JOB}={name}", "--output=wide")
    print(f"--- more: kubectl describe qmljob {name}; kubectl logs <pod>", file=sys.stderr)


def infer(kubectl: Kubectl, document: Document) -> None:
    """Replaces a batch/v1 Job, waits for its end and prints the error that it reports; raises Failed."""
    name = document["metadata"]["name"]
    kubectl.run("delete", "job", name, "--ignore-not-found", "--cascade=foreground", "--wait")
    print(kubectl.run("create", "--filename", "-", text=yaml.safe_dump(document)).strip(), flush=True)
    for version in kubectl.versions("job", name):
        ends = {entry["type"] for entry in version.get("status", {}).get("conditions", []) if entry["status"] == "True"}
        if "Failed" in ends:
            explain_batch_job(kubectl, name)
            raise Failed(f"job {name} failed (see above)")
        if "Complete" in ends:
            break
    result = reported(kubectl.run("logs", f"job/{name}"))
    if result is None:
        raise Failed(f"job {name} ended without a result: kubectl logs job/{name}")
    print(f"{result.artifact}")
    print(f"mean squared error {result.mse:.6f} on the artifact's test split ({result.examples} examples)")
    if result.fresh_mse is not None:
        print(f"mean squared error {result.fresh_mse:.6f} on {result.fresh_examples} examples drawn anew")


def reported(log: str) -> InferenceResult | None:
    """Returns the last result in a log, or None."""
    results = [result for line in log.splitlines() if (result := parse_result(line)) is not None]
    return results[-1] if results else None


def explain_batch_job(kubectl: Kubectl, name: str) -> None:
    print("--- events", file=sys.stderr)
    kubectl.show("events", "--for", f"job/{name}")
    print("--- pods", file=sys.stderr)
    kubectl.show("get", "pods", "--selector", f"batch.kubernetes.io/job-name={name}", "--output=wide")
    print("--- last lines", file=sys.stderr)
    kubectl.show("logs", f"job/{name}", "--tail=20")


def read(path: Path, registry: str | None) -> Document:
    """Returns the only document of a manifest; with a registry, its images' names get that in front.

    Args:
        path: of a YAML file.
        registry: where the cluster finds our images, `<host>/<path>`; None: under their plain names.
    """
    text = path.read_text("utf-8")
    if registry is not None:
        text = text.replace("image: qmljob/", f"image: {registry}/")
    document: Document = yaml.safe_load(text)
    return document


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("train", "infer"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--context", required=True, help="of kubectl")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--registry", help="where the cluster finds the images (default: under their plain names)")
    given = parser.parse_args()
    kubectl = Kubectl(given.context, given.namespace)
    action = {"train": train, "infer": infer}[given.action]
    try:
        action(kubectl, read(given.file, given.registry))
    except Failed as error:
        print(f"{given.action}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{given.action}: what was started goes on; the same command follows it again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
