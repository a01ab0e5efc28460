"""Leaves the native loops' own tests out where there is no compiler to build them, and says so."""

from qmljob_training.native import build, ops

TESTED = ops.available() or build.find_compiler() is not None
collect_ignore = [] if TESTED else ["test_lightcone_native.py"]


def pytest_report_header() -> str:
    return "" if TESTED else "the native loops are not tested: there is no g++ here, and none were built"
