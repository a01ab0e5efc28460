"""Checkpoints: same content, same bytes; never torn; never moved back by an older attempt; damage is named."""

import io
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from qmljob_training.checkpoint import POINTER_NAME, Checkpoint, CheckpointFolder, Position, decode, encode
from qmljob_training.digest import data_file
from qmljob_training.errors import BadArtifactError
from qmljob_training.stores import Fenced, ObjectNotFound, Store, StoreUnavailable, open_store
from qmljob_training.strategies.protocol import State
from support.failing_store import FailingStore

properties = settings(derandomize=True, deadline=None, max_examples=60)
numbers = st.floats(allow_nan=False, allow_infinity=False)
arrays = st.sampled_from([np.float32, np.float64, np.int64, np.int32, np.bool_]).flatmap(
    lambda kind: st_numpy.arrays(kind, st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
states = st.dictionaries(
    st.from_regex(r"(model|optimizer)/[0-9]{3}/[a-z/_:]{1,12}", fullmatch=True), arrays, max_size=5
)
positions = st.builds(
    Position,
    epoch=st.integers(0, 10**5),
    examples=st.integers(0, 10**6),
    steps=st.integers(0, 10**8),
    squared_errors=numbers,
    hits=numbers,
    metrics=st.dictionaries(st.text(max_size=8), numbers, max_size=3),
)


def checkpoint(epoch: int, value: float = 1.0) -> Checkpoint:
    state: State = {"model/000/w": np.full(3, value, np.float32), "optimizer/001/iteration": np.array(epoch)}
    return Checkpoint(Position(epoch=epoch, steps=4 * epoch, metrics={"loss": 0.5}), state)


def folder(store: Store, attempt: int = 0, uid: str = "u-1") -> CheckpointFolder:
    return CheckpointFolder(store, attempt=attempt, uid=uid, fingerprint={"seed": 1, "learning_rate": 0.02}, threads=1)


def assert_equal(found: Checkpoint, expected: Checkpoint) -> None:
    assert found.position == expected.position
    assert found.state.keys() == expected.state.keys()
    for name, value in expected.state.items():
        assert found.state[name].dtype == value.dtype, name
        assert found.state[name].shape == value.shape, name
        assert found.state[name].tobytes() == value.tobytes(), name


def latest(source: CheckpointFolder) -> Checkpoint:
    found = source.latest()
    assert found is not None
    return found[1]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "checkpoints"))


@properties
@given(positions, states)
def test_what_is_encoded_is_decoded_bit_for_bit(position: Position, state: State) -> None:
    assert_equal(decode(encode(Checkpoint(position, state))), Checkpoint(position, state))


@properties
@given(positions, states)
def test_the_same_checkpoint_gives_the_same_bytes(position: Position, state: State) -> None:
    data = encode(Checkpoint(position, state))
    assert encode(decode(data)) == data
    # Nothing of the clock: two attempts that reach the same place write the same object.
    assert {entry.date_time for entry in zipfile.ZipFile(io.BytesIO(data)).infolist()} == {(1980, 1, 1, 0, 0, 0)}


@properties
@given(st.binary(max_size=200))
def test_bytes_that_are_no_checkpoint_are_refused_in_a_line(data: bytes) -> None:
    with pytest.raises(BadArtifactError) as refusal:
        decode(data)
    assert "\n" not in str(refusal.value)


def test_damage_that_no_hash_has_caught_gives_no_other_error() -> None:
    data = encode(checkpoint(1))
    flips = [flipped(data, bit) for bit in range(0, 8 * len(data), 7)]
    readable = 0
    for damaged in (*flips, *(data[:end] for end in range(0, len(data), 9))):
        with suppress(BadArtifactError):
            decode(damaged)
            readable += 1
    assert readable < len(flips) / 2


def test_an_empty_folder_has_no_checkpoint(store: Store) -> None:
    assert folder(store).latest() is None


def test_the_newest_of_several_is_found(store: Store) -> None:
    writer = folder(store)
    for epoch in range(4):
        writer.save(checkpoint(epoch, value=epoch + 0.25))
        assert_equal(latest(folder(store)), checkpoint(epoch, value=epoch + 0.25))


def test_the_pointer_says_what_a_person_asks(store: Store) -> None:
    folder(store, attempt=2).save(checkpoint(3))
    pointer = json.loads(store.get(POINTER_NAME).data)
    assert (pointer["epoch"], pointer["step"], pointer["attempt"], pointer["uid"], pointer["threads"]) == (
        3,
        12,
        2,
        "u-1",
        1,
    )
    assert pointer["fingerprint"] == {"seed": 1, "learning_rate": 0.02}
    assert pointer["data"]["name"].startswith("checkpoint-00003-0000012-")


@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
def test_a_write_that_fails_leaves_the_old_or_the_new_checkpoint(tmp_path: Path, after: bool) -> None:
    for fail_at in count():
        inner = open_store(str(tmp_path / str(fail_at)))
        old = folder(inner)
        for epoch in range(3):
            old.save(checkpoint(epoch))
        failing = FailingStore(inner, fail_at, after=after)
        writer = folder(failing)
        try:
            assert writer.claim(old.latest()[0])
            writer.save(checkpoint(3))
            writer.save(checkpoint(4))
        except StoreUnavailable:
            found = latest(folder(inner))
            assert found.position.epoch in (2, 3, 4)
            assert_equal(found, checkpoint(found.position.epoch))
            continue
        assert_equal(latest(folder(inner)), checkpoint(4))
        assert fail_at == len(failing.writes) >= 6  # the claim, twice data and pointer, and what is removed
        break


def test_only_the_last_two_are_kept(store: Store) -> None:
    writer = folder(store)
    for epoch in range(5):
        writer.save(checkpoint(epoch))
        names = [name for name in store.list() if name != POINTER_NAME]
        assert [int(name.split("-")[1]) for name in names] == list(range(max(0, epoch - 1), epoch + 1))


def test_a_checkpoint_saved_twice_is_one(store: Store) -> None:
    writer = folder(store)
    for epoch in (0, 1, 1, 1, 2, 2):
        writer.save(checkpoint(epoch))
    assert len(store.list("checkpoint-")) == 2
    assert_equal(latest(writer), checkpoint(2))


def test_what_earlier_attempts_have_left_is_removed_in_time(store: Store) -> None:
    for attempt in range(6):
        writer = folder(store, attempt)
        found = writer.latest()
        if found is not None:
            assert writer.claim(found[0])
        for epoch in range(3 * attempt, 3 * attempt + 3):
            writer.save(checkpoint(epoch))
        # It dies between data and pointer.
        store.put(f"checkpoint-{3 * attempt + 3:05d}-0000000-{attempt:016d}.npz", b"data that no pointer will name")
    assert len(store.list("checkpoint-")) == 3
    assert_equal(latest(folder(store)), checkpoint(17))


def test_a_claimed_pointer_stays_and_changes_hands(store: Store) -> None:
    folder(store, attempt=0).save(checkpoint(2))
    successor = folder(store, attempt=1)
    pointer, _ = successor.latest()
    assert successor.claim(pointer)
    claimed, found = folder(store, attempt=1).latest()
    assert (claimed.attempt, claimed.data) == (1, pointer.data)
    assert_equal(found, checkpoint(2))


def test_a_zombie_moves_nothing_and_removes_nothing(store: Store) -> None:
    zombie, successor = folder(store, attempt=0), folder(store, attempt=1)
    zombie.save(checkpoint(1))
    zombie.save(checkpoint(2))
    assert successor.claim(successor.latest()[0])
    successor.save(checkpoint(3, value=3.0))
    before = {name: store.get(name).generation for name in store.list()}
    for _ in range(3):
        with pytest.raises(Fenced) as refusal:
            zombie.save(checkpoint(3, value=-1.0))
        assert "\n" not in str(refusal.value)
    after = {name: store.get(name).generation for name in store.list()}
    assert {name: after.get(name) for name in before} == before
    assert_equal(latest(successor), checkpoint(3, value=3.0))


def test_an_older_attempt_can_claim_nothing(store: Store) -> None:
    folder(store, attempt=2).save(checkpoint(1))
    zombie = folder(store, attempt=1)
    with pytest.raises(Fenced):
        zombie.claim(zombie.latest()[0])


def test_a_pointer_that_moved_meanwhile_is_not_claimed(store: Store) -> None:
    zombie, successor = folder(store, attempt=0), folder(store, attempt=1)
    zombie.save(checkpoint(1))
    pointer, _ = successor.latest()
    for epoch in (2, 3, 4):  # the checkpoint that was read is removed now
        zombie.save(checkpoint(epoch))
    with pytest.raises(ObjectNotFound):
        store.get(pointer.data.name)
    assert not successor.claim(pointer)
    assert successor.claim(successor.latest()[0])
    assert_equal(latest(successor), checkpoint(4))


def test_a_reader_that_is_overtaken_looks_again(store: Store) -> None:
    class Overtaken(FailingStore):
        """Lets the writer go on twice between the reader's look at the pointer and at the data."""

        def get(self, name: str):
            if name != POINTER_NAME and overtaking:
                overtaking.pop()
                for epoch in (2, 3):
                    writer.save(checkpoint(epoch))
            return super().get(name)

    writer, overtaking = folder(store), [True]
    writer.save(checkpoint(1))
    assert_equal(latest(folder(Overtaken(store))), checkpoint(3))


def replaced(text: str, by: str) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(text.encode(), by.encode())


# Which object, what happens to it -> what the one line says. The object None is the checkpoint's data.
DAMAGE = [
    pytest.param(POINTER_NAME, lambda data: b"", "is damaged", id="an empty pointer"),
    pytest.param(POINTER_NAME, lambda data: data[:-9], "is damaged", id="a truncated pointer"),
    pytest.param(POINTER_NAME, lambda data: b"\x00" * len(data), "is damaged", id="a pointer of zeros"),
    pytest.param(POINTER_NAME, replaced("qmljob-checkpoint", "qmljob-artifact"), "is damaged", id="another document"),
    pytest.param(
        POINTER_NAME, replaced('"name":"checkpoint', '"name":"../checkpoint'), "is damaged", id="a path outside"
    ),
    pytest.param(None, None, "which is missing", id="no data"),
    pytest.param(None, lambda data: b"", "whose sha256 is another one", id="empty data"),
    pytest.param(None, lambda data: data[:-1], "whose sha256 is another one", id="truncated data"),
    pytest.param(None, lambda data: data + b"\x00", "whose sha256 is another one", id="data with a byte too many"),
]


def test_a_newer_format_asks_for_an_upgrade_and_not_for_a_deletion(store: Store) -> None:
    folder(store).save(checkpoint(1))
    store.put(POINTER_NAME, replaced('"format":1', '"format":2')(store.get(POINTER_NAME).data))
    with pytest.raises(BadArtifactError) as refusal:
        folder(store).latest()
    assert str(refusal.value).endswith("has format 2, which is newer than this version reads (1); upgrade")


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGE)
def test_damage_is_named_in_a_line_that_says_what_to_do(
    store: Store, name: str | None, damage: Callable[[bytes], bytes] | None, message: str
) -> None:
    folder(store).save(checkpoint(1))
    name = name or store.list("checkpoint-")[0]
    if damage is None:
        store.delete(name)
    else:
        store.put(name, damage(store.get(name).data))
    with pytest.raises(BadArtifactError) as refusal:
        folder(store).latest()
    assert message in str(refusal.value)
    assert f"checkpoint {store.location}/{POINTER_NAME}" in str(refusal.value)
    assert "delete this folder to start anew, or choose another --checkpoint-location" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_data_of_something_else_is_named_too(store: Store) -> None:
    # The pointer's hash is right; what it names is an archive, of no checkpoint.
    folder(store).save(checkpoint(1))
    pointer = folder(store).latest()[0]
    buffer = io.BytesIO()
    np.savez(buffer, other=np.ones(3))
    file = data_file("checkpoint-other", ".npz", buffer.getvalue())
    store.put(file.name, buffer.getvalue())
    store.put(POINTER_NAME, pointer.model_copy(update={"data": file}).model_dump_json().encode())
    with pytest.raises(BadArtifactError, match=r"its data can't be read \(KeyError\); delete this folder"):
        folder(store).latest()


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@properties
@given(st.floats(0, 1, exclude_max=True))
def test_any_flipped_bit_of_the_data_is_seen(tmp_path_factory: pytest.TempPathFactory, where: float) -> None:
    store = open_store(str(tmp_path_factory.mktemp("flip")))
    folder(store).save(checkpoint(1))
    name = store.list("checkpoint-")[0]
    data = store.get(name).data
    store.put(name, flipped(data, int(where * 8 * len(data))))
    with pytest.raises(BadArtifactError, match="whose sha256 is another one"):
        folder(store).latest()


def test_a_flipped_bit_of_the_pointer_never_gives_other_numbers(store: Store) -> None:
    folder(store).save(checkpoint(1))
    pointer = store.get(POINTER_NAME).data
    found = []
    for bit in range(0, 8 * len(pointer), 11):
        store.put(POINTER_NAME, flipped(pointer, bit))
        with suppress(BadArtifactError):
            found.append(latest(folder(store)))
    # Some bits are of numbers that are for people only.
    assert 0 < len(found) < 4 * len(pointer) / 11
    for each in found:
        assert_equal(each, checkpoint(1))
