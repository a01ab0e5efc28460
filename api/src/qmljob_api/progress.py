"""The progress line: what a worker says once an epoch, and in its termination message.

A line is one JSON object whose key `qmljob` is `progress/v1`. Readers treat it as untrusted input: `parse_progress`
returns None for anything that is not a well-formed line of this version.
"""

from typing import Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

PROGRESS_VERSION: Final = "progress/v1"
RESULT_VERSION: Final = "result/v1"
_M = TypeVar("_M", bound=BaseModel)

TERMINATION_MESSAGE_LIMIT = 4096
"""Bytes of a termination message that the kubelet keeps."""


class Progress(BaseModel):
    """The state of training at the end of an epoch.

    Losses are means over all examples of a split (dimensionless); times are in seconds.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    qmljob: Literal["progress/v1"] = PROGRESS_VERSION
    role: str = Field(max_length=63)
    index: int = Field(ge=0)
    attempt: int = Field(ge=0)
    epoch: int = Field(ge=0, description="epochs completed")
    epochs: int = Field(ge=1)
    step: int = Field(ge=0, description="steps completed since the first epoch")
    loss: float
    sign_accuracy: float
    val_loss: float
    val_sign_accuracy: float
    learning_rate: float
    seconds: float = Field(ge=0, description="training time of this epoch")
    validation_seconds: float = Field(ge=0)
    examples_per_second: float = Field(ge=0)


class InferenceResult(BaseModel):
    """What an inference run reports: the mean squared error on a set of examples."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    qmljob: Literal["result/v1"] = RESULT_VERSION
    artifact: str = Field(max_length=1024)
    mse: float = Field(description="on the artifact's own test split")
    sign_accuracy: float
    examples: int = Field(ge=1)
    fresh_mse: float | None = Field(default=None, description="on examples drawn anew from `fresh_seed`")
    fresh_sign_accuracy: float | None = None
    fresh_examples: int | None = None
    fresh_seed: int | None = None


def to_line(message: Progress | InferenceResult) -> str:
    """Returns the message as one line of JSON, without a newline."""
    return message.model_dump_json()


def parse_progress(line: str) -> Progress | None:
    """Returns the progress that a line of output holds, or None where it holds none."""
    return _parse(line, Progress, PROGRESS_VERSION)


def parse_result(line: str) -> InferenceResult | None:
    """Returns the inference result that a line of output holds, or None where it holds none."""
    return _parse(line, InferenceResult, RESULT_VERSION)


def _parse(line: str, model: type[_M], version: str) -> _M | None:
    if len(line) > TERMINATION_MESSAGE_LIMIT or f'"{version}"' not in line:
        return None
    try:
        return model.model_validate_json(line)
    except ValidationError:
        return None
