"""What a job's pods and the operator can't do on a real cluster."""

from e2e import sample
from e2e.kube import OPERATOR_NAMESPACE, Kube

LOOK = """
import os, pathlib
token = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount").exists()
root = os.access("/", os.W_OK) or os.access("/qmljob", os.W_OK)
privileges = [line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "NoNewPrivs"))]
print(token, os.getuid(), root, *privileges)
"""
OPERATOR = f"system:serviceaccount:{OPERATOR_NAMESPACE}:qmljob-operator"


def test_a_replica_has_no_api_token_no_root_no_capability_and_can_write_nothing_but_its_tmp(kube: Kube) -> None:
    kube.apply(sample.waiting(kube.namespace))
    kube.until_phase("qcnn", "Running")
    seen = kube.run("exec", "qcnn-worker-0", "--", "python", "-c", LOOK).split()
    assert seen == ["False", "65532", "False", "0000000000000000", "1"]


def test_the_operator_can_read_no_secret_and_run_nothing_in_a_pod(kube: Kube) -> None:
    assert may(kube, "create", "pods") == "yes"
    assert may(kube, "get", "secrets") == "no"
    assert may(kube, "list", "secrets") == "no"
    assert may(kube, "create", "pods", "--subresource=exec") == "no"
    assert may(kube, "create", "serviceaccounts", "--subresource=token") == "no"


def may(kube: Kube, *what: str) -> str:
    """Returns whether the operator may do something, "yes" or "no"."""
    return kube.says("auth", "can-i", *what, f"--as={OPERATOR}").strip()
