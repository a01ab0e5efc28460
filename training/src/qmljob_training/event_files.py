"""TensorBoard's event files: written to a local folder, copied to the store where `--logdir` is a bucket.

TensorFlow's own gs:// uploads a file anew at each flush, and takes no emulator's address; here a whole file goes up at
most every few seconds, by the store that everything else uses.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from qmljob_api.progress import Progress
from qmljob_training.errors import ConfigurationError
from qmljob_training.evaluation import Evaluation
from qmljob_training.progress import say
from qmljob_training.stores import Store, StoreError, open_store

SYNC_SECONDS = 10.0


class EventFiles:
    """One replica's event files below `<logdir>/<replica>`.

    Args:
        logdir: a folder, or a gs:// location.
        replica: `worker-0` and so on, the name of the run in TensorBoard.
    """

    def __init__(self, logdir: str, replica: str) -> None:
        import tensorflow as tf

        self._tf = tf
        self._logdir = logdir
        self._failed = False
        self._store: Store | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if logdir.startswith("gs://"):
            self._temporary = tempfile.TemporaryDirectory(prefix="qmljob-events-")
            self.folder = Path(self._temporary.name) / replica
            self._store = open_store(logdir)
            self._store.check_writable()
        else:
            self.folder = Path(logdir.removeprefix("file://")) / replica
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"--logdir {logdir}: {error.strerror}; choose a folder that can be written"
            ) from error
        self._writer: Any = None
        self._profiling = False
        self._uploaded: dict[str, tuple[int, int]] = {}
        self._synced_at = time.monotonic()

    def graph(self, graph: Any) -> None:
        """Writes the graph of a training step."""

        def write() -> None:
            with self._open().as_default(step=0):
                self._tf.summary.graph(graph)

        self._attempt(write)

    def epoch(self, progress: Progress, evaluation: Evaluation) -> None:
        """Writes an epoch's scalars and the histogram of the readouts on the test split, at the step they belong to."""
        scalars = {
            "loss/training": progress.loss,
            "loss/validation": progress.val_loss,
            "sign accuracy/training": progress.sign_accuracy,
            "sign accuracy/validation": progress.val_sign_accuracy,
            "learning rate": progress.learning_rate,
            "examples per second": progress.examples_per_second,
        }

        def write() -> None:
            with self._open().as_default(step=progress.step):
                for name, value in scalars.items():
                    self._tf.summary.scalar(name, value)
                for index, readout in enumerate(np.atleast_2d(evaluation.readouts.T)):
                    self._tf.summary.histogram(f"readouts/{index}", readout)
            self._open().flush()
            if time.monotonic() - self._synced_at > SYNC_SECONDS:
                self._sync()

        self._attempt(write)

    def start_profile(self) -> None:
        """Begins to profile this replica."""

        def start() -> None:
            self._tf.profiler.experimental.start(str(self.folder))
            self._profiling = True

        self._attempt(start)

    def stop_profile(self) -> None:
        """Ends and writes the profile, where one is running."""
        if self._profiling:
            self._profiling = False
            self._attempt(self._tf.profiler.experimental.stop)

    def close(self) -> None:
        """Writes what is left."""
        self.stop_profile()
        if self._writer is not None:
            self._attempt(self._writer.close)
        self._attempt(self._sync)
        if self._temporary is not None:
            self._temporary.cleanup()

    def _attempt(self, write: Callable[[], None]) -> None:
        """Watching must not end training: the first failure is said, and nothing more is written."""
        if self._failed:
            return
        try:
            write()
        except (StoreError, OSError, self._tf.errors.OpError) as error:
            self._failed = True
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            say(f"warning: no more event files are written to {self._logdir}: {reason}")

    def _sync(self) -> None:
        """Copies what has changed to the store."""
        if self._store is None or self._temporary is None:
            return
        root = Path(self._temporary.name)
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            name, status = path.relative_to(root).as_posix(), path.stat()
            version = (status.st_size, status.st_mtime_ns)
            if self._uploaded.get(name) != version:
                self._store.put(name, path.read_bytes())
                self._uploaded[name] = version
        self._synced_at = time.monotonic()

    def _open(self) -> Any:
        # A replica that writes no scalars (only the chief does) leaves no empty event file.
        if self._writer is None:
            self._writer = self._tf.summary.create_file_writer(str(self.folder))
        return self._writer
