"""Engine `lightcone` keeps the contract of engines, whichever way it computes, and agrees with engine `tfq`."""

from qmljob_training import runtime

runtime.prepare_environment()  # before TensorFlow is imported below

import pytest  # noqa: E402

from qmljob_training.engines.lightcone.engine import LightconeEngine  # noqa: E402
from qmljob_training.testing import engine_contract  # noqa: E402
from support.native import NATIVE, require_native  # noqa: E402

# One engine for all checks, so that a case is compiled once.
ENGINES = {
    "state": LightconeEngine(method="state", native=False),
    "native": LightconeEngine(method="state", native=True),
    "heisenberg": LightconeEngine(method="heisenberg", native=False),
}


@pytest.mark.parametrize("method", ["state", "heisenberg", *NATIVE])
@pytest.mark.parametrize("check", engine_contract.ENGINE_CHECKS, ids=lambda check: check.__name__)
def test_engine_lightcone_keeps_the_contract(check: engine_contract.EngineCheck, method: str) -> None:
    if method == "native":
        require_native()
    check(ENGINES[method])
