"""Trains into a small disk, fills it after the first epoch, and looks at the last checkpoint: run as
`python full_disk_training.py FOLDER flags…`. Ends with the worker program's exit code."""

import errno
import subprocess
import sys
from pathlib import Path

BLOCK = 4096


def fill(folder: Path) -> None:
    """Writes until the disk is full."""
    with (folder / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(BLOCK))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def main(arguments: list[str]) -> int:
    """Returns the worker program's exit code."""
    folder = Path(arguments[0])
    location = f"file://{folder}/checkpoints"
    command = [sys.executable, "-m", "qmljob_training", *arguments[1:], f"--checkpoint-location={location}"]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    print(worker.stdout.readline(), end="")
    fill(folder)
    worker.communicate()
    from qmljob_training.checkpoint import CheckpointFolder
    from qmljob_training.stores import open_store

    store = open_store(f"{location}/default/manual/manual")
    found = CheckpointFolder(store, attempt=0, uid="manual", fingerprint={}, threads=1).latest()
    print(f"last checkpoint is good: {found is not None and found[1].position.epoch >= 1}")
    return worker.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
