"""Contracts as programs: what an implementation from anywhere can be held against. Needs no test framework.

Those of engines and workloads are in `engine_contract` and `workload_contract`; import these modules by themselves,
after TensorFlow is set up (`qmljob_training.runtime.prepare_environment`).
"""

from .store_contract import STORE_CHECKS, StoreFactory, assert_store_contract

__all__ = ["STORE_CHECKS", "StoreFactory", "assert_store_contract"]
