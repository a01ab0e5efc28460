"""The inference program, from flags to the result line."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qmljob_api.progress import InferenceResult, to_line
from qmljob_training import plugins, runtime
from qmljob_training.artifact import Artifact, model_options, read_artifact, rebuild
from qmljob_training.commandline import FlagParser, add_artifact_flags, artifact_location, whole_number
from qmljob_training.engines import auto
from qmljob_training.engines.protocol import Engine
from qmljob_training.errors import ConfigurationError
from qmljob_training.evaluation import evaluate
from qmljob_training.progress import say, write_termination_message
from qmljob_training.workloads.protocol import Split, Workload

FRESH_SEED_OFFSET = 1_000_003
"""Fresh examples come from the training seed plus this, unless --fresh-seed says otherwise."""


@dataclass(frozen=True)
class InferenceConfig:
    """The flags. fresh_examples: drawn anew, 0 for none; fresh_seed: None means derived from the training seed."""

    artifact: str
    engine: str | None
    threads: int
    fresh_examples: int | None
    fresh_seed: int | None
    output: Path | None
    predictions: bool


def run(arguments: Sequence[str]) -> None:
    """Loads, checks and evaluates an artifact; prints one JSON line and writes it to --output.

    Raises:
        ProgramError, StoreError: what is wrong with the flags, the store or the artifact.
    """
    config = parse_flags(arguments)
    artifact = read_artifact(config.artifact)
    say(f"artifact {artifact.location}: {artifact.manifest.model.workload}, {artifact.manifest.model.qubits} qubits")
    runtime.configure(config.threads)
    result = infer(artifact, config)
    line = to_line(result)
    print(line, flush=True)
    say(f"Mean squared error: {result.mse:.6f} on the artifact's test split ({result.examples} examples)")
    if result.fresh_mse is not None:
        say(f"Mean squared error: {result.fresh_mse:.6f} on {result.fresh_examples} examples drawn anew")
    write_termination_message(line)
    if config.output is not None:
        _write(config.output, line)


def infer(artifact: Artifact, config: InferenceConfig) -> InferenceResult:
    """Evaluates a checked artifact on its own test split and on fresh examples."""
    name = config.engine or auto.for_evaluation(artifact.manifest.run.engine)
    if name not in (config.engine, artifact.manifest.run.engine):
        say(f"engine {artifact.manifest.run.engine}, which trained, is not installed here: engine {name} evaluates")
    engine: Engine = plugins.load(plugins.ENGINES, name, Engine)
    model = rebuild(artifact, engine)
    own = evaluate(model, artifact.test_split)
    if config.predictions:
        for label, prediction in zip(artifact.test_split.labels, own.predictions, strict=True):
            say(f"label {label:+.0f}  prediction {prediction:+.6f}")
    result = InferenceResult(
        artifact=artifact.location,
        mse=own.mean_squared_error(artifact.test_split),
        sign_accuracy=own.sign_accuracy(artifact.test_split),
        examples=len(artifact.test_split),
    )
    if config.fresh_examples == 0:
        return result
    fresh, seed = _fresh_split(artifact, config)
    answers = evaluate(model, fresh)
    return result.model_copy(
        update={
            "fresh_mse": answers.mean_squared_error(fresh),
            "fresh_sign_accuracy": answers.sign_accuracy(fresh),
            "fresh_examples": len(fresh),
            "fresh_seed": seed,
        }
    )


def parse_flags(arguments: Sequence[str]) -> InferenceConfig:
    """Parses the flags; raises ConfigurationError."""
    parser = FlagParser(prog="python -m qmljob_inference", description="Report the mean squared error of an artifact.")
    add_artifact_flags(parser)
    parser.add_argument("--engine", help="what simulates circuits (default: the one that trained)")
    parser.add_argument("--threads", type=whole_number(1), default=1, help="of TensorFlow (default 1)")
    parser.add_argument(
        "--fresh-examples",
        type=whole_number(0),
        help="drawn anew; 0: none (as many as training drew)",
    )
    parser.add_argument("--fresh-seed", type=whole_number(0), help="of the fresh examples")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON line here too")
    parser.add_argument("--predictions", action="store_true", help="print each label and prediction")
    given = parser.parse_args(arguments)
    location = artifact_location(given)
    if location is None:
        raise ConfigurationError("--artifact is missing: name the weights to load")
    return InferenceConfig(
        artifact=location,
        engine=given.engine,
        threads=given.threads,
        fresh_examples=given.fresh_examples,
        fresh_seed=given.fresh_seed,
        output=given.output,
        predictions=given.predictions,
    )


def _fresh_split(artifact: Artifact, config: InferenceConfig) -> tuple[Split, int]:
    workload: Workload = plugins.load(plugins.WORKLOADS, artifact.manifest.model.workload, Workload)
    options = model_options(artifact)
    seed = config.fresh_seed if config.fresh_seed is not None else options.seed + FRESH_SEED_OFFSET
    return workload.draw(replace(options, seed=seed, examples=config.fresh_examples or options.examples)), seed


def _write(path: Path, line: str) -> None:
    try:
        path.write_text(line + "\n")
    except OSError as error:
        raise ConfigurationError(f"--output {path}: {error.strerror}; choose a file that can be written") from error
