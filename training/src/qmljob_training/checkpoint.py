"""Checkpoints: everything that the next step depends on, in the store, never torn.

The data object is written first, under a name made from its content; then the pointer, `checkpoint.json`, by one
conditional write. Whoever reads the pointer finds whole data. The pointer carries the attempt: a process of an older
attempt can't move it back (stores/fencing.py).
"""

import json
from dataclasses import asdict, dataclass, field

import numpy as np
from pydantic import TypeAdapter

from qmljob_api.artifact import CHECKPOINT_FORMAT, CheckpointPointer
from qmljob_training.arrays import pack, unpack
from qmljob_training.digest import data_file, matches
from qmljob_training.documents import DocumentError, NewerFormatError, read_document
from qmljob_training.errors import BadArtifactError
from qmljob_training.finite import not_finite_in
from qmljob_training.stores import ObjectNotFound, Store, put_fenced
from qmljob_training.strategies.protocol import State

POINTER_NAME = "checkpoint.json"
_DATA_PREFIX = "checkpoint-"
_META = "meta"
_STATE = "state/"
_READ_TRIES = 5

Fingerprint = dict[str, str | int | float]


@dataclass(frozen=True)
class Position:
    """Where training stands.

    Attributes:
        epoch: epochs completed.
        examples: examples of the epoch under way that have been trained on.
        steps: steps since the first epoch.
        squared_errors, hits: sums over those examples.
        metrics: of the last completed epoch.
    """

    epoch: int = 0
    examples: int = 0
    steps: int = 0
    squared_errors: float = 0.0
    hits: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """A position and the numbers that belong to it."""

    position: Position
    state: State


_POSITION = TypeAdapter(Position)


class _MovedError(Exception):
    """The pointer is not the one that was read."""


class CheckpointFolder:
    """A job's checkpoints in a store.

    Args:
        store: the job's own folder.
        attempt, uid: of the job, written into each pointer.
        fingerprint: what must be the same for the numbers to be the same; kept for whoever resumes.
        threads: the thread count, kept likewise.
        flag: which of the user's flags named this folder.
    """

    def __init__(
        self,
        store: Store,
        *,
        attempt: int,
        uid: str,
        fingerprint: Fingerprint,
        threads: int,
        flag: str = "--checkpoint-location",
    ) -> None:
        self.store = store
        self._attempt = attempt
        self._uid = uid
        self.fingerprint = fingerprint
        self._threads = threads
        self.flag = flag
        self._kept: list[str] = []

    def save(self, checkpoint: Checkpoint) -> None:
        """Writes data, then the pointer; then removes all but the last two that this process wrote or took over.

        Raises:
            StoreError: the store failed; the last checkpoint is still good.
            Fenced: a later attempt owns the folder.
        """
        position = checkpoint.position
        data = encode(checkpoint)
        file = data_file(f"{_DATA_PREFIX}{position.epoch:05d}-{position.steps:07d}", ".npz", data)
        self.store.put(file.name, data)
        self._point_to(
            CheckpointPointer(
                format=CHECKPOINT_FORMAT,
                attempt=self._attempt,
                uid=self._uid,
                epoch=position.epoch,
                step=position.steps,
                fingerprint=self.fingerprint,
                threads=self._threads,
                data=file,
            )
        )
        self._forget_old(file.name)

    def latest(self) -> tuple[CheckpointPointer, Checkpoint] | None:
        """Returns the newest checkpoint; None where there is none.

        Raises:
            BadArtifactError: the pointer or its data is damaged, missing, or of a newer format.
        """
        for last in (*(False,) * (_READ_TRIES - 1), True):
            pointer = self._pointer()
            if pointer is None:
                return None
            try:
                data = self.store.get(pointer.data.name).data
            except ObjectNotFound as error:
                # An older attempt that is still running may just have replaced it: look again.
                if last:
                    raise self._bad(f"names {pointer.data.name}, which is missing") from error
                continue
            if not matches(pointer.data, data):
                raise self._bad(f"names {pointer.data.name}, whose sha256 is another one")
            try:
                return pointer, decode(data)
            except BadArtifactError as error:
                raise self._bad(f"names {pointer.data.name}, but {error}") from error
        return None

    def claim(self, pointer: CheckpointPointer) -> bool:
        """Makes a found pointer this attempt's own, so that a process of an older attempt can't move it any more.

        Returns:
            False where such a process has just moved it, and may have removed the data that it named: look again.

        Raises:
            Fenced: a later attempt owns the folder.
        """

        def unmoved(data: bytes) -> CheckpointPointer:
            found = CheckpointPointer.model_validate_json(data)
            if found.attempt <= self._attempt and found != pointer:
                raise _MovedError
            return found

        own = pointer.model_copy(update={"attempt": self._attempt, "uid": self._uid})
        try:
            put_fenced(self.store, POINTER_NAME, own, unmoved)
        except _MovedError:
            return False
        # What older attempts have left besides goes with the next checkpoints.
        left = [name for name in self.store.list(_DATA_PREFIX) if name != pointer.data.name]
        self._kept = [*left, pointer.data.name]
        return True

    def _point_to(self, pointer: CheckpointPointer) -> None:
        put_fenced(self.store, POINTER_NAME, pointer, CheckpointPointer.model_validate_json)

    def _forget_old(self, newest: str) -> None:
        # Only what this process wrote or took over: a zombie must not remove what a later attempt needs.
        self._kept = [name for name in self._kept if name != newest] + [newest]
        while len(self._kept) > 2:
            self.store.delete(self._kept.pop(0))

    def _pointer(self) -> CheckpointPointer | None:
        try:
            stored = self.store.get(POINTER_NAME)
        except ObjectNotFound:
            return None
        try:
            return read_document(stored.data, CheckpointPointer, CHECKPOINT_FORMAT)
        except NewerFormatError as error:
            raise BadArtifactError(f"checkpoint {self.store.location}/{POINTER_NAME} {error}") from error
        except DocumentError as error:
            raise self._bad(str(error)) from error

    def _bad(self, what: str) -> BadArtifactError:
        return BadArtifactError(
            f"checkpoint {self.store.location}/{POINTER_NAME} {what}; delete this folder to start anew, "
            f"or choose another {self.flag}"
        )


def encode(checkpoint: Checkpoint) -> bytes:
    """Returns a checkpoint as an .npz archive; the same checkpoint gives the same bytes."""
    meta = json.dumps({"position": asdict(checkpoint.position)}, sort_keys=True).encode()
    arrays = {f"{_STATE}{name}": value for name, value in checkpoint.state.items()}
    return pack({_META: np.frombuffer(meta, np.uint8), **arrays})


def decode(data: bytes) -> Checkpoint:
    """Reads what `encode` wrote.

    Raises:
        BadArtifactError: the archive is not a checkpoint.
    """
    try:
        arrays = unpack(data)
        meta = json.loads(arrays.pop(_META).tobytes())
        state = {name.removeprefix(_STATE): value for name, value in arrays.items()}
        checkpoint = Checkpoint(_POSITION.validate_json(json.dumps(meta["position"]), strict=True), state)
        if set(meta["position"]) - set(asdict(checkpoint.position)):
            raise ValueError("it has fields that this version does not know")
        if min(checkpoint.position.epoch, checkpoint.position.examples, checkpoint.position.steps) < 0:
            raise ValueError("it stands before the first epoch")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadArtifactError(f"its data can't be read ({type(error).__name__})") from error
    if found := not_finite_in(state.items()):
        raise BadArtifactError(found)
    return checkpoint
