"""The status of a QMLJob: what the operator wrote down, and reads again after a restart.

A status may have been edited by hand or written by another version. `parse_status` therefore never raises: a part that
is damaged is dropped and the rest is kept. Texts are cut to the length that the CRD allows, so that a long message can
never keep a status from being written.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from qmljob_api.conditions import ConditionType, Phase
from qmljob_api.lenient import dense, read
from qmljob_api.progress import InferenceResult, Progress
from qmljob_api.timestamps import parse_time
from qmljob_api.types import MAX_REPLICAS, Role

__all__ = [
    "AttemptRecord",
    "Condition",
    "ConditionType",
    "Gang",
    "JobStatus",
    "LastFailure",
    "Phase",
    "ProgressStatus",
    "Replacing",
    "ReplicaStatus",
    "ResultsStatus",
    "parse_status",
    "progress_status",
    "results_status",
    "to_document",
]

MAX_CONDITIONS = 16
MAX_HISTORY = 5
"""Attempts that `history` keeps: the last ones."""
MAX_COUNT = 2_147_483_647
_MAX_EXACT = 2**53 - 1
"""The largest number that the API server's checks of a schema, which are done in floating point, tell from the next."""


def _head(limit: int) -> BeforeValidator:
    return BeforeValidator(
        lambda text: f"{text[: limit - 1]}…" if isinstance(text, str) and len(text) > limit else text
    )


def _tail(limit: int) -> BeforeValidator:
    # The end of a program's output says why it ended.
    return BeforeValidator(
        lambda text: f"…{text[1 - limit :]}" if isinstance(text, str) and len(text) > limit else text
    )


def _checked_time(text: str) -> str:
    if parse_time(text) is None:
        raise ValueError("is not a time; write it as 2026-11-21T04:30:00Z")
    return text


Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"}), AfterValidator(_checked_time)]
# Any word passes the API server: an operator may be newer than the CRD that it meets.
_AnyWord = WithJsonSchema({"type": "string", "maxLength": 64})
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Generation = Annotated[int, Field(ge=0, le=_MAX_EXACT)]
ReplicaName = Annotated[
    str, Field(min_length=1, max_length=253, description="A replica's name. Example: qcnn-worker-1.")
]
Word = Annotated[str, Field(min_length=1, max_length=128)]
Sentence = Annotated[str, _head(1024), Field(max_length=1024)]


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", alias_generator=to_camel, populate_by_name=True, allow_inf_nan=False
    )


class Condition(_Part):
    """One fact about the job, with the reason for it and the time since when it holds."""

    type: Annotated[ConditionType, _AnyWord] = Field(
        description=f"What the condition tells, one of {', '.join(ConditionType)}.",
        strict=False,
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it is so: True, False or Unknown.")
    reason: Annotated[str, Field(max_length=128)] = Field(
        default="", description="Why, in one word of the API reference. Example: BackoffLimitExceeded."
    )
    message: Sentence = Field(default="", description="Why, in a sentence for people.")
    observed_generation: Generation | None = Field(
        default=None, description="The metadata.generation that the condition is about."
    )
    last_transition_time: Time | None = Field(default=None, description="Since when the status is what it is.")


class ReplicaStatus(_Part):
    """The replicas of one role, counted."""

    replicas: Count = Field(default=0, description="Pods of the role that exist.")
    running: Count = Field(default=0, description="Of these, those whose training container runs.")
    succeeded: Count = Field(default=0, description="Replicas that have ended with exit code 0.")
    failed: Count = Field(default=0, description="Replicas that have ended otherwise.")


class Replacing(_Part):
    """A replica of the present attempt that was started anew alone.

    `uid` is that of the pod that has to go first, empty where it was gone already; `count` says how often this replica
    was replaced; nothing is created before `time`.
    """

    replica: ReplicaName = Field(description="The replica's name. Example: qcnn-evaluator-0.")
    uid: Annotated[str, Field(max_length=128)] = Field(
        default="", description="The uid of the pod that has to go first; empty where it was gone already."
    )
    count: Count = Field(default=1, description="How often the replica was replaced in this attempt.")
    time: Time = Field(description="Nothing is created before this time.")


class Gang(_Part):
    """The present attempt: what it was built from, and how far."""

    attempt: Count = Field(description="The attempt, as in status.attempt.")
    generation: Generation = Field(description="The metadata.generation that the attempt was built from.")
    fingerprint: Word = Field(
        description="A digest of all that the pods are made from: another one means a planned restart."
    )
    roles: dict[Annotated[Role, Field(strict=False)], Annotated[Count, Field(description="Replicas of the role.")]] = (
        Field(
            description="The number of replicas that the attempt was built with, by role.",
            default_factory=dict,
            max_length=len(Role),
        )
    )
    complete: bool = Field(
        default=False,
        description="Whether all pods of the attempt were created. Until then missing ones are created; after it a "
        "missing one ends the attempt.",
    )
    start_time: Time = Field(description="When the attempt began.")
    succeeded: tuple[ReplicaName, ...] = Field(
        description="The replicas whose success was seen: it counts when their pods are gone, too.",
        default=(),
        max_length=MAX_REPLICAS,
        strict=False,
    )
    replacing: tuple[Replacing, ...] = Field(
        description="The replicas of this attempt that were started anew alone.",
        default=(),
        max_length=MAX_REPLICAS,
        strict=False,
    )


class ProgressStatus(_Part):
    """How far training is: the last progress line of the chief, else of worker 0."""

    attempt: Count | None = Field(default=None, description="The attempt that reported.")
    epoch: Count | None = Field(default=None, description="Epochs completed.")
    epochs: Count | None = Field(default=None, description="Epochs that the training has.")
    step: Generation | None = Field(default=None, description="Steps completed since the first epoch.")
    loss: float | None = Field(
        default=None, description="Mean loss over the training split (for qcnn a mean squared error)."
    )
    sign_accuracy: float | None = Field(
        default=None, description="Share of the training split whose prediction has the label's sign, 0 to 1."
    )
    val_loss: float | None = Field(default=None, description="Mean loss over the test split.")
    val_sign_accuracy: float | None = Field(default=None, description="Sign accuracy on the test split, 0 to 1.")
    learning_rate: float | None = Field(default=None, description="The learning rate of the epoch.")
    seconds: float | None = Field(default=None, description="Training time of the epoch, in seconds.")
    examples_per_second: float | None = Field(
        default=None, description="Training examples per second, all workers together."
    )
    time: Time | None = Field(default=None, description="When the operator read the report.")


class ResultsStatus(_Part):
    """What inference reported."""

    artifact: Annotated[str, _head(1024), Field(max_length=1024)] = Field(
        default="", description="The artifact that was loaded. Example: gs://bucket/qcnn_weights.h5."
    )
    mse: float | None = Field(default=None, description="Mean squared error on the artifact's own test split.")
    sign_accuracy: float | None = Field(
        default=None, description="Share of that split whose prediction has the label's sign, 0 to 1."
    )
    examples: Count | None = Field(default=None, description="Examples of that split.")
    fresh_mse: float | None = Field(
        default=None, description="Mean squared error on examples drawn anew, where that was asked for."
    )
    fresh_sign_accuracy: float | None = Field(default=None, description="Sign accuracy on these, 0 to 1.")
    fresh_examples: Count | None = Field(default=None, description="How many these were.")
    fresh_seed: Generation | None = Field(default=None, description="The seed that they were drawn from.")
    time: Time | None = Field(default=None, description="When the operator read the report.")


class LastFailure(_Part):
    """The failure at the root of the last attempt's end, kept because the replica's pod goes."""

    replica: ReplicaName = Field(description="The replica at fault. Example: qcnn-worker-1.")
    attempt: Count = Field(description="The attempt that it failed in.")
    exit_code: Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)] | None = Field(
        default=None, description="The exit code of its training container; absent where it has none (a lost node)."
    )
    reason: Annotated[str, Field(max_length=128)] = Field(
        default="", description="Why the attempt ended, in one word of the API reference."
    )
    message: Annotated[str, _tail(4096), Field(max_length=4096)] = Field(
        default="", description="The last lines of its output."
    )
    time: Time | None = Field(default=None, description="When it ended.")


class AttemptRecord(_Part):
    """An attempt that has ended: why, and whether it was charged."""

    attempt: Count = Field(description="The attempt, counted from 0.")
    reason: Annotated[str, Field(max_length=128)] = Field(
        default="", description="Why it ended, in one word of the API reference. Example: Disrupted."
    )
    charged: bool = Field(default=False, description="Whether its end was charged against runPolicy.backoffLimit.")
    replica: ReplicaName | None = Field(
        default=None, description="The replica at the root of its end, where there is one."
    )
    message: Annotated[str, _head(512), Field(max_length=512)] = Field(
        default="", description="Why it ended, in a sentence for people."
    )
    time: Time | None = Field(default=None, description="When it ended.")


class JobStatus(_Part):
    """What the operator knows about a job. All of it is optional: a new job has an empty status."""

    observed_generation: Generation | None = Field(
        default=None, description="The metadata.generation that this status is about."
    )
    phase: Annotated[Phase | None, _AnyWord] = Field(
        description=f"The job's state in one word, a summary of its conditions: one of {', '.join(Phase)}.",
        default=None,
        strict=False,
    )
    conditions: tuple[Condition, ...] = Field(
        description="Facts about the job, one of each type.", default=(), max_length=MAX_CONDITIONS, strict=False
    )
    start_time: Time | None = Field(
        default=None, description="When attempt 0 began; activeDeadlineSeconds counts from here."
    )
    completion_time: Time | None = Field(default=None, description="When training ended, with success or without.")
    attempt: Count | None = Field(
        default=None,
        description="The present attempt, counted from 0; absent while the job was never started. It never goes down.",
    )
    restarts: Count = Field(default=0, description="Restarts that were charged against runPolicy.backoffLimit.")
    disruptions: Count = Field(default=0, description="Restarts because the cluster took a replica away; not charged.")
    lost_peer_attempts: Count = Field(
        default=0,
        description="Attempts right before the present one that ended with lost peers only; they have their own limit.",
    )
    gang: Gang | None = None
    next_attempt_time: Time | None = Field(
        default=None, description="When the next attempt may start; absent while none waits."
    )
    replicas: Count = Field(default=0, description="Worker pods that exist (the scale subresource reads it).")
    selector: Annotated[str, Field(max_length=1024)] = Field(
        default="", description="A label selector of the worker pods, as text (the scale subresource reads it)."
    )
    ready: Annotated[str, Field(max_length=32)] = Field(
        default="", description="Replicas that run, of all. Example: 2/4."
    )
    replica_statuses: dict[Annotated[Role, Field(strict=False)], ReplicaStatus] = Field(
        description="The replicas counted, by role.", default_factory=dict, max_length=len(Role)
    )
    progress: ProgressStatus | None = None
    results: ResultsStatus | None = None
    last_failure: LastFailure | None = None
    history: Annotated[
        tuple[AttemptRecord, ...],
        Field(
            strict=False,
            description="The last 5 attempts that have ended, the oldest first.",
            json_schema_extra={"maxItems": MAX_HISTORY},
        ),
        AfterValidator(lambda records: records[-MAX_HISTORY:]),
    ] = ()

    def condition(self, kind: ConditionType) -> Condition | None:
        """Returns the condition of a type, or None where the job has none."""
        return next((condition for condition in self.conditions if condition.type is kind), None)

    def holds(self, kind: ConditionType) -> bool:
        """Returns whether the condition of a type is True."""
        condition = self.condition(kind)
        return condition is not None and condition.status == "True"


def parse_status(raw: object) -> JobStatus:
    """Returns the status that an object of the API server holds. Nothing raises: what is damaged is left out."""
    return read(JobStatus, raw) or JobStatus()


def to_document(status: JobStatus) -> dict[str, Any]:
    """Returns a status as the API server takes it: plain JSON values, without what is empty. Zeros and False stay."""
    document: dict[str, Any] = dense(status.model_dump(mode="json", by_alias=True))
    return document


def progress_status(progress: Progress, time: str) -> ProgressStatus:
    """Returns what the status keeps of a progress line that was read at a time.

    Numbers are rounded to 6 digits, as people read them; what is not finite is left out.
    """
    return read(ProgressStatus, _aliased(progress, time)) or ProgressStatus()


def results_status(result: InferenceResult, time: str) -> ResultsStatus:
    """Returns what the status keeps of an inference result that was read at a time; numbers as in `progress_status`."""
    return read(ResultsStatus, _aliased(result, time)) or ResultsStatus()


def _aliased(message: BaseModel, time: str) -> dict[str, Any]:
    values = {to_camel(name): _rounded(value) for name, value in message.model_dump().items()}
    return {**values, "time": time}


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
