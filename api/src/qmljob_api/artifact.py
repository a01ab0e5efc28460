"""The artifact's manifest and the checkpoint's pointer: small JSON documents that name data by sha256.

Data objects are immutable and named by their content; a manifest or pointer is replaced by one atomic, conditional
write after its data is complete. A reader that follows it therefore never sees a torn artifact.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

ARTIFACT_FORMAT = 1
CHECKPOINT_FORMAT = 1
MAX_QUBITS = 999
"""Far above what trains today. A manifest may come from anybody, and its model is built before it can be compared."""
_SHA256 = r"^[0-9a-f]{64}$"


class DataFile(BaseModel):
    """An immutable object beside the manifest."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{3,255}$", description="a name in the manifest's own folder")
    sha256: str = Field(pattern=_SHA256)
    size: int = Field(ge=0, description="bytes")


class ModelDescription(BaseModel):
    """What is needed to rebuild the model: the workload and the options that shape it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    workload: str = Field(min_length=1, max_length=63)
    qubits: int = Field(ge=1, le=MAX_QUBITS)
    symbols: tuple[str, ...] = Field(description="the circuit's trainable symbols, in the order of the weights")
    parameters: int = Field(ge=1, description="trainable numbers, quantum and classical")


class RunDescription(BaseModel):
    """How the weights came about."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    seed: int = Field(ge=0, lt=2**31)
    examples: int = Field(ge=1, lt=2**31)
    epochs: int = Field(ge=0)
    workers: int = Field(ge=1)
    global_batch_size: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    engine: str = Field(min_length=1, max_length=63)
    threads: int = Field(ge=1, lt=2**16)
    versions: dict[str, str]


class ArtifactManifest(BaseModel):
    """`<stem>.json` beside the weights: the one document that makes the files an artifact."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: Literal["qmljob-artifact"] = "qmljob-artifact"
    format: int = Field(ge=1)
    attempt: int = Field(ge=0)
    uid: str = Field(max_length=128)
    model: ModelDescription
    run: RunDescription
    weights: DataFile
    test_split: DataFile
    metrics: dict[str, float] = Field(default_factory=dict)


class CheckpointPointer(BaseModel):
    """`checkpoint.json`: names the newest complete checkpoint of a job."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: Literal["qmljob-checkpoint"] = "qmljob-checkpoint"
    format: int = Field(ge=1)
    attempt: int = Field(ge=0)
    uid: str = Field(max_length=128)
    epoch: int = Field(ge=0, description="epochs completed")
    step: int = Field(ge=0, description="steps completed since the first epoch")
    fingerprint: dict[str, str | int | float] = Field(
        description="what must be the same for the numbers to be the same"
    )
    threads: int = Field(ge=1)
    data: DataFile
