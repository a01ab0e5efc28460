"""`python -m qmljob_training describe`: what there is to show of an artifact, as JSON or in a few lines."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qmljob_api.description import ArtifactDescription, Predictions, Readouts
from qmljob_training import drawing, plugins, runtime
from qmljob_training.artifact import Artifact, model_options, read_artifact, rebuild
from qmljob_training.commandline import FlagParser, whole_number
from qmljob_training.engines import auto
from qmljob_training.engines.protocol import Engine
from qmljob_training.errors import ConfigurationError
from qmljob_training.evaluation import evaluate
from qmljob_training.workloads.protocol import Workload

TEXT_COLUMNS = 120
"""Circuits that are wider than this are left out of the summary for a person."""


@dataclass(frozen=True)
class DescribeConfig:
    """The flags. threads: None means as many as training had, which gives the same bits."""

    artifact: str
    json: bool
    threads: int | None


def run(arguments: Sequence[str]) -> None:
    """Reads an artifact, answers its test split before and after training, and prints the description.

    Raises:
        ProgramError, StoreError: what is wrong with the flags, the store or the artifact.
    """
    config = parse_flags(arguments)
    artifact = read_artifact(config.artifact)
    runtime.configure(config.threads or artifact.manifest.run.threads)
    description = describe(artifact)
    print(description.model_dump_json() if config.json else summary(description), flush=True)


def parse_flags(arguments: Sequence[str]) -> DescribeConfig:
    """Parses the flags; raises ConfigurationError."""
    parser = FlagParser(
        prog="python -m qmljob_training describe",
        description="Describe an artifact: its circuits, and its answers before and after training.",
    )
    parser.add_argument("--artifact", metavar="LOCATION", help="gs:// or file:// location of the weights")
    parser.add_argument("--json", action="store_true", help="print one JSON document, with circuits and answers")
    parser.add_argument("--threads", type=whole_number(1), help="of TensorFlow (default: as in training)")
    given = parser.parse_args(arguments)
    if not given.artifact:
        raise ConfigurationError("--artifact is missing: name the weights to describe")
    return DescribeConfig(given.artifact, given.json, given.threads)


def describe(artifact: Artifact) -> ArtifactDescription:
    """Returns the description of a checked artifact.

    `before` is the workload's new model: its initial weights come from the artifact's seed, as training's did.

    Raises:
        ProgramError: the workload or engine is not installed, or the artifact is of another model.
    """
    manifest, options = artifact.manifest, model_options(artifact)
    workload: Workload = plugins.load(plugins.WORKLOADS, manifest.model.workload, Workload)
    engine: Engine = plugins.load(plugins.ENGINES, auto.for_evaluation(manifest.run.engine), Engine)
    # Checked before a new model is made: that one knows nothing of what is wrong with the artifact.
    trained = rebuild(artifact, engine)
    before, after = (evaluate(model, artifact.test_split) for model in (workload.model(options, engine), trained))
    circuits = workload.circuits(options)
    abbreviations = drawing.abbreviate(circuits.values(), workload.symbols(options))
    return ArtifactDescription(
        artifact=artifact.location,
        model=manifest.model,
        run=manifest.run,
        metrics=manifest.metrics,
        drawn_symbols={short: name for name, short in abbreviations.items()},
        circuits=tuple(drawing.draw(title, circuit, abbreviations) for title, circuit in circuits.items()),
        readouts=Readouts(
            labels=artifact.test_split.labels.tolist(), before=before.readouts.tolist(), after=after.readouts.tolist()
        ),
        predictions=Predictions(before=before.predictions.tolist(), after=after.predictions.tolist()),
    )


def summary(description: ArtifactDescription) -> str:
    """Returns the description in a few lines for a person."""
    model, run = description.model, description.run
    lines = [
        f"artifact {description.artifact}: {model.workload}, {model.qubits} qubits, {model.parameters} parameters "
        f"({len(model.symbols)} symbols)",
        f"trained for {run.epochs} epochs by {run.workers} worker(s), seed {run.seed}, engine {run.engine}",
        f"mean squared error on its {len(description.readouts.labels)} test examples: "
        f"{_error(description, 'before'):.6f} before training, {_error(description, 'after'):.6f} after",
    ]
    for circuit in description.circuits:
        lines.append(f"{circuit.title}: {circuit.qubits} qubits, {circuit.moments} moments, {circuit.gates} gates")
        rows = circuit.text.splitlines()
        lines += [f"  {row}" for row in rows if max(map(len, rows)) <= TEXT_COLUMNS]
    return "\n".join(lines)


def _error(description: ArtifactDescription, when: str) -> float:
    predictions = np.array(getattr(description.predictions, when))
    return float(np.mean(np.square(predictions - np.array(description.readouts.labels))))
