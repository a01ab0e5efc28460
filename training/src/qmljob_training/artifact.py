"""The artifact: trained weights, the test split, and the manifest that names both by sha256.

Beside `<stem>.h5`, the path that the tutorial's programs read, stand `<stem>-<sha>.h5` (the weights), `<stem>-test-
<sha>.npz` (the test split) and `<stem>.json` (the manifest). Data comes first, the manifest second, the plain copy
last: a reader that follows the manifest never sees a torn artifact.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from qmljob_api.artifact import ARTIFACT_FORMAT, ArtifactManifest, DataFile, ModelDescription, RunDescription
from qmljob_training import plugins
from qmljob_training.arrays import pack, unpack
from qmljob_training.digest import data_file, matches
from qmljob_training.documents import DocumentError, NewerFormatError, read_document
from qmljob_training.engines.protocol import Engine
from qmljob_training.errors import BadArtifactError, ConfigurationError
from qmljob_training.finite import first_not_finite, not_finite_in
from qmljob_training.stores import (
    Fenced,
    ObjectNotFound,
    PreconditionFailed,
    Store,
    open_store,
    put_fenced,
    split_location,
)
from qmljob_training.weights_file import UNREADABLE, check_weights_file
from qmljob_training.workloads.protocol import Split, Workload, WorkloadOptions

if TYPE_CHECKING:
    import tf_keras

SUFFIX = ".h5"
STEM_LIMIT = 170
"""Characters before the suffix: with what is added for data objects the name still fits every store."""
_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{STEM_LIMIT}}}\.h5")


@dataclass(frozen=True)
class Artifact:
    """A checked artifact: hashes are right, formats are known."""

    location: str
    manifest: ArtifactManifest
    weights: bytes
    test_split: Split


def check_location(location: str) -> tuple[str, str]:
    """Splits an artifact's location into its folder and stem (`gs://b/qcnn.h5` -> `gs://b`, `qcnn`).

    Raises:
        ConfigurationError: its name does not end in `.h5`, or could not stand in a manifest.
    """
    folder, name = split_location(location)
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"artifact {location}: give it a name of letters, digits, '.', '_' and '-', at most {STEM_LIMIT} of them, "
            f"that ends in {SUFFIX} (qcnn_weights{SUFFIX})"
        )
    return folder, name.removesuffix(SUFFIX)


@dataclass(frozen=True)
class ArtifactWriter:
    """Writes a job's artifact.

    Attributes:
        location: of the plain copy (`gs://bucket/qcnn_weights.h5`).
        store, stem: the folder and the name without `.h5`.
        attempt, uid: of the job.
    """

    location: str
    store: Store
    stem: str
    attempt: int
    uid: str

    def save(
        self,
        model: "tf_keras.Model",
        test: Split,
        description: ModelDescription,
        run: RunDescription,
        metrics: dict[str, float],
    ) -> ArtifactManifest:
        """Writes everything; an artifact that is there already, with the same weights, stays as it is.

        Raises:
            StoreError: the store failed; an artifact that was there is still whole.
            Fenced: a later attempt of this job has written its artifact.
        """
        weights, split = weights_bytes(model), encode_split(test)
        manifest = ArtifactManifest(
            format=ARTIFACT_FORMAT,
            attempt=self.attempt,
            uid=self.uid,
            model=description,
            run=run,
            weights=data_file(self.stem, SUFFIX, weights),
            test_split=data_file(f"{self.stem}-test", ".npz", split),
            metrics=metrics,
        )
        if not self._is_there(manifest, weights):
            copy = f"{self.stem}{SUFFIX}"
            generation = self._generation(copy)
            self.store.put(manifest.weights.name, weights)
            self.store.put(manifest.test_split.name, split)
            put_fenced(self.store, self._manifest_name, manifest, self._fence)
            try:
                # The copy carries no attempt: that nobody has written it meanwhile stands in for the fence.
                self.store.put_if(copy, weights, generation=generation)
            except PreconditionFailed as error:
                raise Fenced(f"{self.location} was written by another process meanwhile; end this one") from error
        return manifest

    def check(self) -> None:
        """Looks before training whether the artifact can be written after it.

        Raises:
            ConfigurationError: what stands in the manifest's place is no manifest.
            StoreError: the folder can't be written, or a later attempt has written there (Fenced).
        """
        self.store.check_writable()
        try:
            found = self._fence(self.store.get(self._manifest_name).data)
        except ObjectNotFound:
            return
        except ValidationError as error:
            raise ConfigurationError(
                f"artifact {self.location}: {self._manifest_name} beside it is no manifest of this program, so it is "
                "not overwritten; delete it or choose another name"
            ) from error
        if found.attempt > self.attempt:
            raise Fenced(f"{self.location} belongs to attempt {found.attempt} of this job; end attempt {self.attempt}")

    @property
    def _manifest_name(self) -> str:
        return f"{self.stem}.json"

    def _generation(self, name: str) -> int:
        try:
            return self.store.get(name).generation
        except ObjectNotFound:
            return 0

    def _fence(self, data: bytes) -> ArtifactManifest:
        found = ArtifactManifest.model_validate_json(data)
        # Attempts are counted for each job anew; another job's artifact may be replaced.
        return found if found.uid == self.uid else found.model_copy(update={"attempt": -1})

    def _is_there(self, manifest: ArtifactManifest, weights: bytes) -> bool:
        try:
            found = ArtifactManifest.model_validate_json(self.store.get(self._manifest_name).data)
            if (found.uid, found.weights, found.test_split) != (self.uid, manifest.weights, manifest.test_split):
                return False
            plain = self.store.get(f"{self.stem}{SUFFIX}").data
            whole = all(matches(file, self.store.get(file.name).data) for file in (found.weights, found.test_split))
        except (ObjectNotFound, ValidationError):
            return False
        return whole and plain == weights


def read_artifact(location: str) -> Artifact:
    """Reads and checks an artifact.

    Raises:
        BadArtifactError: it is missing, damaged, or of a newer format.
        ConfigurationError: the location is no artifact's.
        StoreError: the store failed.
    """
    folder, stem = check_location(location)
    store = open_store(folder)
    manifest = _read_manifest(store, stem, location)
    return Artifact(
        location=location,
        manifest=manifest,
        weights=_read_data(store, manifest.weights, location),
        test_split=_decode_split(_read_data(store, manifest.test_split, location), location),
    )


def rebuild(artifact: Artifact, engine: Engine) -> "tf_keras.Model":
    """Builds the artifact's model and loads its weights.

    Raises:
        BadArtifactError: the artifact is of another model than this version of the workload builds.
    """
    described = artifact.manifest.model
    options = model_options(artifact)
    try:
        workload: Workload = plugins.load(plugins.WORKLOADS, described.workload, Workload)
        workload.check(options)
    except ConfigurationError as error:
        raise BadArtifactError(f"artifact {artifact.location}: its model can't be built here: {error}") from error
    if workload.symbols(options) != described.symbols:
        raise BadArtifactError(
            f"artifact {artifact.location}: its circuit has the symbols {_shorten(described.symbols)}, this version of "
            f"{described.workload} has {_shorten(workload.symbols(options))}; use the version that wrote it"
        )
    model = workload.model(options, engine)
    if model.count_params() != described.parameters:
        raise BadArtifactError(
            f"artifact {artifact.location}: it has {described.parameters} parameters, this version of "
            f"{described.workload} has {model.count_params()}; use the version that wrote it"
        )
    if model.input_shape[1:] != artifact.test_split.features.shape[1:]:
        raise BadArtifactError(
            f"artifact {artifact.location}: its test split has {artifact.test_split.features.shape[1]} features, "
            f"{described.workload} with {described.qubits} qubits takes {model.input_shape[1]}; train again"
        )
    with _h5_file(artifact.weights) as path:
        try:
            check_weights_file(path)
            model.load_weights(str(path))
        except UNREADABLE as error:
            raise BadArtifactError(
                f"artifact {artifact.location}: its weights are of another model than {described.workload} with "
                f"{described.qubits} qubits; train again or name the right artifact"
            ) from error
    if found := not_finite_in((weight.name, weight.numpy()) for weight in model.weights):
        raise BadArtifactError(f"artifact {artifact.location}: {found}; train again")
    return model


def model_options(artifact: Artifact) -> WorkloadOptions:
    """Returns the options that the artifact's model was built from."""
    manifest = artifact.manifest
    return WorkloadOptions(manifest.model.qubits, manifest.run.examples, manifest.run.seed)


def weights_bytes(model: Any) -> bytes:
    """Returns a Keras model's weights as the content of an .h5 file; the same weights give the same bytes."""
    with _h5_file(b"") as path:
        path.unlink()
        model.save_weights(str(path))
        return path.read_bytes()


def encode_split(split: Split) -> bytes:
    """Returns a split as an .npz archive."""
    return pack({"features": split.features, "labels": split.labels})


def _decode_split(data: bytes, location: str) -> Split:
    try:
        arrays = unpack(data)
        split = Split(arrays["features"], arrays["labels"])
    except (ValueError, KeyError) as error:
        raise BadArtifactError(f"artifact {location}: its test split can't be read; train again") from error
    if {split.features.dtype.kind, split.labels.dtype.kind} != {"f"}:
        raise BadArtifactError(f"artifact {location}: its test split can't be read; train again")
    if split.features.ndim != 2 or split.labels.shape != split.features.shape[:1] or not len(split):
        raise BadArtifactError(f"artifact {location}: its test split holds no labelled examples; train again")
    if found := first_not_finite(split):
        raise BadArtifactError(f"artifact {location}: in its test split, {found}; train again")
    return split


def _read_manifest(store: Store, stem: str, location: str) -> ArtifactManifest:
    try:
        data = store.get(f"{stem}.json").data
    except ObjectNotFound as error:
        raise BadArtifactError(
            f"artifact {location}: {store.location}/{stem}.json is missing; wait for training to end, or check the path"
        ) from error
    try:
        return read_document(data, ArtifactManifest, ARTIFACT_FORMAT)
    except DocumentError as error:
        advice = "" if isinstance(error, NewerFormatError) else "; train again"
        raise BadArtifactError(f"artifact {location}: the manifest {error}{advice}") from error


def _read_data(store: Store, file: DataFile, location: str) -> bytes:
    try:
        data = store.get(file.name).data
    except ObjectNotFound as error:
        raise BadArtifactError(f"artifact {location}: {file.name} is missing; train again") from error
    if not matches(file, data):
        raise BadArtifactError(
            f"artifact {location}: {file.name} is damaged ({len(data)} of {file.size} bytes, or another sha256); "
            "train again"
        )
    return data


@contextmanager
def _h5_file(data: bytes) -> Iterator[Path]:
    # Keras chooses the format by the file's name and takes no file object.
    with tempfile.TemporaryDirectory(prefix="qmljob-") as folder:
        path = Path(folder) / f"weights{SUFFIX}"
        path.write_bytes(data)
        yield path


def _shorten(symbols: tuple[str, ...]) -> str:
    return ", ".join(symbols) if len(symbols) <= 4 else f"{symbols[0]}, …, {symbols[-1]} ({len(symbols)})"
