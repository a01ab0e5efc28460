"""The description of an artifact: its circuits, and what its model answers before and after training.

The training program prints it as one JSON document, for the report; readers treat it as untrusted input.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from qmljob_api.artifact import ModelDescription, RunDescription

DESCRIPTION_VERSION: Final = "description/v1"
DESCRIPTION_LIMIT = 64 * 1024 * 1024
"""Bytes of a document that a reader accepts."""


class _Document(BaseModel):
    # An answer may be NaN or infinite; JSON's null would not be read back as a number.
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")


class CircuitDrawing(_Document):
    """A circuit, drawn."""

    title: Annotated[str, Field(max_length=200)]
    svg: str | None = Field(description="an SVG document; None where the circuit is too large to draw")
    text: str = Field(description="the same as text, cut where it is long")
    qubits: int = Field(ge=0)
    moments: int = Field(ge=0, description="layers of gates that act at the same time")
    gates: int = Field(ge=0)


class Readouts(_Document):
    """Readouts on the artifact's test split; `before` and `after` training are [examples, readouts]."""

    labels: tuple[float, ...]
    before: tuple[tuple[float, ...], ...]
    after: tuple[tuple[float, ...], ...]

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        if not len(self.labels) == len(self.before) == len(self.after):
            raise ValueError("labels and readouts are of different numbers of examples")
        if len({len(row) for row in (*self.before, *self.after)}) > 1:
            raise ValueError("examples have different numbers of readouts")
        return self


class Predictions(_Document):
    """The model's answers on the artifact's test split, in the order of `Readouts.labels`."""

    before: tuple[float, ...]
    after: tuple[float, ...]


class ArtifactDescription(_Document):
    """What there is to show of an artifact.

    Attributes:
        drawn_symbols: what the drawings write for a symbol, and its name (θ7, qconv007); a symbol that is not here
            is drawn by its name.
        metrics: those of the artifact's manifest.
    """

    qmljob: Literal["description/v1"] = DESCRIPTION_VERSION
    artifact: str
    model: ModelDescription
    run: RunDescription
    metrics: dict[str, float]
    drawn_symbols: dict[str, str]
    circuits: tuple[CircuitDrawing, ...]
    readouts: Readouts
    predictions: Predictions

    @model_validator(mode="after")
    def _same_examples(self) -> Self:
        examples = len(self.readouts.labels)
        if not examples == len(self.predictions.before) == len(self.predictions.after):
            raise ValueError("readouts and predictions are of different numbers of examples")
        return self


def parse_description(document: bytes | str) -> ArtifactDescription | None:
    """Returns the description that a document holds, or None for anything that is not one of this version."""
    if len(document) > DESCRIPTION_LIMIT:
        return None
    try:
        return ArtifactDescription.model_validate_json(document)
    except ValidationError:
        return None
