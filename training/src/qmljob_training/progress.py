"""What a person or an operator sees of a run: a bar on a terminal, JSON lines elsewhere, the termination message."""

import os
import sys
from pathlib import Path

from tqdm import tqdm

from qmljob_api import environment
from qmljob_api.progress import TERMINATION_MESSAGE_LIMIT, Progress, to_line

_KUBERNETES_TERMINATION_LOG = Path("/dev/termination-log")


class ProgressReporter:
    """Reports each finished epoch.

    Args:
        mode: `auto`, `bar` or `json`.
        epochs: of the whole run; done: epochs that an earlier run has finished.
    """

    def __init__(self, mode: str, *, epochs: int, done: int) -> None:
        as_bar = mode == "bar" or (mode == "auto" and sys.stderr.isatty())
        self._bar = tqdm(total=epochs, initial=done, unit="epoch", file=sys.stderr) if as_bar else None

    def epoch(self, progress: Progress) -> None:
        """Shows one finished epoch, and leaves it as the termination message in case it is the last."""
        line = to_line(progress)
        if self._bar is None:
            print(line, flush=True)
        else:
            self._bar.set_postfix(loss=f"{progress.loss:.4f}", val_loss=f"{progress.val_loss:.4f}")
            self._bar.update(progress.epoch - self._bar.n)
        write_termination_message(line)

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()


def write_termination_message(text: str) -> None:
    """Leaves `text` where Kubernetes (or a local run) looks for a container's last words; elsewhere does nothing."""
    named = os.environ.get(environment.TERMINATION_MESSAGE_PATH)
    path = Path(named) if named else _KUBERNETES_TERMINATION_LOG
    if named or path.exists():
        try:
            path.write_bytes(text.encode()[:TERMINATION_MESSAGE_LIMIT])
        except OSError as error:
            say(f"the termination message can't be written to {path}: {error.strerror}")


def say(line: str) -> None:
    """Writes one line of log for a person."""
    print(line, file=sys.stderr, flush=True)
