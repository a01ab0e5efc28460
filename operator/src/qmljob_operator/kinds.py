"""The kinds of objects that are read and written, and where an API server has them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from qmljob_api import names


class Kind(StrEnum):
    """A kind of object, by its plural. Jobs come first: who reads all kinds reads them in this order."""

    QMLJOB = names.PLURAL
    POD = "pods"
    SERVICE = "services"
    JOB = "jobs"
    NETWORK_POLICY = "networkpolicies"

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Kind":
        """Returns the kind of an object."""
        return _BY_KIND[document["kind"]]

    @property
    def group(self) -> str:
        """The API group, empty for the core."""
        return _APIS[self][0]

    @property
    def version(self) -> str:
        """The version in the API group."""
        return _APIS[self][1]


_BY_KIND = {
    names.KIND: Kind.QMLJOB,
    "Pod": Kind.POD,
    "Service": Kind.SERVICE,
    "Job": Kind.JOB,
    "NetworkPolicy": Kind.NETWORK_POLICY,
}
_APIS = {
    Kind.QMLJOB: (names.GROUP, names.VERSION),
    Kind.POD: ("", "v1"),
    Kind.SERVICE: ("", "v1"),
    Kind.JOB: ("batch", "v1"),
    Kind.NETWORK_POLICY: ("networking.k8s.io", "v1"),
}
