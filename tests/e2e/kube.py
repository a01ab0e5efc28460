"""The cluster as the tests use it: kubectl, waiting for something to hold, and what a person needs when it does not."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import yaml

Document = dict[str, Any]
CONTEXT = os.environ.get("CONTEXT") or "kind-qmljob"
OPERATOR_NAMESPACE = "qmljob-system"


@dataclass(frozen=True)
class Kube:
    """kubectl in one namespace."""

    namespace: str

    def command(self, *arguments: str) -> list[str]:
        return ["kubectl", "--context", CONTEXT, "--namespace", self.namespace, *arguments]

    def run(self, *arguments: str, text: str | None = None) -> str:
        """Returns what kubectl prints; its message is the error's where it fails."""
        done = subprocess.run(self.command(*arguments), input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr.strip()}"
        return done.stdout

    def says(self, *arguments: str) -> str:
        """Returns what kubectl prints, be it an error."""
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False)
        return done.stdout or done.stderr

    def apply(self, *documents: Mapping[str, Any]) -> None:
        self.run("apply", "--filename", "-", text=yaml.safe_dump_all(documents))

    def get(self, kind: str, name: str) -> Document:
        result: Document = json.loads(self.run("get", kind, name, "--output=json"))
        return result

    def node_of(self, pod: str) -> str:
        """Returns the node on which a pod is."""
        name: str = self.get("pod", pod)["spec"]["nodeName"]
        return name

    def list(self, kind: str, selector: str = "") -> list[Document]:
        items: list[Document] = json.loads(self.run("get", kind, f"--selector={selector}", "--output=json"))["items"]
        return items

    def everything(self) -> set[str]:
        """Returns the kind and name of every object of the namespace, but events."""
        # Kubernetes puts these into each namespace, some time after it was made.
        self.until("configmap", "kube-root-ca.crt", lambda _: True, what="there")
        self.until("serviceaccount", "default", lambda _: True, what="there")
        kinds = self.run("api-resources", "--namespaced", "--verbs=list", "--output=name").split()
        listed = ",".join(kind for kind in kinds if not kind.startswith("events"))
        return set(self.run("get", listed, "--output=name").split())

    def until(
        self, kind: str, name: str, holds: Callable[[Document], bool], *, what: str, seconds: float = 180
    ) -> Document:
        """Returns an object as soon as something holds for it; it need not exist yet.

        Raises AssertionError, with the object's last status, where that has not come about after so many seconds.
        """
        return self._until(kind, f"metadata.name={name}", holds, what=f"{kind} {name} is not {what}", seconds=seconds)

    def until_event(self, job: str, reason: str, *, seconds: float = 60) -> str:
        """Returns what the first event of a reason about a job says."""
        fields = f"involvedObject.kind=QMLJob,involvedObject.name={job},reason={reason}"
        lack = f"there is no event {reason} about {job}"
        message: str = self._until("events", fields, lambda _: True, what=lack, seconds=seconds)["message"]
        return message

    def _until(
        self, kind: str, fields: str, holds: Callable[[Document], bool], *, what: str, seconds: float
    ) -> Document:
        watch = ("get", kind, f"--field-selector={fields}", "--watch", "--output-watch-events", "--output=json")
        last: Document = {}
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            with closing(self.lines(*watch, seconds=left)) as lines:
                for event in documents(lines):
                    last = event["object"]
                    if event["type"] != "DELETED" and holds(last):
                        return last
        raise AssertionError(f"after {seconds} s {what}; its status: {json.dumps(last.get('status'))}")

    def lines(self, *arguments: str, seconds: float) -> Generator[str]:
        """Yields what kubectl prints, line by line; after so many seconds kubectl is ended."""
        with subprocess.Popen(
            self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            timer = threading.Timer(seconds, process.kill)
            timer.start()
            try:
                yield from process.stdout
            finally:
                timer.cancel()
                process.kill()

    def until_phase(self, job: str, phase: str, *, seconds: float = 180) -> Document:
        """Returns the status of a job that has come to a phase, about the job's present generation."""
        found = self.until("qmljob", job, lambda found: is_current(found, phase), what=phase, seconds=seconds)
        status: Document = found["status"]
        return status

    def until_condition(self, job: str, condition: str, *, seconds: float = 180) -> Document:
        """Returns the status of a job of which a condition is True."""
        found = self.until("qmljob", job, lambda found: is_true(found, condition), what=condition, seconds=seconds)
        status: Document = found["status"]
        return status

    def bucket(self, prefix: str) -> set[str]:
        """Returns the names of the objects in the emulated bucket below a prefix."""
        return {item["name"] for item in json.loads(self._from_bucket(f"?prefix={prefix}")).get("items", [])}

    def bucket_object(self, name: str) -> Document:
        """Returns a JSON document from the emulated bucket."""
        found: Document = json.loads(self.bucket_bytes(name))
        return found

    def bucket_bytes(self, name: str) -> bytes:
        """Returns an object of the emulated bucket."""
        return self._from_bucket(f"/{quote(name, safe='')}?alt=media")

    def _from_bucket(self, path: str) -> bytes:
        emulator = "/api/v1/namespaces/qmljob-store/services/gcs:4443/proxy"
        command = self.command("get", "--raw", f"{emulator}/storage/v1/b/qmljob/o{path}")
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 0, f"{path} of the bucket: {done.stderr.decode().strip()}"
        return done.stdout

    def report(self) -> str:
        """Returns what a person needs to see why a test failed: jobs, pods, events, logs."""
        pods = [pod["metadata"]["name"] for pod in self.list("pods")]
        operator = Kube(OPERATOR_NAMESPACE)
        selector = "--selector=app.kubernetes.io/component=operator"
        lines = [line for line in operator.says("logs", selector, "--tail=-1").splitlines() if self.namespace in line]
        parts = {
            "jobs": self.says("get", "qmljobs", "--output=wide"),
            "status": "\n".join(
                yaml.safe_dump({job["metadata"]["name"]: job.get("status")}) for job in self.list("qmljobs")
            ),
            "pods": self.says("get", "pods", "--output=wide"),
            "events": self.says("events"),
            **{f"log of {pod}": self.says("logs", pod, "--tail=40", "--all-containers") for pod in pods},
            "the operator's log on this namespace": "\n".join(lines[-40:]),
            "the operator": operator.says("get", "pods", "--output=wide"),
            "nodes": operator.says("get", "nodes"),
        }
        return "\n".join(f"--- {title}\n{text.rstrip()}" for title, text in parts.items())


def documents(stream: Iterable[str]) -> Iterator[Document]:
    """Yields the JSON objects of a stream as soon as they are whole."""
    text = ""
    for line in stream:
        text += line
        try:
            document = json.loads(text)
        except json.JSONDecodeError:
            continue
        yield document
        text = ""


def is_current(job: Document, phase: str) -> bool:
    status = job.get("status", {})
    return status.get("observedGeneration") == job["metadata"]["generation"] and status.get("phase") == phase


def is_true(document: Document, condition: str) -> bool:
    return any(
        entry["type"] == condition and entry["status"] == "True"
        for entry in document.get("status", {}).get("conditions", [])
    )
