"""The types of `qml.dev/v1alpha1`, kind QMLJob.

Values are frozen. A field's spelling in a manifest is the camelCase of its name here. What a field alone can be wrong
about (type, bound, pattern) is declared here; what several fields together can be wrong about is in `rules`. A manifest
is read by `parse.parse_job`, which finds both.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Literal

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


class RunPolicy(_Model):
    """How often and how long a job may try."""

    backoff_limit: int = Field(default=3, ge=0, le=10_000, description="charged restarts before the job fails")
    active_deadline_seconds: int | None = Field(
        default=None, ge=1, le=MAX_SECONDS, description="seconds from the job's start after which it fails"
    )
    startup_deadline_seconds: int | None = Field(
        default=None, ge=1, le=MAX_SECONDS, description="seconds an attempt may wait for all replicas to run"
    )


class OnExitCodes(_Model):
    """Which ends of a training container a rule is about."""

    operator: CodeOperator = CodeOperator.IN
    values: tuple[int, ...] = Field(min_length=1, max_length=MAX_EXIT_CODES)
    roles: tuple[Role, ...] | None = Field(
        default=None, min_length=1, max_length=len(Role), description="absent: any role"
    )


class FailureRule(_Model):
    """One rule of a failure policy."""

    on_exit_codes: OnExitCodes
    action: FailureAction


class FailurePolicy(_Model):
    """Rules on failures; the first that matches wins, and without a match the defaults of `policy` hold."""

    rules: tuple[FailureRule, ...] = Field(default=(), max_length=MAX_RULES)


class Port(_Model):
    """A port beside the rendezvous that every replica listens on."""

    name: str = Field(min_length=1, max_length=15, pattern=PORT_NAME)
    port: int = Field(ge=1, le=65535)


class ReplicaSpec(_Model):
    """The replicas of one role. `template` is a PodTemplateSpec, read only where the builders need it."""

    replicas: int = Field(default=1, ge=1, le=MAX_REPLICAS)
    template: dict[str, Any]


class ReplicaSpecs(_Model):
    """The roles of a job."""

    chief: ReplicaSpec | None = None
    worker: ReplicaSpec | None = None
    ps: ReplicaSpec | None = None
    evaluator: ReplicaSpec | None = None

    def present(self) -> Iterator[tuple[Role, ReplicaSpec]]:
        """Yields the roles that the job has, in the order of `Role`."""
        for role in Role:
            spec: ReplicaSpec | None = getattr(self, role.value)
            if spec is not None:
                yield role, spec


class InferenceSpec(_Model):
    """A Job that runs after success and reports the mean squared error of the artifact."""

    template: dict[str, Any]


class QMLJobSpec(_Model):
    """What the user asks for."""

    suspend: bool = False
    run_policy: RunPolicy = RunPolicy()
    success_policy: SuccessPolicy = SuccessPolicy.CHIEF
    failure_policy: FailurePolicy = FailurePolicy()
    port: int = Field(default=names.DEFAULT_PORT, ge=1, le=65535, description="the rendezvous")
    ports: tuple[Port, ...] = Field(default=(), max_length=MAX_PORTS)
    replica_specs: ReplicaSpecs
    inference: InferenceSpec | None = None


class QMLJob(_Model):
    """A job."""

    api_version: Literal["qml.dev/v1alpha1"] = "qml.dev/v1alpha1"
    kind: Literal["QMLJob"] = "QMLJob"
    metadata: Metadata
    spec: QMLJobSpec
