"""What `explain` tells of a job before it runs: its circuits, what simulating them costs, and on which engine.

The training program prints it as one JSON document, for the `qmljob` command; readers treat it as untrusted input.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

EXPLANATION_VERSION: Final = "explanation/v1"
EXPLANATION_LIMIT = 4 * 1024 * 1024
"""Bytes of a document that a reader accepts."""

_Count = Annotated[int, Field(ge=0)]
_Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ReadoutCone(_Document):
    """A readout's past light cone."""

    qubits: _Count
    gates: _Count = Field(description="gates that can influence the readout")


class ReadoutGroup(_Document):
    """Readouts that are computed together.

    Attributes:
        readouts: their numbers within the circuit.
        qubits: of the state vector, or of the largest light cone where there is none.
        method: `heisenberg` moves observables back, `state` moves state vectors forward.
        steps: contractions of tensors, or fused blocks of gates.
    """

    readouts: tuple[_Count, ...]
    qubits: _Count
    method: Literal["heisenberg", "state"]
    steps: _Count


class CircuitExplanation(_Document):
    """A circuit: its size, and what its readouts depend on.

    Attributes:
        gates: of encoding and ansatz.
        primitives: the same after decomposition; light cones count these.
        features, symbols: of the encoding, and of the ansatz (trainable).
        cones: one for each readout; empty where the engine does not see them.
        groups: how the engine lightcone computes them.
    """

    qubits: _Count
    gates: _Count
    primitives: _Count
    features: _Count
    symbols: _Count
    cones: tuple[ReadoutCone, ...]
    groups: tuple[ReadoutGroup, ...]


class EngineEstimate(_Document):
    """What one step on one worker is estimated to cost on an engine.

    Attributes:
        refusal: why the engine can't be used here; null where it can.
        multiplications: of real numbers, for value and gradient of a worker's batch.
        example_bytes, batch_bytes: memory beside TensorFlow's own.
        compile_seconds: once, before the first step.
    """

    engine: str
    refusal: str | None
    multiplications: _Count
    example_bytes: _Count
    batch_bytes: _Count
    seconds: _Seconds
    compile_seconds: _Seconds


class ScaleOut(_Document):
    """Whether another worker helps, the global batch staying the same.

    Attributes:
        parameters: float32 numbers that workers sum in each step.
        all_reduce_seconds: for two workers.
        one_seconds, two_seconds: a step of one worker, and of two.
        speedup: the one divided by the other.
        helps: whether two workers are clearly faster.
    """

    parameters: _Count
    all_reduce_seconds: _Seconds
    one_seconds: _Seconds
    two_seconds: _Seconds
    speedup: _Seconds
    helps: bool


class Explanation(_Document):
    """What there is to know of a job before it runs.

    Attributes:
        requested: the value of --engine; `engine` is what it comes to, `reason` why.
        calibration: where the constants of the estimates come from.
        cores: that this process may use.
        step_seconds, epoch_seconds, compile_seconds: of the chosen engine, on one worker of the job.
    """

    qmljob: Literal["explanation/v1"] = EXPLANATION_VERSION
    workload: str
    qubits: _Count
    train_examples: _Count
    test_examples: _Count
    workers: Annotated[int, Field(ge=1)]
    batch_size: Annotated[int, Field(ge=1)]
    global_batch_size: Annotated[int, Field(ge=1)]
    steps: _Count
    epochs: _Count
    threads: Annotated[int, Field(ge=1)]
    cores: Annotated[int, Field(ge=1)]
    circuits: tuple[CircuitExplanation, ...]
    requested: str
    engine: str
    reason: str
    engines: tuple[EngineEstimate, ...]
    step_seconds: _Seconds | None
    epoch_seconds: _Seconds | None
    compile_seconds: _Seconds | None
    calibration: str
    scale_out: ScaleOut | None


def parse_explanation(document: bytes | str) -> Explanation | None:
    """Returns the explanation that a document holds, or None for anything that is not one of this version."""
    if len(document) > EXPLANATION_LIMIT:
        return None
    try:
        return Explanation.model_validate_json(document)
    except ValidationError:
        return None
