"""`make chaos`: every fault at every call of every scenario; or those that words choose.

make chaos
make chaos ARGS='scenario=fail'
make chaos ARGS='fault=kill-before,kill-after'
make chaos ARGS='scenario=fail call=update:qmljobs/qcnn/status@3 fault=kill-after'
make chaos ARGS='scenario=ttl broken=ttl-without-timer'
"""

import argparse
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from support.chaos.cases import Case, Outcome, parse_case
from support.chaos.matrix import cases_of, fresh_laboratory, run_all, undisturbed
from support.chaos.scenarios import BY_NAME, SCENARIOS, Scenario
from support.injector.faults import FaultKind, parse_words


@dataclass(frozen=True)
class Count:
    """What came of a scenario: so many calls, cases, and cases whose call was never made, that broke, in seconds."""

    calls: int = 0
    cases: int = 0
    missed: int = 0
    broken: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __add__(self, other: "Count") -> "Count":
        """Returns the sum."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Count(*(one + another for one, another in pairs))


def main(arguments: Sequence[str]) -> int:
    """Runs the cases that the arguments choose; returns 1 if one of them broke a promise."""
    parser = argparse.ArgumentParser(prog="make chaos", description="Faults at every call of every scenario.")
    parser.add_argument("words", nargs="*", metavar="name=value", help="scenario=, call=, fault=, broken=: only these")
    parser.add_argument("--side-by-side", type=int, default=8, help="cases at once (default: 8)")
    given = parser.parse_args(arguments)
    try:
        words = parse_words(" ".join(given.words))
        chosen = _scenarios(words)
        one = parse_case(" ".join(given.words)) if {"call", "broken"} & words.keys() else None
    except ValueError as error:
        parser.error(str(error))
    counts = {each.name: _run(each, words, one, given.side_by_side) for each in chosen}
    _report(counts)
    return 1 if any(count.broken for count in counts.values()) else 0


def _scenarios(words: Mapping[str, str]) -> Sequence[Scenario]:
    unknown = words.keys() - {"scenario", "call", "fault", "seconds", "event", "count", "broken"}
    if unknown:
        raise ValueError(f"{min(unknown)}=: there are scenario, call, fault, seconds, event, count and broken")
    if "fault" in words and not set(words["fault"].split(",")) <= set(FaultKind):
        raise ValueError(f"fault={words['fault']}: there are {', '.join(FaultKind)}")
    if "scenario" not in words:
        return SCENARIOS
    wanted = words["scenario"].split(",")
    if not set(wanted) <= BY_NAME.keys():
        raise ValueError(f"scenario={words['scenario']}: there are {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in wanted]


def _run(scenario: Scenario, words: Mapping[str, str], one: Case | None, side_by_side: int) -> Count:
    began, cpu = time.monotonic(), _cpu_seconds()
    with fresh_laboratory() as lab:
        reference = undisturbed(lab, scenario)
        cases = [one] if one is not None else cases_of(reference)
        if one is None and "fault" in words:
            kinds = set(words["fault"].split(","))
            cases = [case for case in cases if case.fault is not None and case.fault.kind in kinds]
        count = Count(calls=len(reference.calls))
        for outcome in run_all(lab, cases, reference.end, side_by_side=side_by_side):
            count += Count(cases=1, missed=not outcome.struck, broken=bool(outcome.problems))
            _tell(outcome)
    count = replace(count, seconds=time.monotonic() - began, cpu_seconds=_cpu_seconds() - cpu)
    print(_row(scenario.name, count), flush=True)
    return count


def _tell(outcome: Outcome) -> None:
    if outcome.problems:
        print("\n  ".join([f"BROKEN  make chaos ARGS='{outcome.case}'", *outcome.problems]), flush=True)
    elif not outcome.struck:
        print(f"missed  {outcome.case}", flush=True)


def _report(counts: Mapping[str, Count]) -> None:
    print(f"\n{'scenario':12} {'calls':>6} {'cases':>6} {'missed':>7} {'broken':>7} {'seconds':>8} {'CPU a case':>11}")
    total = sum(counts.values(), Count())
    for name, count in {**counts, "total": total}.items():
        print(_row(name, count))


def _row(name: str, count: Count) -> str:
    each = count.cpu_seconds / max(1, count.cases)
    numbers = f"{count.calls:6} {count.cases:6} {count.missed:7} {count.broken:7}"
    return f"{name:12} {numbers} {count.seconds:8.0f} {each:11.2f}"


def _cpu_seconds() -> float:
    """Returns the CPU time of this process and of all that it started and that has ended."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
