"""The fault injector's pure parts: what a request is called, faults as lines, and a watch's events on their way."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmljob_api import names
from support.chaos.cases import Case, parse_case
from support.chaos.scenarios import SCENARIOS
from support.injector.calls import Call, CallCounter, name_of, parse_call
from support.injector.faults import CRASHES, WATCH_FAULTS, Fault, FaultKind, Noise, parse_fault, parse_words
from support.injector.watches import Stream, WatchEnds

JOBS = "/apis/qml.dev/v1alpha1/namespaces/n/qmljobs"
PODS = "/api/v1/namespaces/n/pods"
ROLE = {"labels": {names.LABEL_ROLE: "worker"}}
REQUESTS = {
    "create:pods/qcnn-worker-0": ("POST", f"{PODS}?fieldManager=x", {"metadata": {"name": "qcnn-worker-0"}}),
    "dry-run:pods/worker": ("POST", f"{PODS}?dryRun=All", {"metadata": {"generateName": "q-", **ROLE}}),
    "create:events/Starting": (
        "POST",
        "/api/v1/namespaces/n/events",
        {"metadata": {"name": "a"}, "reason": "Starting"},
    ),
    "update:qmljobs/qcnn/status": ("PUT", f"{JOBS}/qcnn/status?fieldManager=x", {}),
    "patch:services/a": ("PATCH", "/api/v1/namespaces/n/services/a", {}),
    "delete:pods/a": ("DELETE", f"{PODS}/a", {}),
    "get:pods/a/log": ("GET", f"{PODS}/a/log?tailLines=20", None),
    "get:nodes/node-0": ("GET", "/api/v1/nodes/node-0", None),
    "list:qmljobs": ("GET", f"{JOBS}?limit=500", None),
    "list:pods": ("GET", "/api/v1/pods?limit=500", None),
    "watch:pods": ("GET", f"{PODS}?watch=true&resourceVersion=3", None),
    "get:/version": ("GET", "/version", None),
    "get:/apis/batch/v1": ("GET", "/apis/batch/v1", None),
}
kinds = st.sampled_from([kind for kind in FaultKind if kind not in WATCH_FAULTS])
calls = st.builds(
    Call, st.sampled_from([name for name in REQUESTS if not name.startswith("watch")]), st.integers(1, 99)
)
faults = st.builds(Fault, calls, kinds, st.sampled_from([0.25, 1.0, 2.0, 4.0]))
EVENTS = [json.dumps({"type": "ADDED", "object": number}).encode() + b"\n" for number in range(4)]


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_called_by_what_it_does(name: str) -> None:
    method, target, body = REQUESTS[name]
    assert name_of(method, target, json.dumps(body).encode() if body is not None else b"") == name


def test_requests_of_a_name_are_counted_from_one() -> None:
    counter = CallCounter()
    made = [str(counter.next("DELETE", f"{PODS}/{name}", b"")) for name in ("a", "b", "a")]
    assert made == ["delete:pods/a@1", "delete:pods/b@1", "delete:pods/a@2"]


@given(fault=faults, scenario=st.sampled_from(SCENARIOS), broken=st.sampled_from(["", "no-barrier"]))
def test_a_case_is_read_as_it_is_printed(fault: Fault, scenario: object, broken: str) -> None:
    case = Case(scenario, fault, broken)  # type: ignore[arg-type]
    assert parse_case(str(case)) == case
    assert "\n" not in str(case)


WRONG = {
    "call=create:pods/a fault=lose": "verb:kind/name@number",
    "call=create:pods/a@0 fault=lose": "verb:kind/name@number",
    "call=create:pods/a@1 fault=loose": "there are lose,",
    "call=create:pods/a@1 fault=stall": "is not for",
    "call=watch:pods@1 fault=lose": "is not for",
    "call=create:pods/a@1": "give call= and fault=",
    "call=create:pods/a@1 fault=lose when=now": "nothing else",
    "lose": "write name=value",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_line_that_is_no_fault_says_why(line: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as raised:
        parse_fault(parse_words(line))
    assert WRONG[line] in str(raised.value)


@pytest.mark.parametrize(
    ("fault", "got", "ends"),
    [
        ("fault=stall event=1", EVENTS[:1], False),
        ("fault=skip event=1", [EVENTS[0], EVENTS[3]], False),
        ("fault=skip event=1 count=1", [EVENTS[0], *EVENTS[2:]], False),
        ("fault=replay event=2", [*EVENTS[:2], *EVENTS[:2], *EVENTS[2:]], False),
        ("fault=close event=3", EVENTS[:3], True),
        ("fault=close event=9", EVENTS, False),
    ],
    ids=str,
)
def test_a_watch_delivers_what_its_fault_lets_through(fault: str, got: list[bytes], ends: bool) -> None:
    stream = Stream(parse_fault(parse_words(f"call=watch:pods@1 {fault}")))
    data = b"".join(EVENTS)
    came, ended = [], False
    try:
        for start in range(0, len(data), 7):  # chunks know nothing of events
            came += list(stream.take(data[start : start + 7]))
    except WatchEnds:
        ended = True
    assert (came, ended) == (got, ends)


def test_a_watch_that_is_too_old_says_so_and_ends() -> None:
    told = Stream(parse_fault({"call": "watch:pods@1", "fault": "410", "event": "1"})).take(b"".join(EVENTS))
    assert next(told) == EVENTS[0]
    error = json.loads(next(told))
    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)
    with pytest.raises(WatchEnds):
        next(told)


def test_noise_strikes_the_same_calls_each_time_and_about_its_share_of_them() -> None:
    noise = Noise(seed=3, share=0.2)
    asked = [parse_call(f"create:pods/{number}@1") for number in range(1000)]
    struck = [fault for call in asked if (fault := noise.fault_of(call))]
    again = [fault for call in asked if (fault := Noise(3, 0.2).fault_of(call))]
    assert struck == again
    assert 150 < len(struck) < 250
    assert {fault.kind for fault in struck} > set(CRASHES[:2])
