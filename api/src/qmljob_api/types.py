"""The types of `qml.dev/v1alpha1`, kind QMLJob.

Values are frozen. A field's spelling in a manifest is the camelCase of its name here. What a field alone can be wrong
about (type, bound, pattern) is declared here; what several fields together can be wrong about is in `rules`. A manifest
is read by `parse.parse_job`, which finds both.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from qmljob_api import names

DNS_1035 = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
DNS_1123 = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
PORT_NAME = r"^[a-z0-9]+(-[a-z0-9]+)*$"
"""IANA_SVC_NAME, but for its rule that a letter is among the characters (see `rules`)."""

MAX_REPLICAS = 512
"""Of one role, and of all roles together: the longest possible TF_CONFIG then stays below the 128 KiB that Linux allows
one environment variable."""
MAX_PORTS = 16
MAX_RULES = 32
MAX_EXIT_CODES = 256
MAX_CONTAINERS = 128
"""Of one pod template."""
MAX_LABELS = 256
"""Of one pod template."""
MAX_SECONDS = 2_147_483_647


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, allow_inf_nan=False
    )


class Role(StrEnum):
    """What a replica is to TensorFlow: a task type of TF_CONFIG."""

    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"


class SuccessPolicy(StrEnum):
    """Whose success is the job's."""

    CHIEF = "Chief"
    """The chief's, else worker 0's: the job succeeds at once when it ends with 0."""
    ALL_REPLICAS = "AllReplicas"
    """That of every chief and worker. A ps serves without an end, and an evaluator only watches: neither counts."""


class FailureAction(StrEnum):
    """What follows when a rule matches the failure at the root of an attempt's end."""

    FAIL_JOB = "FailJob"
    """The job has failed, whatever is left of its backoff limit."""
    RESTART_GANG = "RestartGang"
    """A new attempt of all replicas, charged against the backoff limit."""
    IGNORE = "Ignore"
    """The replica counts as ended and the others go on. The chief's failure can't be ignored, since nothing would be
    left that could end the job: there the gang restarts."""


class CleanPodPolicy(StrEnum):
    """Which pods are deleted when a job has ended."""

    RUNNING = "Running"
    """Those that still run: the others stay, with their logs."""
    ALL = "All"
    """All of them."""
    NONE = "None"
    """None: a ps or an evaluator then runs on."""


class CodeOperator(StrEnum):
    """How an exit code is compared with a rule's values."""

    IN = "In"
    NOT_IN = "NotIn"


class Metadata(_Model):
    """The part of an object's metadata that QMLJob reads."""

    name: str = Field(min_length=1, max_length=names.NAME_LIMIT, pattern=DNS_1035)
    namespace: str = Field(default=names.DEFAULT_NAMESPACE, min_length=1, max_length=names.NAME_LIMIT, pattern=DNS_1123)
    uid: str = Field(default="", max_length=128, description="given by the API server; empty in a local run")
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


Template = Annotated[
    dict[str, Any],
    Field(
        description="An ordinary pod template (metadata, spec), as in a Deployment (`kubectl explain pod.spec`). "
        "restartPolicy is Never and need not be written. The operator adds only what is unset: no "
        "service account token, seccomp RuntimeDefault, no privilege escalation, no capabilities.",
    ),
]


class RunPolicy(_Model):
    """How often and how long the job may try, and what is left of it at its end."""

    backoff_limit: int = Field(
        default=3,
        ge=0,
        le=10_000,
        description="How many restarts may be charged before the job fails. Charged are failures of the job's own "
        "programs; what the cluster takes away (eviction, preemption, a lost node) is not. 0: the first failure is "
        "the end.",
    )
    active_deadline_seconds: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SECONDS,
        description="Seconds from the job's first start after which it fails, restarts included. Absent: no limit. "
        "Example: 86400 for a day.",
    )
    startup_deadline_seconds: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SECONDS,
        description="Seconds that an attempt may wait until all its replicas run; then the job fails. Absent: no "
        "limit. Example: 600, where a job that finds no room should not hold what it has.",
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        ge=0,
        le=MAX_SECONDS,
        description="Seconds after the job's end (inference included) until the job is deleted, with all that it "
        "owns; its artifact stays in the store. 0: at once. Absent: it is kept.",
    )
    clean_pod_policy: CleanPodPolicy = Field(
        default=CleanPodPolicy.RUNNING,
        description="Which pods are deleted when training has ended. Running: those that still run (a ps serves "
        "without an end); the others stay, with their logs. All: all of them. None: none of them.",
    )
    unreachable_seconds: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SECONDS,
        description="Seconds that a node may be silent before its replicas count as lost and the gang restarts. "
        "Absent: as long as Kubernetes takes to evict them (300 by default). Example: 60.",
    )
    force_delete_unreachable: bool = Field(
        default=False,
        description="Whether pods of a node that is silent are deleted from the API without the node's consent, so "
        "that the next attempt need not wait for the node. Their processes may still run there; the store is safe "
        "from them, since a lower attempt never replaces what a higher one wrote.",
    )


class OnExitCodes(_Model):
    """Which ends of a training container the rule is about."""

    operator: CodeOperator = Field(
        default=CodeOperator.IN,
        description="In: the rule is about the listed codes. NotIn: about all others, but 0 and 69 (lost peer).",
    )
    values: tuple[Annotated[int, Field(description="An exit code, 1 to 255, but 69.")], ...] = Field(
        min_length=1,
        max_length=MAX_EXIT_CODES,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Exit codes, each once. Example: [137], the code of a container that ran out of memory.",
    )
    roles: tuple[Role, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=len(Role),
        description="The roles whose replicas the rule is about. Absent: all of them.",
    )


class FailureRule(_Model):
    """An answer to certain exit codes."""

    on_exit_codes: OnExitCodes
    action: FailureAction = Field(
        description="FailJob: the job fails at once. RestartGang: a new attempt, charged against backoffLimit. Ignore: "
        "the replica counts as ended and the others go on (the chief can't be ignored: there the gang restarts)."
    )


class FailurePolicy(_Model):
    """Answers to failures of replicas. Without a rule that matches, exit codes 64 (invalid configuration) and 65 (bad
    artifact) fail the job, and any other restarts the gang."""

    rules: tuple[FailureRule, ...] = Field(
        default=(), max_length=MAX_RULES, description="Rules, asked in their order; the first that matches wins."
    )


class Port(_Model):
    """A port that every replica listens on."""

    name: str = Field(
        min_length=1,
        max_length=15,
        pattern=PORT_NAME,
        description="The port's name: lower-case letters, digits and single '-', with a letter. Containers get the "
        "number in QMLJOB_PORT_<NAME>. Example: profiler.",
    )
    port: int = Field(
        ge=1, le=65535, description="The port's number: neither the rendezvous nor another port's. Example: 2223."
    )


class ReplicaSpec(_Model):
    """The replicas of one role: pods named <job>-<role>-<index>, each with a headless Service of the same name."""

    replicas: int = Field(
        default=1,
        ge=1,
        le=MAX_REPLICAS,
        description="How many replicas the role has. An edit restarts the gang from the checkpoint, not charged.",
    )
    template: Template


class ReplicaSpecs(_Model):
    """The roles of the job: a worker or a chief at least, 512 replicas at most over all roles."""

    chief: ReplicaSpec | None = Field(
        default=None, description="The replica that leads; one at most. Absent: worker 0 leads."
    )
    worker: ReplicaSpec | None = Field(default=None, description="The replicas that train.")
    ps: ReplicaSpec | None = Field(
        default=None, description="Parameter servers, for programs of your own with a ParameterServerStrategy."
    )
    evaluator: ReplicaSpec | None = Field(
        default=None,
        description="A replica that watches the training and is no part of it; one at most. Its failure never restarts "
        "the gang.",
    )

    def present(self) -> Iterator[tuple[Role, ReplicaSpec]]:
        """Yields the roles that the job has, in the order of `Role`."""
        for role in Role:
            spec: ReplicaSpec | None = getattr(self, role.value)
            if spec is not None:
                yield role, spec


class InferenceSpec(_Model):
    """A Job that runs once after training has succeeded. The mean squared error that its container `inference` (else
    its first) reports lands in status.results; its failure does not undo the job's success."""

    template: Template


class QMLJobSpec(_Model):
    """What the user asks for."""

    suspend: bool = Field(
        default=False,
        description="true: the job's pods are deleted and its state is kept. Back to false: a new attempt goes on from "
        "the checkpoint, not charged.",
    )
    run_policy: RunPolicy = RunPolicy()
    success_policy: SuccessPolicy = Field(
        default=SuccessPolicy.CHIEF,
        description="Whose success is the job's. Chief: that of the chief, else of worker 0. AllReplicas: that of "
        "the chief and all workers together.",
    )
    failure_policy: FailurePolicy = FailurePolicy()
    port: int = Field(
        default=names.DEFAULT_PORT,
        ge=1,
        le=65535,
        description="The port by which replicas meet (the rendezvous): the one in TF_CONFIG.",
    )
    ports: tuple[Port, ...] = Field(
        default=(),
        max_length=MAX_PORTS,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        description="More ports on every replica's Service, for a profiler for one.",
    )
    replica_specs: ReplicaSpecs
    inference: InferenceSpec | None = None


class QMLJob(_Model):
    """A job: trains a model on the replicas that it lists, and restarts them together when one is lost."""

    api_version: Literal["qml.dev/v1alpha1"] = "qml.dev/v1alpha1"
    kind: Literal["QMLJob"] = "QMLJob"
    metadata: Metadata
    spec: QMLJobSpec
