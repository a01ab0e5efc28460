"""What fencing promises, whatever the order of its writers' operations and wherever one of them dies."""

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import strategies as st
from pydantic import BaseModel

from qmljob_training.stores import Fenced, ObjectNotFound, Store, put_fenced

from .interleaving import Body, TurnTaking, run_interleaved

NAME = "checkpoint.json"
Case: TypeAlias = tuple[tuple[int, ...], tuple[tuple[int, str], ...]]
"""The writers' attempts, and the schedule of `run_interleaved`."""


class Document(BaseModel):
    """A fenced document that says who wrote it."""

    attempt: int
    writer: int


def fencing_cases() -> st.SearchStrategy[Case]:
    """Two to four writers of attempts 0 to 3, in any order of operations; now and then one is killed."""
    attempts = st.lists(st.integers(0, 3), min_size=2, max_size=4).map(tuple)
    kill = st.sampled_from(("", "", "", "", "", "before", "after"))
    return st.tuples(attempts, st.lists(st.tuples(st.integers(0, 3), kill), max_size=24).map(tuple))


def given_history_holds(case: Case, make_store: Callable[[], Store]) -> None:
    """Runs writers of `put_fenced` at an empty location and asserts what must hold in every history."""
    attempts, schedule = case
    writes: list[bytes] = []
    fenced: set[int] = set()
    stores = [TurnTaking(make_store(), writes) for _ in attempts]
    bodies = [_writer(number, attempt, fenced) for number, attempt in enumerate(attempts)]
    run_interleaved(stores, bodies, schedule)

    history = [Document.model_validate_json(data) for data in writes]
    written = [document.attempt for document in history]
    assert written == sorted(written), f"the attempt went down: {written}"
    for number, (attempt, store) in enumerate(zip(attempts, stores, strict=True)):
        wrote = sum(document.writer == number for document in history)
        assert wrote <= 1, "a writer's one document was written twice"
        if number in fenced:
            assert wrote == 0
            assert max(written) > attempt, "fenced although no later attempt had written"
        elif not store.killed:
            assert wrote == 1
    _assert_last(make_store(), history)


def _assert_last(store: Store, history: list[Document]) -> None:
    try:
        stored = Document.model_validate_json(store.get(NAME).data)
    except ObjectNotFound:
        assert not history
    else:
        assert stored == history[-1]


def _writer(number: int, attempt: int, fenced: set[int]) -> Body:
    def write(store: Store) -> None:
        try:
            put_fenced(store, NAME, Document(attempt=attempt, writer=number), Document.model_validate_json)
        except Fenced:
            fenced.add(number)

    return write
