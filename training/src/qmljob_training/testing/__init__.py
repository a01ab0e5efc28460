"""Contracts as programs: what an implementation from anywhere can be held against. Needs no test framework."""

from .store_contract import STORE_CHECKS, StoreFactory, assert_store_contract

__all__ = ["STORE_CHECKS", "StoreFactory", "assert_store_contract"]
