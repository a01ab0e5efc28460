"""Asks the API server whether a job's pods could be created, before anything is.

It judges what the CRD's schema can't: the inside of the pod templates, by all of its admission (quota, Pod Security,
ServiceAccounts, PriorityClasses, webhooks). One replica of each role is asked about, under a name that nobody else has:
in a planned restart the pods of the attempt before still hold their names.
"""

import re

from qmljob_api.types import QMLJob, Role
from qmljob_operator.controller.cluster import ApiError, Cluster
from qmljob_operator.observation import Answer, Document, Verdict
from qmljob_operator.resources.pod import build_pod
from qmljob_operator.topology import build_topology, service_addresses

_PREFIX = "qmljob-dry-run-"
_QUOTA = "exceeded quota"
"""How the admission of ResourceQuota begins its refusal."""
_GENERATED = re.compile(rf"{_PREFIX}[a-z0-9]*")


async def dry_run(cluster: Cluster, job: QMLJob, *, has_pods: bool) -> Answer:
    """Returns whether the API server would take the job's pods, else its words about the first role that it refuses.

    `has_pods` says that pods of the job exist. What they hold of a quota is free once they are gone, so that a quota's
    refusal then says nothing.
    """
    topology = build_topology(job)
    addresses = service_addresses(job, topology)
    for role in Role:
        for replica in topology.of(role)[:1]:
            pod = build_pod(job, topology, replica, attempt=0, restarts=0, addresses=addresses)
            try:
                await cluster.create(_unnamed(pod), dry_run=True)
            except ApiError as error:
                if has_pods and _QUOTA in error.message:
                    continue
                return _refusal(error, role, replica.name)
    return Answer(Verdict.ACCEPTED)


def _unnamed(pod: Document) -> Document:
    metadata = {key: value for key, value in pod["metadata"].items() if key != "name"}
    return {**pod, "metadata": {**metadata, "generateName": _PREFIX}}


def _refusal(error: ApiError, role: Role, name: str) -> Answer:
    if error.status in (400, 422):
        template = f"spec.replicaSpecs.{role.value}.template"
        fields = "; ".join(f"{template}.{field}: {message}" for field, message in error.causes if field)
        return Answer(Verdict.INVALID, fields or f"{template}: {_named(error.message, name)}")
    return Answer(Verdict.FORBIDDEN, _named(error.message, name))


def _named(message: str, name: str) -> str:
    # The generated name is another one each time; the condition's message must not be.
    return _GENERATED.sub(name, message)
