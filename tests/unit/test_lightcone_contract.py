"""Engine `lightcone` keeps the contract of engines, whichever way it computes, and agrees with engine `tfq`."""

from qmljob_training import runtime

runtime.prepare_environment()  # before TensorFlow is imported below

import pytest  # noqa: E402

from qmljob_training.engines.lightcone.engine import LightconeEngine  # noqa: E402
from qmljob_training.testing import engine_contract  # noqa: E402

# One engine for all checks, so that a case is compiled once.
ENGINES = {method: LightconeEngine(method=method) for method in ("state", "heisenberg")}


@pytest.mark.parametrize("method", ENGINES)
@pytest.mark.parametrize("check", engine_contract.ENGINE_CHECKS, ids=lambda check: check.__name__)
def test_engine_lightcone_keeps_the_contract(check: engine_contract.EngineCheck, method: str) -> None:
    check(ENGINES[method])
