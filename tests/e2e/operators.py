"""The operator's own pods: who leads, and what becomes of the lead."""

from collections.abc import Callable, Collection

from e2e.kube import OPERATOR_NAMESPACE, Document, Kube

OPERATORS = Kube(OPERATOR_NAMESPACE)
LEASE = "qmljob-operator"


def leader() -> tuple[str, Document]:
    """Returns the identity that holds the Lease, and that operator's pod."""
    identity = _until_held(lambda _: True, "held by an operator")
    return identity, OPERATORS.get("pod", identity.partition("_")[0])


def until_another_leads(than: str) -> str:
    """Returns the identity that holds the Lease as soon as it is another one."""
    return _until_held(lambda holder: holder != than, f"held by another than {than}")


def until_leads_one_of(pods: Collection[str]) -> str:
    """Returns the identity that holds the Lease as soon as it belongs to one of these pods."""
    return _until_held(lambda holder: holder.partition("_")[0] in pods, f"held by one of {pods}")


def nodes_of(image: str) -> dict[str, str]:
    """Returns the node of each of the operator's pods whose image begins with some text, by the pods' names."""
    pods = OPERATORS.list("pods", "app.kubernetes.io/component=operator")
    current = [pod for pod in pods if pod["spec"]["containers"][0]["image"].startswith(image)]
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in current}


def _until_held(holds: Callable[[str], bool], what: str) -> str:
    def is_right(lease: Document) -> bool:
        holder = lease["spec"].get("holderIdentity")
        return bool(holder) and holds(holder)

    identity: str = OPERATORS.until("lease", LEASE, is_right, what=what, seconds=60)["spec"]["holderIdentity"]
    return identity
