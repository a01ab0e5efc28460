"""A control plane for tests: etcd and kube-apiserver on loopback, with RBAC, default admission and an audit log.

No kubelet, scheduler or controller runs: `support.kubelet` plays them. So nobody makes a namespace's ServiceAccount
`default`, without which ServiceAccount admission refuses every pod: `make_namespace` makes it, as a cluster does.
"""

import base64
import contextlib
import fcntl
import json
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from support.api_client import (
    APPLY_PATCH,
    LIMIT_SECONDS,
    MERGE_PATCH,
    ApiClient,
    Event,
    Object,
    Query,
    Refused,
    Response,
    Watch,
)
from support.audit_log import POLICY, AuditLog, Record
from support.control_plane_programs import Programs, control_plane_programs
from support.servers import bound, free_port

__all__ = ["ControlPlane", "Refused", "Response", "running_control_plane"]

_START_SECONDS = 60.0
_START_TRIES = 3
_LOOK_AGAIN_SECONDS = 0.05
_PREFIX = "qmljob-control-plane-"
_LOCK = "in-use"
_ADMIN_GROUP = "system:masters"
# What a test can leave in a namespace. Dependents last: their owners' end is seen first.
_LEFT_BEHIND = (
    "apis/qml.dev/v1alpha1/{}/qmljobs",
    "apis/batch/v1/{}/jobs",
    "apis/policy/v1/{}/poddisruptionbudgets",
    "apis/networking.k8s.io/v1/{}/networkpolicies",
    "apis/coordination.k8s.io/v1/{}/leases",
    "api/v1/{}/resourcequotas",
    "api/v1/{}/limitranges",
    "api/v1/{}/services",
    "api/v1/{}/configmaps",
    "api/v1/{}/pods",
    "api/v1/{}/events",
)
_NO_FINALIZERS = {"metadata": {"finalizers": None}}


class ControlPlane(ApiClient):
    """A running control plane, and a client of it with all rights."""

    def __init__(self, url: str, folder: Path, programs: Programs, token: str) -> None:
        """`folder` holds the servers' certificates, logs and data."""
        super().__init__(url, ca=folder / "certificates" / "apiserver.crt", token=token)
        self.folder = folder
        self.programs = programs
        self.ca = folder / "certificates" / "apiserver.crt"
        self.serving_key = folder / "certificates" / "apiserver.key"
        self.kubectl = programs.kubectl
        self.kubeconfig = self.kubeconfig_for(token)
        self._audit = AuditLog(folder / "audit.log")
        self._watches: list[Watch] = []

    def watch(
        self,
        path: str,
        query: Query | None = None,
        *,
        token: str | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> Watch:
        """Starts to watch a collection; it is closed with the control plane at the latest."""
        started = super().watch(path, query, token=token, on_event=on_event)
        self._watches.append(started)
        return started

    def audit(self, user: str | None = None, since: int | None = None) -> list[Record]:
        """Returns the audit records of all requests of a user since a mark, in the order of their arrival."""
        return self._audit.requests(user, since)

    def audit_mark(self) -> int:
        """Returns the present end of the audit log."""
        return self._audit.mark()

    def service_account_token(self, namespace: str, name: str) -> str:
        """Returns a token of an existing ServiceAccount, as its pods get it."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 7200},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str(self.call("POST", path, request)["status"]["token"])

    def kubeconfig_for(self, token: str, *, namespace: str = "default", url: str | None = None) -> Path:
        """Writes a kubeconfig with a token's identity, for this server or what stands at `url` in its place."""
        context = {"cluster": "test", "user": "test", "namespace": namespace}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": url or self.url,
                        "certificate-authority-data": base64.b64encode(self.ca.read_bytes()).decode(),
                    },
                }
            ],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        path = self.folder / f"kubeconfig-{secrets.token_hex(4)}"
        path.write_text(json.dumps(document))
        path.chmod(0o600)
        return path

    def make_namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        """Makes a namespace and its ServiceAccount `default`; does nothing where they are there."""
        metadata = {"name": name, "labels": labels or {}}
        self._make("/api/v1/namespaces", {"metadata": metadata})
        self._make(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})

    def empty_namespace(self, name: str) -> None:
        """Deletes what a test left in a namespace, at once. The namespace stays: nobody would finish its deletion."""
        options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        for template in _LEFT_BEHIND:
            path = f"/{template.format(f'namespaces/{name}')}"
            listed = self.request("GET", path)
            if listed.status == 404:  # a kind that no test has defined
                continue
            for item in listed.body["items"]:
                if item["metadata"].get("finalizers"):
                    self.request(
                        "PATCH", f"{path}/{item['metadata']['name']}", _NO_FINALIZERS, content_type=MERGE_PATCH
                    )
            if listed.body["items"]:
                self.call("DELETE", path, options)

    def apply(self, *manifests: Path) -> None:
        """Applies files of manifests, as `kubectl apply` does it."""
        files = [word for manifest in manifests for word in ("--filename", str(manifest))]
        command = [str(self.kubectl), "--kubeconfig", str(self.kubeconfig), "apply", "--server-side", *files]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
        if done.returncode != 0:
            raise AssertionError(f"kubectl apply {' '.join(map(str, manifests))}: {done.stderr}")

    def define_kind(self, manifest: Path) -> None:
        """Applies a CustomResourceDefinition, and waits until its kind is served and found."""
        definition = yaml.safe_load(manifest.read_text("utf-8"))
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
        query = {"fieldManager": "tests", "fieldValidation": "Strict"}
        self.call("PATCH", path, definition, content_type=APPLY_PATCH, query=query)
        group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        for version in definition["spec"]["versions"]:
            self.wait_until("GET", f"/apis/{group}/{version['name']}/{plural}", what="the kind is served")

        def found(answer: Response) -> bool:
            return group in {each["name"] for each in answer.body["groups"]}

        self.wait_until("GET", "/apis", found, what="the kind is found")

    def wait_until(
        self,
        method: str,
        path: str,
        done: Callable[[Response], bool] = lambda answer: answer.ok,
        *,
        what: str,
        **options: Any,
    ) -> Response:
        """Sends a request until its answer is as `done` says, for what no watch can tell.

        New rights are such a thing: the server grants them a moment after their role was made.
        """
        again = threading.Event()
        deadline = time.monotonic() + LIMIT_SECONDS
        while not done(response := self.request(method, path, **options)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: {method} {path}: {response.status} {response.message}")
            again.wait(_LOOK_AGAIN_SECONDS)
        return response

    def close_watches(self) -> None:
        """Ends all watches that were started here."""
        while self._watches:
            self._watches.pop().close()

    def _make(self, path: str, body: Object) -> None:
        response = self.request("POST", path, body)
        if not response.ok and response.status != 409:
            raise Refused("POST", path, response)


@contextlib.contextmanager
def running_control_plane() -> Iterator[ControlPlane]:
    """Runs an empty control plane until the block ends; its data is gone with it.

    Raises:
        RuntimeError: its programs are not to be had, or they do not start; the message has the end of their logs.
    """
    programs = control_plane_programs()
    remove_abandoned_data()
    logs = ""
    for _ in range(_START_TRIES):
        with _data_folder() as folder:
            token = _write_configuration(folder)
            port = free_port()
            with contextlib.ExitStack() as stack:
                processes = [
                    stack.enter_context(_process(command, log)) for command, log in _commands(programs, folder, port)
                ]
                if _await_ready(processes, folder, port):
                    control_plane = ControlPlane(f"https://127.0.0.1:{port}", folder, programs, token)
                    stack.callback(control_plane.close_watches)
                    control_plane.make_namespace("default")
                    yield control_plane
                    return
            logs = "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in folder.glob("*.txt"))
    raise RuntimeError(f"the control plane did not start:\n{logs}")


def remove_abandoned_data() -> None:
    """Removes the data of control planes whose test run was killed before it could."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), lock.open() as file:  # its owner lives, or another run removes it as well
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


@contextlib.contextmanager
def _data_folder() -> Iterator[Path]:
    """A folder that is removed in the end, by a later run if this one is killed."""
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name,
        (Path(name) / _LOCK).open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(name)


def _write_configuration(folder: Path) -> str:
    """Writes what the API server reads, and returns the administrator's token."""
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"{_ADMIN_GROUP}"\n')
    (folder / "audit-policy.json").write_text(json.dumps(POLICY))
    (folder / "service-accounts.pem").write_text(_private_key())
    (folder / "certificates").mkdir()
    return token


def _private_key() -> str:
    """Returns a new private key on the curve P-256, as PEM.

    The structure is ECPrivateKey of RFC 5915, section 3, without the public key, which its reader computes: version 1,
    the number itself, the name of the curve. So a key needs no program and no library.
    """
    number = bytes([0x7F & secrets.randbits(8), *secrets.token_bytes(31)])  # below the order of the curve
    der = bytes.fromhex("30310201010420") + number + bytes.fromhex("a00a06082a8648ce3d030107")
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[start : start + 64] for start in range(0, len(text), 64))
    return f"-----BEGIN EC PRIVATE KEY-----\n{lines}\n-----END EC PRIVATE KEY-----\n"


def _commands(programs: Programs, folder: Path, port: int) -> list[tuple[list[str], Path]]:
    """Returns the commands of both servers, each with its log."""
    etcd_port = free_port()
    etcd = [
        str(programs.etcd),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{etcd_port}",
        f"--advertise-client-urls=http://127.0.0.1:{etcd_port}",
        "--listen-peer-urls=http://127.0.0.1:0",
        "--unsafe-no-fsync",  # its data ends with the tests
        "--log-level=warn",
    ]
    issuer = "https://kubernetes.default.svc"
    apiserver = [
        str(programs.kube_apiserver),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        f"--service-account-issuer={issuer}",
        f"--service-account-signing-key-file={folder / 'service-accounts.pem'}",
        f"--service-account-key-file={folder / 'service-accounts.pem'}",
        "--authorization-mode=RBAC",
        # Some distributions turn it on, so whoever creates objects with blockOwnerDeletion must have the right to.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        "--allow-privileged=true",
        "--service-cluster-ip-range=10.0.0.0/16",
        "--endpoint-reconciler-type=none",
        "--kubelet-preferred-address-types=InternalIP",
        f"--audit-policy-file={folder / 'audit-policy.json'}",
        f"--audit-log-path={folder / 'audit.log'}",
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=100000",  # MiB, so that it stays one file
    ]
    return [(etcd, folder / "etcd.txt"), (apiserver, folder / "kube-apiserver.txt")]


@contextlib.contextmanager
def _process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(bound(command), stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _await_ready(processes: list[subprocess.Popen[bytes]], folder: Path, port: int) -> bool:
    """Waits until the API server says that it is ready; False if a server ended instead (a port was taken)."""
    again = threading.Event()
    deadline = time.monotonic() + _START_SECONDS
    certificate = folder / "certificates" / "apiserver.crt"
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in processes):
            return False
        if certificate.exists():
            with contextlib.suppress(OSError):  # not listening yet
                if ApiClient(f"https://127.0.0.1:{port}", ca=certificate).request("GET", "/readyz", token="").ok:
                    return True
        again.wait(_LOOK_AGAIN_SECONDS)
    return False
