"""Artifacts and checkpoints that somebody made to harm: a line that says what is wrong, and nothing else happens.

Their hashes are right, as whoever writes an artifact can make them. Numbered mutations: `mutated(data, 4711)` is always
the same.
"""

from qmljob_training import runtime

runtime.prepare_environment()  # before TensorFlow is imported below

import io  # noqa: E402
import json  # noqa: E402
import random  # noqa: E402
import tracemalloc  # noqa: E402
import zipfile  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import h5py  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

from qmljob_api.artifact import ModelDescription, RunDescription  # noqa: E402
from qmljob_training.arrays import pack, unpack  # noqa: E402
from qmljob_training.artifact import Artifact, ArtifactWriter, encode_split, read_artifact, rebuild  # noqa: E402
from qmljob_training.checkpoint import Checkpoint, CheckpointFolder, Position, decode, encode  # noqa: E402
from qmljob_training.digest import data_file  # noqa: E402
from qmljob_training.engines.tfq import TfqEngine  # noqa: E402
from qmljob_training.errors import MESSAGE_LIMIT, BadArtifactError  # noqa: E402
from qmljob_training.stores import Store, open_store  # noqa: E402
from qmljob_training.workloads.protocol import WorkloadOptions  # noqa: E402
from qmljob_training.workloads.qcnn import Qcnn  # noqa: E402

OPTIONS = WorkloadOptions(qubits=4, examples=20, seed=3)
RUN = RunDescription(
    seed=3,
    examples=20,
    epochs=2,
    workers=2,
    global_batch_size=8,
    learning_rate=0.02,
    engine="tfq",
    threads=1,
    versions={},
)
SMALL = 16 * 2**20
"""Bytes that reading an artifact of some kilobytes may take at most."""
Parts = dict[str, bytes]


@pytest.fixture(scope="module")
def model() -> Any:
    return Qcnn().model(OPTIONS, TfqEngine())


@pytest.fixture(scope="module")
def parts(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """A good artifact: its manifest, weights and test split."""
    store = open_store(str(tmp_path_factory.mktemp("good")))
    description = ModelDescription(
        workload="qcnn", qubits=4, symbols=Qcnn().symbols(OPTIONS), parameters=model.count_params()
    )
    writer = ArtifactWriter(f"{store.location}/qcnn.h5", store, "qcnn", 0, "u-1")
    manifest = writer.save(model, Qcnn().data(OPTIONS).test, description, RUN, {"loss": 0.5})
    return {
        "manifest": store.get("qcnn.json").data,
        "weights": store.get(manifest.weights.name).data,
        "split": store.get(manifest.test_split.name).data,
    }


def put(folder: Path, parts: Parts) -> str:
    """Writes an artifact whose hashes are right, and returns its location."""
    folder.mkdir(exist_ok=True)
    manifest = parts["manifest"]
    for field, part, suffix in (("weights", "weights", ".h5"), ("test_split", "split", ".npz")):
        file = data_file("qcnn", suffix, parts[part])
        # Not through the store, which waits for the disk at each write.
        (folder / file.name).write_bytes(parts[part])
        try:
            document = json.loads(manifest)
            document[field] = file.model_dump()
            manifest = json.dumps(document).encode()
        except (ValueError, KeyError, TypeError, RecursionError):
            break  # its manifest is what was mutated
    (folder / "qcnn.json").write_bytes(manifest)
    return str(folder / "qcnn.h5")


def load(location: str) -> Any:
    return rebuild(read_artifact(location), TfqEngine())


def refusal(call: Callable[[], object]) -> str:
    """Returns what is said; anything but the one error of a bad artifact fails the test."""
    with pytest.raises(BadArtifactError) as raised:
        call()
    said = str(raised.value)
    assert said.isprintable(), said
    assert 0 < len(said) <= MESSAGE_LIMIT
    return said


# HDF5


def weights_with(change: Callable[[h5py.File], None], parts: Parts, tmp_path: Path) -> Parts:
    path = tmp_path / "w.h5"
    path.write_bytes(parts["weights"])
    with h5py.File(path, "r+") as file:
        change(file)
    return {**parts, "weights": path.read_bytes()}


def first(file: h5py.File) -> tuple[h5py.Group, str, tuple[int, ...]]:
    """Returns where the first weights stand: their group, name and shape."""
    found: list[h5py.Dataset] = []
    file.visititems(lambda _, item: found.append(item) if isinstance(item, h5py.Dataset) else None)
    return found[0].parent, found[0].name.rpartition("/")[2], found[0].shape


def replace(make: Callable[[h5py.Group, str, tuple[int, ...]], object]) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        group, name, shape = first(file)
        del group[name]
        make(group, name, shape)

    return change


def put_link(link: Any) -> Callable[[h5py.Group, str, tuple[int, ...]], object]:
    return lambda group, name, shape: group.__setitem__(name, link)


def virtual(group: h5py.Group, name: str, shape: tuple[int, ...]) -> None:
    layout = h5py.VirtualLayout(shape=shape, dtype="f4")
    layout[:] = h5py.VirtualSource("/etc/hostname", "x", shape=shape)
    group.create_virtual_dataset(name, layout)


def loop(file: h5py.File) -> None:
    file["again"] = file["/"]


WEIGHTS: dict[str, Callable[[h5py.File], None]] = {
    "a link to another file": replace(put_link(h5py.ExternalLink("/etc/hostname", "/x"))),
    "a link to another place": replace(put_link(h5py.SoftLink("/elsewhere"))),
    "data in another file": replace(
        lambda group, name, shape: group.create_dataset(name, shape, "f4", external=[("/etc/passwd", 0, 10**4)])
    ),
    "data computed from another file's": replace(virtual),
    "a shape of terabytes": replace(lambda group, name, shape: group.create_dataset(name, (10**12,), "f4")),
    "a shape of terabytes in chunks": replace(
        lambda group, name, shape: group.create_dataset(name, (10**12,), "f4", chunks=(1024,))
    ),
    "a megabyte that unfolds to a gigabyte": replace(
        lambda group, name, shape: group.create_dataset(
            name, (2**26,), "f4", chunks=(2**20,), compression="gzip", fillvalue=1.0
        )
    ),
    "text": replace(lambda group, name, shape: group.create_dataset(name, shape, h5py.string_dtype())),
    "references": replace(lambda group, name, shape: group.create_dataset(name, shape, h5py.ref_dtype)),
    "a type in the place of numbers": replace(lambda group, name, shape: group.__setitem__(name, np.dtype("f4"))),
    "a group that holds itself": loop,
}


@pytest.mark.parametrize("change", WEIGHTS.values(), ids=WEIGHTS)
def test_weights_that_are_more_than_numbers_are_not_read(
    parts: Parts, tmp_path: Path, change: Callable[[h5py.File], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    location = put(tmp_path / "a", weights_with(change, parts, tmp_path))
    artifact = read_artifact(location)
    assert "its weights are of another model" in refusal(lambda: rebuild(artifact, TfqEngine()))


# Archives


EXECUTED = b"cposix\nsystem\n(S'touch executed'\ntR."
"""What runs a program where somebody loads it as a pickle."""


def archive(*members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, data in members:
            file.writestr(name, data)
    return buffer.getvalue()


def array(header: str, data: bytes = b"") -> bytes:
    """Returns an .npy file with any header."""
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def npy(values: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    return buffer.getvalue()


ZEROS = npy(np.zeros((4, 4), np.float32))
OBJECTS = array("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", EXECUTED)
BOMB = npy(np.zeros(2**23, np.float32))
ARCHIVES: dict[str, bytes] = {
    "a pickle": EXECUTED,
    "an array of pickled objects": archive(("features.npy", OBJECTS), ("labels.npy", OBJECTS)),
    "a bomb": archive(("features.npy", BOMB), ("labels.npy", ZEROS), compression=zipfile.ZIP_DEFLATED),
    "a shape of terabytes": archive(
        ("features.npy", array("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 4), }", bytes(64)))
    ),
    "a shape beyond all numbers": archive(
        ("features.npy", array("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9), }"))
    ),
    "a negative shape": archive(
        ("features.npy", array("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, -4), }", bytes(64)))
    ),
    "a header that is a program": archive(("features.npy", array("__import__('pathlib').Path('executed').touch()"))),
    "a header without an end": archive(("features.npy", array("{'descr': (((((((("))),
    "a header that nests": archive(("features.npy", array("[" * 117))),
    "text": archive(("features.npy", npy(np.array([["a"] * 4]))), ("labels.npy", npy(np.array(["b"])))),
    "records": archive(("features.npy", npy(np.zeros((4, 4), [("x", "f4")]))), ("labels.npy", ZEROS)),
    "no dimension": archive(("features.npy", npy(np.float32(1))), ("labels.npy", npy(np.float32(1)))),
    "names that lead elsewhere": archive(("../../executed", ZEROS), ("/tmp/executed", ZEROS)),
    "whole numbers": archive(
        ("features.npy", npy(np.ones((4, 4), np.int64))), ("labels.npy", npy(np.ones(4, np.int64)))
    ),
}


@pytest.mark.parametrize("data", ARCHIVES.values(), ids=ARCHIVES)
def test_a_test_split_that_is_more_than_numbers_is_not_read(
    parts: Parts, tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    location = put(tmp_path / "a", {**parts, "split": data})
    tracemalloc.start()
    try:
        assert "its test split" in refusal(lambda: read_artifact(location))
        assert tracemalloc.get_traced_memory()[1] < SMALL
    finally:
        tracemalloc.stop()
    assert [path.name for path in tmp_path.rglob("*") if "executed" in path.name] == []


def test_parts_that_overlap_are_not_read() -> None:
    """A thousand names for the same bytes: small on disk, large in memory."""
    data = bytearray(archive(("a.npy", npy(np.zeros(2**16, np.float32)))))
    end = data.rfind(b"PK\x05\x06")
    entry = bytes(data[data.rfind(b"PK\x01\x02", 0, end) : end])
    directory = entry * 1000
    tail = bytearray(data[end:])
    tail[8:12] = (1000).to_bytes(2, "little") * 2
    tail[12:16] = len(directory).to_bytes(4, "little")
    with pytest.raises(ValueError, match=r"no readable \.npz archive"):
        unpack(bytes(data[: end - len(entry)]) + directory + bytes(tail))


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i1", "i8", "u2", "b1", "c8", ">f4"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_arrays_of_numbers_are_read_as_they_were_written(kind: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    for written in (values, np.asfortranarray(values)):
        (found,) = unpack(pack({"a": written})).values()
        assert (found.dtype, found.shape, found.flags.writeable) == (written.dtype, written.shape, True)
        np.testing.assert_array_equal(found, written)


# Manifests

DEEP = b'{"format":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
LINES = "a\nwarning: all is well\x1b[2J\u202e"


def manifest_with(parts: Parts, **changes: Any) -> bytes:
    document = json.loads(parts["manifest"])
    for path, value in changes.items():
        *above, last = path.split("__")
        part = document
        for key in above:
            part = part[key]
        part[last] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"model__workload": LINES},
        {"model__symbols": [LINES]},
        {"model__symbols": ["s" * 10**6]},
        {"model__qubits": 10**9},
        {"model__qubits": 1000},
        {"metrics": {LINES: "x"}},
        {"run__versions": {LINES: 1}},
        {"weights__name": "../../etc/passwd"},
        {"weights__name": "/etc/passwd"},
        {"weights__name": ".."},
        {"weights__size": -1},
        {"format": 10**400},
        {"format": True, "kind": "qmljob-checkpoint"},
    ],
    ids=" ".join,
)
def test_a_manifest_that_lies_is_refused_in_a_line(parts: Parts, tmp_path: Path, changes: dict[str, Any]) -> None:
    store = open_store(str(tmp_path))
    put(tmp_path, parts)
    store.put("qcnn.json", manifest_with({**parts, "manifest": store.get("qcnn.json").data}, **changes))
    refusal(lambda: load(f"{store.location}/qcnn.h5"))


def test_a_manifest_that_nests_is_refused_in_a_line(parts: Parts, tmp_path: Path) -> None:
    location = put(tmp_path, {**parts, "manifest": DEEP})
    assert "the manifest is damaged (not JSON)" in refusal(lambda: read_artifact(location))


# Mutations


def mutated(data: bytes, number: int) -> bytes:
    """Returns data with one to four mutations: flipped, replaced, cut, doubled and moved bytes."""
    chance = random.Random(number)
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, length = chance.randrange(len(changed) or 1), chance.choice((1, 1, 2, 4, 8, 64))
        match chance.randrange(6):
            case 0:
                changed[at : at + 1] = bytes([changed[at] ^ 1 << chance.randrange(8)]) if changed else b"\x00"
            case 1:
                changed[at : at + length] = chance.randbytes(length)
            case 2:
                changed[at : at + length] = chance.choice((b"\xff", b"\x00", b"\x7f", b"9")) * length
            case 3:
                del changed[at : at + length]
            case 4:
                changed[at:at] = changed[at : at + length]
            case _:
                del changed[at:]
    return bytes(changed)


def try_mutations(parts: Parts, part: str, numbers: range, tmp_path: Path) -> Counter[str]:
    """Reads mutated artifacts: each is read or refused in a line."""
    outcomes: Counter[str] = Counter()
    for number in numbers:
        location = put(tmp_path, {**parts, part: mutated(parts[part], number)})
        try:
            artifact: Artifact = read_artifact(location)
            if part == "weights":
                rebuild(artifact, TfqEngine())
            outcomes["read"] += 1
        except BadArtifactError as error:
            outcomes["refused" if str(error).isprintable() else "unreadable"] += 1
        except Exception as error:
            raise AssertionError(f"mutated({part}, {number}): {type(error).__name__}: {error}") from error
    assert not outcomes["unreadable"]
    return outcomes


@pytest.mark.parametrize(("part", "count"), [("manifest", 200), ("split", 200), ("weights", 6)])
def test_a_mutated_artifact_is_read_or_refused_in_a_line(parts: Parts, tmp_path: Path, part: str, count: int) -> None:
    outcomes = try_mutations(parts, part, range(count), tmp_path)
    assert outcomes["refused"] > count // 4


@pytest.mark.slow
@pytest.mark.parametrize("part", ["manifest", "split", "weights"])
def test_a_thousand_mutated_artifacts(parts: Parts, tmp_path: Path, part: str) -> None:
    try_mutations(parts, part, range(1000), tmp_path)


# Checkpoints

CHECKPOINT = Checkpoint(Position(2, 8, 9, 0.5, 3.0, {"loss": 0.5}), {"weights/0": np.ones((3, 2), np.float32)})
POSITIONS: dict[str, Any] = {
    "none": None,
    "a list": [],
    "an epoch that is text": {"epoch": "2"},
    "an epoch before the first": {"epoch": -1},
    "a step that is true": {"steps": True},
    "an unknown field": {"epochs": 1},
    "metrics that are text": {"metrics": {"loss": "x"}},
    "no dictionary": 7,
}


def folder(store: Store) -> CheckpointFolder:
    return CheckpointFolder(store, attempt=0, uid="u-1", fingerprint={"workload": "qcnn"}, threads=1)


def read_checkpoint(data: bytes, tmp_path: Path) -> None:
    """Puts data in the place of a checkpoint's, its hash made anew, and reads it."""
    store = open_store(str(tmp_path))
    folder(store).save(CHECKPOINT)
    file = data_file("checkpoint-x", ".npz", data)
    store.put(file.name, data)
    pointer = json.loads(store.get("checkpoint.json").data)
    store.put("checkpoint.json", json.dumps({**pointer, "data": file.model_dump()}).encode())
    folder(store).latest()


@pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS)
def test_a_checkpoint_that_stands_nowhere_is_refused_in_a_line(position: Any, tmp_path: Path) -> None:
    meta = np.frombuffer(json.dumps({"position": position}).encode(), np.uint8)
    data = pack({"meta": meta, "state/weights/0": np.ones(3, np.float32)})
    assert "its data can't be read" in refusal(lambda: read_checkpoint(data, tmp_path))


def test_a_checkpoint_whose_position_nests_is_refused_in_a_line(tmp_path: Path) -> None:
    data = pack({"meta": np.frombuffer(b"[" * 100_000, np.uint8)})
    assert "its data can't be read" in refusal(lambda: read_checkpoint(data, tmp_path))


@pytest.mark.parametrize("data", ARCHIVES.values(), ids=ARCHIVES)
def test_a_checkpoint_that_is_more_than_numbers_is_not_read(data: bytes, tmp_path: Path) -> None:
    assert "its data can't be read" in refusal(lambda: read_checkpoint(data, tmp_path))


def test_a_thousand_mutated_checkpoints_are_read_or_refused_in_a_line() -> None:
    refused = 0
    for number in range(1000):
        try:
            decode(mutated(encode(CHECKPOINT), number))
        except BadArtifactError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"mutated(checkpoint, {number}): {type(error).__name__}: {error}") from error
    assert refused > 500


def test_an_artifact_is_encoded_as_before() -> None:
    split = Qcnn().data(OPTIONS).test
    assert unpack(encode_split(split)).keys() == {"features", "labels"}
