"""The artifact: whole at every instant, checked before use, rebuilt into the model that wrote it."""

from qmljob_training import runtime

runtime.prepare_environment()  # before TensorFlow is imported below

import json  # noqa: E402
from collections.abc import Callable  # noqa: E402
from contextlib import suppress  # noqa: E402
from itertools import count  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from hypothesis.extra import numpy as st_numpy  # noqa: E402

from qmljob_api.artifact import ModelDescription, RunDescription  # noqa: E402
from qmljob_training.arrays import unpack  # noqa: E402
from qmljob_training.artifact import (  # noqa: E402
    ArtifactWriter,
    check_location,
    encode_split,
    read_artifact,
    rebuild,
    weights_bytes,
)
from qmljob_training.digest import data_file  # noqa: E402
from qmljob_training.engines.tfq import TfqEngine  # noqa: E402
from qmljob_training.errors import BadArtifactError, ConfigurationError  # noqa: E402
from qmljob_training.stores import Fenced, Store, StoreError, StoreUnavailable, open_store  # noqa: E402
from qmljob_training.workloads.protocol import Split, WorkloadOptions  # noqa: E402
from qmljob_training.workloads.qcnn import PureQcnn, Qcnn  # noqa: E402
from support.failing_store import FailingStore  # noqa: E402

OPTIONS = WorkloadOptions(qubits=4, examples=20, seed=3)
METRICS = {"loss": 0.5, "val_loss": 0.625}
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
MANIFEST, PLAIN = "qcnn.json", "qcnn.h5"


@pytest.fixture(scope="module")
def model() -> Any:
    return Qcnn().model(OPTIONS, TfqEngine())


@pytest.fixture(scope="module")
def other_model() -> Any:
    """The same model with other weights."""
    return Qcnn().model(WorkloadOptions(qubits=4, examples=20, seed=4), TfqEngine())


@pytest.fixture
def location(tmp_path: Path) -> str:
    return str(tmp_path / "qcnn.h5")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def save(store: Store, model: Any, *, attempt: int = 0, uid: str = "u-1", split: Split | None = None) -> None:
    writer = ArtifactWriter(f"{store.location}/qcnn.h5", store, "qcnn", attempt, uid)
    description = ModelDescription(
        workload="qcnn", qubits=4, symbols=Qcnn().symbols(OPTIONS), parameters=model.count_params()
    )
    writer.save(model, split or Qcnn().data(OPTIONS).test, description, RUN, METRICS)


def generations(store: Store) -> dict[str, int]:
    return {name: store.get(name).generation for name in store.list()}


def manifest_with(store: Store, **changes: Any) -> None:
    """Changes fields of the manifest, `model__qubits` for one inside another; hashes stay."""
    document = json.loads(store.get(MANIFEST).data)
    for path, value in changes.items():
        *above, last = path.split("__")
        part = document
        for key in above:
            part = part[key]
        if value is None:
            del part[last]
        else:
            part[last] = value
    store.put(MANIFEST, json.dumps(document).encode())


def refusal_of(call: Callable[[], object]) -> str:
    with pytest.raises(BadArtifactError) as refusal:
        call()
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("gs://b-1/qcnn_weights.h5", ("gs://b-1", "qcnn_weights")),
        ("gs://b-1/a/b/qcnn.h5", ("gs://b-1/a/b", "qcnn")),
        ("file:///data/q.h5", ("file:///data", "q")),
    ],
)
def test_a_location_has_a_folder_and_a_stem(location: str, expected: tuple[str, str]) -> None:
    assert check_location(location) == expected


@pytest.mark.parametrize(
    "location",
    [
        "gs://b-1/weights",
        "gs://b-1/weights.json",
        "gs://b-1/.h5",
        "file:///data/h5",
        "file:///data/my weights.h5",
        f"gs://b-1/{'w' * 171}.h5",
    ],
)
def test_a_location_that_is_no_artifacts_is_refused_in_a_line(location: str) -> None:
    with pytest.raises(ConfigurationError, match=r"give it a name of letters, .* that ends in \.h5"):
        check_location(location)


def test_an_artifact_reads_as_it_was_written(store: Store, location: str, model: Any) -> None:
    save(store, model)
    artifact, test = read_artifact(location), Qcnn().data(OPTIONS).test
    np.testing.assert_array_equal(artifact.test_split.features, test.features)
    np.testing.assert_array_equal(artifact.test_split.labels, test.labels)
    assert (artifact.manifest.metrics, artifact.manifest.run) == (METRICS, RUN)
    rebuilt = rebuild(artifact, TfqEngine())
    for found, expected in zip(rebuilt.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_tutorials_own_path_holds_weights_that_keras_reads(location: str, store: Store, model: Any) -> None:
    save(store, model)
    assert store.get(PLAIN).data == store.get(read_artifact(location).manifest.weights.name).data
    fresh = Qcnn().model(WorkloadOptions(qubits=4, examples=20, seed=9), TfqEngine())
    fresh.load_weights(location)
    for found, expected in zip(fresh.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_same_weights_give_the_same_bytes(model: Any, other_model: Any) -> None:
    again = Qcnn().model(OPTIONS, TfqEngine())
    assert weights_bytes(model) == weights_bytes(model) == weights_bytes(again)
    assert weights_bytes(model) != weights_bytes(other_model)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    st_numpy.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 4))),
    st.sampled_from([np.float32(1), np.float32(-1)]),
)
def test_a_split_is_encoded_bit_for_bit(features: np.ndarray, label: np.float32) -> None:
    split = Split(features, np.full(len(features), label))
    data = encode_split(split)
    assert data == encode_split(split)
    arrays = unpack(data)
    assert arrays["features"].tobytes() == features.tobytes()
    assert arrays["labels"].tobytes() == split.labels.tobytes()


def test_saving_the_same_weights_again_changes_nothing(store: Store, model: Any) -> None:
    save(store, model)
    before = generations(store)
    for attempt in (0, 1, 5):  # a job that is started again after its end
        save(store, model, attempt=attempt)
    assert generations(store) == before


@pytest.mark.parametrize("name", ["weights", "split", PLAIN])
@pytest.mark.parametrize(
    "damage", [None, lambda data: data[:-1], lambda data: bytes(len(data))], ids=["gone", "cut", "zeros"]
)
def test_saving_again_repairs_what_is_damaged(
    store: Store, location: str, model: Any, name: str, damage: Callable[[bytes], bytes] | None
) -> None:
    save(store, model)
    manifest = read_artifact(location).manifest
    name = {"weights": manifest.weights.name, "split": manifest.test_split.name}.get(name, name)
    data = store.get(name).data
    if damage is None:
        store.delete(name)
    else:
        store.put(name, damage(data))
    save(store, model)
    assert store.get(name).data == data
    read_artifact(location)


def test_other_weights_replace_it_and_leave_the_old_data_to_its_readers(
    store: Store, location: str, model: Any, other_model: Any
) -> None:
    save(store, model)
    old = read_artifact(location).manifest.weights
    save(store, other_model)
    assert read_artifact(location).weights == weights_bytes(other_model) == store.get(PLAIN).data
    assert store.get(old.name).data == weights_bytes(model)


def test_an_older_attempt_of_the_job_replaces_nothing(
    store: Store, location: str, model: Any, other_model: Any
) -> None:
    save(store, model, attempt=2)
    with pytest.raises(Fenced) as refusal:
        save(store, other_model, attempt=1)
    assert "\n" not in str(refusal.value)
    assert read_artifact(location).weights == weights_bytes(model) == store.get(PLAIN).data


def test_another_job_may_replace_it(store: Store, location: str, model: Any, other_model: Any) -> None:
    # Attempts are counted for each job anew: the job that is created again under the same name starts at 0.
    save(store, model, attempt=2, uid="u-1")
    save(store, other_model, attempt=0, uid="u-2")
    artifact = read_artifact(location)
    assert (artifact.manifest.uid, artifact.manifest.attempt) == ("u-2", 0)
    assert artifact.weights == weights_bytes(other_model)


def test_what_is_no_manifest_is_not_overwritten(store: Store, model: Any) -> None:
    store.put(MANIFEST, b"somebody's own file")
    with pytest.raises(StoreError, match="delete it or choose another location"):
        save(store, model)
    assert store.get(MANIFEST).data == b"somebody's own file"


def test_a_weight_that_is_no_number_is_named(store: Store, location: str) -> None:
    model = Qcnn().model(OPTIONS, TfqEngine())
    weights = model.get_weights()
    weights[0][2] = np.nan
    model.set_weights(weights)
    save(store, model)
    refusal = refusal_of(lambda: rebuild(read_artifact(location), TfqEngine()))
    assert "quantum/symbols:0[2] is nan; train again" in refusal


@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.parametrize("replaces", [False, True], ids=["the first artifact", "over another"])
def test_a_write_that_fails_leaves_a_whole_artifact(
    tmp_path: Path, model: Any, other_model: Any, replaces: bool, after: bool
) -> None:
    old, new = weights_bytes(other_model), weights_bytes(model)
    for fail_at in count():
        location = str(tmp_path / str(fail_at) / "qcnn.h5")
        inner = open_store(str(tmp_path / str(fail_at)))
        if replaces:
            save(inner, other_model)
        failing = FailingStore(inner, fail_at, after=after)
        try:
            save(failing, model)
        except StoreUnavailable:
            if replaces:
                assert read_artifact(location).weights in (old, new)
            else:
                with suppress(BadArtifactError):
                    assert read_artifact(location).weights == new
            save(inner, model, attempt=1)  # the next attempt ends it
        assert read_artifact(location).weights == inner.get(PLAIN).data == new
        if len(failing.writes) == fail_at:
            break
    assert failing.writes[-2:] == [MANIFEST, PLAIN]  # data first, then the manifest that names it, then the copy
    assert fail_at == 4


# What happens to which object -> what the one line says.
DAMAGE = [
    pytest.param(
        "manifest", None, "qcnn.json is missing; wait for training to end, or check the path", id="no manifest"
    ),
    pytest.param("manifest", lambda data: data[:-5], "the manifest is damaged", id="a truncated manifest"),
    pytest.param(
        "manifest", lambda data: b"{}", "the manifest is damaged at format (Field required)", id="an empty one"
    ),
    pytest.param(
        "manifest",
        lambda data: data.replace(b'"format":1', b'"format":2'),
        "format 2, which is newer than this version reads (1); upgrade",
        id="a newer format",
    ),
    pytest.param(
        "manifest",
        lambda data: data.replace(b'"name":"qcnn-', b'"name":"../qcnn-'),
        "the manifest is damaged at weights.name",
        id="a path outside of the folder",
    ),
    pytest.param("weights", None, "is missing; train again", id="no weights"),
    pytest.param("weights", lambda data: b"", "is damaged (0 of", id="empty weights"),
    pytest.param("weights", lambda data: data[: len(data) // 2], "is damaged (", id="truncated weights"),
    pytest.param("split", None, "is missing; train again", id="no test split"),
    pytest.param("split", lambda data: data + b"\x00", "is damaged (", id="a test split with a byte too many"),
]


def named(store: Store, location: str, which: str) -> str:
    manifest = read_artifact(location).manifest
    return {"manifest": MANIFEST, "weights": manifest.weights.name, "split": manifest.test_split.name}[which]


@pytest.mark.parametrize(("which", "damage", "message"), DAMAGE)
def test_damage_is_named_in_a_line_that_says_what_to_do(
    store: Store, location: str, model: Any, which: str, damage: Callable[[bytes], bytes] | None, message: str
) -> None:
    save(store, model)
    name = named(store, location, which)
    if damage is None:
        store.delete(name)
    else:
        store.put(name, damage(store.get(name).data))
    refusal = refusal_of(lambda: read_artifact(location))
    assert message in refusal
    assert refusal.startswith(f"artifact {location}: ")


@pytest.mark.parametrize("which", ["weights", "split"])
def test_any_flipped_bit_of_the_data_is_seen(store: Store, location: str, model: Any, which: str) -> None:
    save(store, model)
    name = named(store, location, which)
    data = store.get(name).data
    for bit in np.linspace(0, 8 * len(data) - 1, 24, dtype=int):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        store.put(name, bytes(changed))
        assert "is damaged" in refusal_of(lambda: read_artifact(location))


def test_an_artifact_that_never_was_is_missing(location: str) -> None:
    assert "qcnn.json is missing" in refusal_of(lambda: read_artifact(location))


def test_metrics_are_not_needed_to_read_it(store: Store, location: str, model: Any) -> None:
    save(store, model)
    manifest_with(store, metrics=None)
    assert read_artifact(location).manifest.metrics == {}


def with_data(store: Store, field: str, suffix: str, data: bytes) -> None:
    """Puts other data in the place of an artifact's, its hash made anew."""
    file = data_file("qcnn", suffix, data)
    store.put(file.name, data)
    manifest_with(store, **{field: file.model_dump()})


# The hashes are right, but the artifact is of another model than its manifest says.
MISMATCHES = [
    pytest.param({"model__qubits": 8}, "it has 53 parameters, this version of qcnn has 69", id="more qubits"),
    pytest.param({"model__qubits": 3}, "its test split has 4 features, qcnn with 3 qubits takes 3", id="fewer qubits"),
    pytest.param({"model__qubits": 2}, "its model can't be built here: --qubits 2", id="too few qubits"),
    pytest.param({"model__workload": "qcnn-pure"}, "its circuit has the symbols", id="another workload"),
    pytest.param(
        {"model__workload": "lenet"}, "its model can't be built here: --workload lenet: unknown", id="unknown"
    ),
    pytest.param({"model__symbols": ["a", "b"]}, "its circuit has the symbols a, b, this version", id="other symbols"),
    pytest.param({"model__parameters": 54}, "it has 54 parameters, this version of qcnn has 53", id="other parameters"),
]


@pytest.mark.parametrize(("changes", "message"), MISMATCHES)
def test_another_model_is_refused_in_a_line(
    store: Store, location: str, model: Any, changes: dict[str, Any], message: str
) -> None:
    save(store, model)
    manifest_with(store, **changes)
    refusal = refusal_of(lambda: rebuild(read_artifact(location), TfqEngine()))
    assert refusal.startswith(f"artifact {location}: ")
    assert message in refusal


def test_symbols_in_another_order_are_another_model(store: Store, location: str, model: Any) -> None:
    # The weights are a vector: only the manifest says which number belongs to which symbol.
    save(store, model)
    manifest_with(store, model__symbols=list(reversed(Qcnn().symbols(OPTIONS))))
    refusal = refusal_of(lambda: rebuild(read_artifact(location), TfqEngine()))
    assert "use the version that wrote it" in refusal


@pytest.mark.parametrize(
    "weights",
    [
        pytest.param(lambda: b"no HDF5 file", id="no weights file"),
        pytest.param(lambda: weights_bytes(PureQcnn().model(OPTIONS, TfqEngine())), id="weights of another network"),
    ],
)
def test_weights_of_something_else_are_refused_in_a_line(
    store: Store, location: str, model: Any, weights: Callable[[], bytes]
) -> None:
    save(store, model)
    with_data(store, "weights", ".h5", weights())
    refusal = refusal_of(lambda: rebuild(read_artifact(location), TfqEngine()))
    assert "its weights are of another model than qcnn with 4 qubits; train again or name the right artifact" in refusal


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"no archive", "its test split can't be read; train again", id="no archive"),
        pytest.param(
            encode_split(Split(np.zeros((0, 4), np.float32), np.zeros(0, np.float32))),
            "its test split holds no labelled examples",
            id="no examples",
        ),
        pytest.param(
            encode_split(Split(np.zeros((3, 4), np.float32), np.ones(2, np.float32))),
            "its test split holds no labelled examples",
            id="an example without a label",
        ),
        pytest.param(
            encode_split(Split(np.full((3, 4), np.inf, np.float32), np.ones(3, np.float32))),
            "in its test split, feature 0 of example 0 is inf; train again",
            id="an infinite feature",
        ),
    ],
)
def test_a_test_split_of_something_else_is_refused_in_a_line(
    store: Store, location: str, model: Any, data: bytes, message: str
) -> None:
    save(store, model)
    with_data(store, "test_split", ".npz", data)
    assert message in refusal_of(lambda: read_artifact(location))
