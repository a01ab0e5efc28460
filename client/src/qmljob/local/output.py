"""What a person sees of a run: data on standard output, advice on standard error; plain text but on a terminal."""

import os
import re
from datetime import timedelta
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from qmljob_api.progress import Progress

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red")
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # cursor movements and colours
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles and links
    r"|\x1b.?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def plain(text: str) -> str:
    """Returns text without terminal control: a replica may colour its lines, but not move the cursor of the terminal
    that several replicas share."""
    return _CONTROL.sub("", text)


def epoch_line(progress: Progress) -> str:
    """Returns an epoch's figures for a person."""
    return (
        f"epoch {progress.epoch}/{progress.epochs}  loss {progress.loss:.4f}  val_loss {progress.val_loss:.4f}  "
        f"sign accuracy {progress.val_sign_accuracy:.3f}  {progress.seconds:.2f} s"
    )


def remaining(progress: Progress) -> str:
    """Returns the time that the epochs left would take, at the pace of the last one (`0:01:05`)."""
    seconds = (progress.epochs - progress.epoch) * (progress.seconds + progress.validation_seconds)
    return str(timedelta(seconds=round(min(max(seconds, 0.0), 8.64e8))))


class Output:
    """Shows lines, progress, advice and the summary of one run.

    Quiet shows the summary and errors only. On a terminal, lines scroll above a bar; elsewhere an epoch is a line.
    """

    def __init__(self, stdout: TextIO, stderr: TextIO, *, quiet: bool = False) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._quiet = quiet
        self._colours: dict[str, str] = {}
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        terminal = stdout.isatty() and os.environ.get("TERM", "") not in {"dumb", "unknown"}
        self._console = (
            Console(file=stdout, highlight=False, markup=False, emoji=False, soft_wrap=True) if terminal else None
        )

    def line(self, replica: str, text: str) -> None:
        """Shows a line of a replica."""
        if self._quiet:
            return
        text = plain(text)
        if self._console is None:
            self._write(f"[{replica}] {text}")
            return
        colour = self._colours.setdefault(replica, _COLOURS[len(self._colours) % len(_COLOURS)])
        self._console.print(Text.assemble((f"[{replica}]", colour), " ", text), soft_wrap=True)

    def progress(self, replica: str, progress: Progress) -> None:
        """Shows an epoch of the chief."""
        if self._quiet:
            return
        if self._console is None:
            self._write(f"[{replica}] {epoch_line(progress)}")
            return
        if self._bar is None or self._task is None:
            columns = (TextColumn("epoch"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[figures]}"))
            # No refresh of its own: this process starts others, and must not do so with a busy thread beside it.
            self._bar = Bar(*columns, console=self._console, auto_refresh=False, transient=True)
            self._task = self._bar.add_task("epoch", total=progress.epochs, figures="")
            self._bar.start()
        figures = f"loss {progress.loss:.4f}  val_loss {progress.val_loss:.4f}  ETA {remaining(progress)}"
        self._bar.update(self._task, completed=progress.epoch, total=progress.epochs, figures=figures, refresh=True)

    def status(self, text: str) -> None:
        """Shows what the run does now: unlike advice, not shown when quiet."""
        if not self._quiet:
            self.advice(text)

    def advice(self, text: str) -> None:
        """Shows an error or a piece of advice, on standard error. A bar is taken away first, so they never mix."""
        self.close()
        self._stderr.write(plain_lines(text) + "\n")
        self._stderr.flush()

    def summary(self, text: str) -> None:
        """Shows the result of the run, on standard output."""
        self.close()
        self._write(text)

    def close(self) -> None:
        """Takes the bar away; the next epoch brings it back."""
        if self._bar is not None:
            self._bar.stop()
            self._bar, self._task = None, None

    def _write(self, text: str) -> None:
        self._stdout.write(text + "\n")
        self._stdout.flush()


def plain_lines(text: str) -> str:
    """Returns text without terminal control, its line ends kept."""
    return "\n".join(plain(line) for line in text.split("\n"))
