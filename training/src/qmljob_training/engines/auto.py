"""Engine `auto`: chooses between `lightcone` and `tfq` by what a step is estimated to cost, and says why.

The choice depends on the circuits and on what is installed, never on a measurement or on the number of workers: all
replicas choose the same, and so does a run that is resumed. What is chosen is what checkpoints and artifacts record.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from qmljob_api.explanation_text import duration
from qmljob_training import plugins
from qmljob_training.engines import estimate
from qmljob_training.engines.estimate import Estimate
from qmljob_training.engines.protocol import CircuitModel, Engine, Expectation
from qmljob_training.errors import ConfigurationError
from qmljob_training.workloads.protocol import TellsCircuits, Workload, WorkloadOptions

AUTO = "auto"
LIGHTCONE = "lightcone"
TFQ = "tfq"
INSTALL_TFQ = "install tensorflow-quantum==0.7.6, the extra tfq of qmljob-training (x86_64 only), or use --engine auto"


class AutoEngine:
    """Takes, for each circuit, the engine that is estimated to be cheaper."""

    name = AUTO

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}

    def expectation(self, model: CircuitModel) -> Expectation:
        chosen = choose((model,)).engine
        if chosen not in self._engines:
            self._engines[chosen] = plugins.load(plugins.ENGINES, chosen, Engine)
        return self._engines[chosen].expectation(model)


@dataclass(frozen=True)
class Choice:
    """An engine and why it: one clause, that follows "engine lightcone: "."""

    engine: str
    reason: str


def resolve(name: str, workload: Workload, options: WorkloadOptions) -> Choice:
    """Returns the engine that a run uses, with `auto` replaced by what it comes to.

    Raises:
        ConfigurationError: there is no such engine, or it can't be used here; or no engine can simulate the circuits.
    """
    plugins.check_known(plugins.ENGINES, name)
    if name == TFQ and not estimate.tfq_is_installed():
        raise ConfigurationError(f"--engine {TFQ}: TensorFlow Quantum is not installed here; {INSTALL_TFQ}")
    if name != AUTO:
        return Choice(name, "--engine asks for it")
    if not isinstance(workload, TellsCircuits):
        return Choice(LIGHTCONE, f"workload {workload.name} does not tell its circuits, and {LIGHTCONE} takes any")
    return choose(workload.circuit_models(options))


def for_evaluation(name: str) -> str:
    """Returns the engine that evaluates an artifact made by engine `name`: that one, or `auto` where it is missing.

    Engines agree to 1e-5, so an artifact outlives the engine that made it.
    """
    missing = name == TFQ and not estimate.tfq_is_installed()
    return AUTO if missing else name


def choose(models: Sequence[CircuitModel]) -> Choice:
    """Returns the engine for a model with these circuits.

    lightcone's exact cost takes planning, seconds for a large circuit; where state vectors on its light cones alone
    cost less than TensorFlow Quantum does, the plan can only widen the difference, and is left out.

    Raises:
        ConfigurationError: lightcone can't simulate the circuits; it knows all gates that TensorFlow Quantum knows.
    """
    tfq = estimate.tfq_estimate(models, estimate.ASSUMED_BATCH)
    if tfq.refusal is not None:
        return Choice(LIGHTCONE, f"{TFQ} is not possible: {tfq.refusal}")
    at_most = estimate.lightcone_bound([estimate.look(model) for model in models], estimate.ASSUMED_BATCH)
    if at_most < tfq.seconds:
        return Choice(LIGHTCONE, _cheaper("at most ", at_most, TFQ, tfq.seconds))
    return cheaper(estimate.lightcone_estimate(estimate.formulated(models), estimate.ASSUMED_BATCH), tfq)


def cheaper(own: Estimate, tfq: Estimate) -> Choice:
    """Returns the choice between two estimates; where neither engine can, lightcone, which then says why not."""
    if tfq.refusal is not None:
        return Choice(LIGHTCONE, f"{TFQ} is not possible: {tfq.refusal}")
    if own.refusal is not None:
        return Choice(TFQ, own.refusal)
    if own.seconds <= tfq.seconds:
        return Choice(LIGHTCONE, _cheaper("", own.seconds, TFQ, tfq.seconds))
    return Choice(TFQ, _cheaper("", tfq.seconds, LIGHTCONE, own.seconds))


def _cheaper(bound: str, seconds: float, other: str, more: float) -> str:
    return (
        f"estimated {bound}{duration(seconds)} for {estimate.ASSUMED_BATCH} examples, "
        f"where {other} takes {duration(more)}"
    )
