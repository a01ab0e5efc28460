"""The contract of `Store`, as checks that any implementation can be run against.

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
    def test_my_store_keeps_the_contract(check, new_location):
        check(lambda: MyStore(new_location))

Each check needs an empty location of its own, and makes as many handles on it as it wants: a store's promises are made
between processes, so nothing may hang on one object's memory.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias, TypeVar

from qmljob_training.stores import ObjectNotFound, PreconditionFailed, Store, StoreError, StoreMisconfigured

StoreFactory: TypeAlias = Callable[[], Store]
"""Makes a handle on one and the same location, which is empty at first."""

_T = TypeVar("_T")
StoreCheck: TypeAlias = Callable[[StoreFactory], None]

_WRITERS = 4
_ROUNDS = 5
_WAIT_SECONDS = 120.0
_BINARY = bytes(range(256)) * 1024
_BAD_NAMES = (
    "",
    "/absolute",
    "..",
    "../up",
    "a/../../up",
    "a//b",
    "a/",
    "./a",
    "new\nline",
    "a\\b",
    ".qmljob-lock",
    "x" * 300,
)


def assert_store_contract(make_store: Callable[[], StoreFactory]) -> None:
    """Runs all checks, each at a new location.

    Args:
        make_store: called once a check; returns a factory of handles on a new, empty location.

    Raises:
        AssertionError: a promise is not kept.
    """
    for check in STORE_CHECKS:
        check(make_store())


def a_missing_object_is_not_found(store: StoreFactory) -> None:
    """`get` raises ObjectNotFound, and its message names the object."""
    error = _raised(ObjectNotFound, lambda: store().get("folder/absent"))
    assert "folder/absent" in str(error)


def what_is_put_is_got(store: StoreFactory) -> None:
    """Bytes come back as they went, through another handle, with the generation that `put` returned."""
    for name, data in {"empty": b"", "text": b"one\r\ntwo", "binary": _BINARY, "a/b/c.json": b"{}"}.items():
        generation = store().put(name, data)
        stored = store().get(name)
        assert stored.data == data, name
        assert stored.generation == generation > 0, name


def put_replaces_the_whole_object(store: StoreFactory) -> None:
    """A shorter object leaves nothing of a longer one, and its generation is greater."""
    first = store().put("object", b"long" * 1000)
    second = store().put("object", b"short")
    assert store().get("object").data == b"short"
    assert second > first


def put_if_zero_only_creates(store: StoreFactory) -> None:
    """Generation 0 means that the object must not exist."""
    generation = store().put_if("object", b"first", generation=0)
    _raised(PreconditionFailed, lambda: store().put_if("object", b"second", generation=0))
    assert store().get("object").data == b"first"
    assert store().get("object").generation == generation


def put_if_replaces_only_what_was_seen(store: StoreFactory) -> None:
    """A stale generation is refused and changes nothing."""
    first = store().put("object", b"first")
    second = store().put_if("object", b"second", generation=first)
    assert second > first
    _raised(PreconditionFailed, lambda: store().put_if("object", b"stale", generation=first))
    assert store().get("object").data == b"second"
    assert store().get("object").generation == second


def equal_bytes_are_still_a_new_generation(store: StoreFactory) -> None:
    """A writer that has missed a write of equal bytes has missed a write."""
    first = store().put("object", b"same")
    second = store().put("object", b"same")
    assert second != first
    _raised(PreconditionFailed, lambda: store().put_if("object", b"other", generation=first))


def a_deleted_object_takes_its_generation_along(store: StoreFactory) -> None:
    """A generation seen before a delete is no good after it, whether or not the object was made anew."""
    first = store().put("object", b"first")
    store().delete("object")
    _raised(PreconditionFailed, lambda: store().put_if("object", b"stale", generation=first))
    _raised(ObjectNotFound, lambda: store().get("object"))
    again = store().put_if("object", b"again", generation=0)
    assert again > first
    _raised(PreconditionFailed, lambda: store().put_if("object", b"stale", generation=first))
    assert store().get("object").data == b"again"


def delete_is_repeatable(store: StoreFactory) -> None:
    """Deleting what is not there is fine, before there was anything at all too."""
    store().delete("folder/object")
    store().put("folder/object", b"x")
    store().put("folder/other", b"y")
    store().delete("folder/object")
    store().delete("folder/object")
    assert store().list() == ("folder/other",)


def list_is_sorted_and_prefixes_are_text(store: StoreFactory) -> None:
    """A prefix is the beginning of a name, not a folder; an empty store lists nothing."""
    assert store().list() == ()
    assert store().list("absent/folder/") == ()
    for name in ("b", "a/2", "a/10", "a/1/x", "ab", "é"):
        store().put(name, b"x")
    assert store().list() == ("a/1/x", "a/10", "a/2", "ab", "b", "é")
    assert store().list("a") == ("a/1/x", "a/10", "a/2", "ab")
    assert store().list("a/") == ("a/1/x", "a/10", "a/2")
    assert store().list("a/1") == ("a/1/x", "a/10")
    assert store().list("absent") == ()


def only_objects_are_listed(store: StoreFactory) -> None:
    """Probes, locks and refused writes leave nothing that `list` shows."""
    store().check_writable()
    assert store().list() == ()
    store().put("object", b"x")
    _raised(PreconditionFailed, lambda: store().put_if("object", b"y", generation=0))
    store().check_writable()
    assert store().list() == ("object",)


def names_never_leave_the_location(store: StoreFactory) -> None:
    """Every method refuses a name that is not a plain relative one."""
    for name in _BAD_NAMES:
        _raised(StoreMisconfigured, store().put, name, b"x")
        _raised(StoreMisconfigured, partial(store().put_if, name, b"x", generation=0))
        _raised(StoreMisconfigured, store().get, name)
        _raised(StoreMisconfigured, store().delete, name)
    _raised(StoreMisconfigured, lambda: store().list("../"))
    assert store().list() == ()


def one_of_many_creators_wins(store: StoreFactory) -> None:
    """Of writers that create one object at the same time, exactly one succeeds, and its bytes are there."""
    barrier = threading.Barrier(_WRITERS)

    def create(writer: int) -> int | None:
        handle = store()
        barrier.wait(_WAIT_SECONDS)
        try:
            handle.put_if("object", b"%d" % writer, generation=0)
        except PreconditionFailed:
            return None
        return writer

    winners = [writer for writer in _together(create) if writer is not None]
    assert len(winners) == 1
    assert store().get("object").data == b"%d" % winners[0]


def read_modify_write_loses_no_update(store: StoreFactory) -> None:
    """Writers that add to a counter, each from what it has read, end at the sum."""
    store().put("counter", b"0")

    def add(_: int) -> None:
        handle = store()
        for _ in range(_ROUNDS):
            while True:
                seen = handle.get("counter")
                try:
                    handle.put_if("counter", b"%d" % (int(seen.data) + 1), generation=seen.generation)
                except PreconditionFailed:
                    continue
                break

    _together(add)
    assert store().get("counter").data == b"%d" % (_WRITERS * _ROUNDS)


def readers_see_whole_objects(store: StoreFactory) -> None:
    """While writers replace an object, each read is one of the written ones, whole, with its own generation."""
    size = 200_000
    generations: dict[int, bytes] = {store().put("object", b"0" * size): b"0"}
    lock = threading.Lock()

    def write(writer: int) -> None:
        for _ in range(_ROUNDS):
            digit = b"%d" % writer
            generation = store().put("object", digit * size)
            with lock:
                generations[generation] = digit

    def read(_: int) -> list[tuple[int, bytes]]:
        return [(stored.generation, stored.data) for stored in (store().get("object") for _ in range(2 * _ROUNDS))]

    def work(worker: int) -> list[tuple[int, bytes]]:
        if worker % 2:
            return read(worker)
        write(worker)
        return []

    for reads in _together(work):
        for generation, data in reads:
            assert data == generations[generation] * size


STORE_CHECKS: tuple[StoreCheck, ...] = (
    a_missing_object_is_not_found,
    what_is_put_is_got,
    put_replaces_the_whole_object,
    put_if_zero_only_creates,
    put_if_replaces_only_what_was_seen,
    equal_bytes_are_still_a_new_generation,
    a_deleted_object_takes_its_generation_along,
    delete_is_repeatable,
    list_is_sorted_and_prefixes_are_text,
    only_objects_are_listed,
    names_never_leave_the_location,
    one_of_many_creators_wins,
    read_modify_write_loses_no_update,
    readers_see_whole_objects,
)
"""All checks; each takes a factory of handles on one empty location."""


def _raised(kind: type[StoreError], call: Callable[..., object], *arguments: object) -> StoreError:
    found: object
    try:
        found = call(*arguments)
    except StoreError as error:
        found = error
    assert isinstance(found, kind), f"expected {kind.__name__}, got {found!r}"
    assert "\n" not in str(found), f"a message is one line: {found}"
    return found


def _together(work: Callable[[int], _T]) -> list[_T]:
    with ThreadPoolExecutor(_WRITERS) as pool:
        return list(pool.map(work, range(_WRITERS), timeout=_WAIT_SECONDS))
