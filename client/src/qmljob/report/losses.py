"""The figure of losses per epoch, with the restarts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qmljob.local.record import RunRecord
from qmljob.local.summary import ended_with
from qmljob.report.style import BLUE, GREY, VERMILLION, count_epochs, dress, legend_below, new_figure
from qmljob_api.progress import Progress

NAMED_RESTARTS = 6
_LABEL_CHARACTERS = 100


@dataclass(frozen=True)
class Restart:
    """An attempt that went on after epoch `after`, and why the one before it ended."""

    attempt: int
    after: int
    cause: str


def restarts_of(record: RunRecord) -> tuple[Restart, ...]:
    """Returns where each attempt but the first one went on, by the chief's progress lines."""
    restarts = []
    last = max((line.epoch for line in record.progress), default=0)
    for before, now in zip(record.attempts, record.attempts[1:], strict=False):
        after = min((line.epoch - 1 for line in record.progress if line.attempt >= now.attempt), default=last)
        codes = [end.exit_code for end in before.ends if end.replica == before.cause]
        cause = f"{before.cause} {ended_with(codes[0])}" if codes else before.reason or "the cause is unknown"
        restarts.append(Restart(now.attempt, after, cause))
    return tuple(restarts)


def draw_losses(progress: Sequence[Progress], restarts: Sequence[Restart]) -> Figure:
    """Draws both losses over epochs, with a numbered line where an attempt went on from a checkpoint."""
    rows = 1 + min(len(restarts), NAMED_RESTARTS + 1)
    figure = new_figure(3.7 + 0.2 * rows, "Loss per epoch")
    axes = figure.subplots()
    epochs = [line.epoch for line in progress]
    marker = "o" if len(epochs) <= 30 else ""
    curves = (
        ("training loss", [line.loss for line in progress], BLUE, "-"),
        ("validation loss", [line.val_loss for line in progress], VERMILLION, "--"),
    )
    for name, values, colour, dash in curves:
        finite = [value if math.isfinite(value) else math.nan for value in values]
        axes.plot(epochs, finite, dash, color=colour, label=name, marker=marker, markersize=4, linewidth=1.8)
    _mark(axes, restarts)
    dress(axes, x="epoch", y="mean squared error")
    axes.set_xlim(min(epochs) - 0.5, max(epochs) + (0.5 if len(epochs) < 20 else 1.0))
    highest = max((value for _, values, _, _ in curves for value in values if math.isfinite(value)), default=1.0)
    axes.set_ylim(0, 1.06 * highest or 1.0)
    count_epochs(axes)
    legend_below(figure, axes, columns=1)
    return figure


def _mark(axes: Axes, restarts: Sequence[Restart]) -> None:
    for count, restart in enumerate(restarts):
        label = None
        if count < NAMED_RESTARTS:
            label = f"attempt {restart.attempt}, since {restart.cause}"[:_LABEL_CHARACTERS]
        elif count == NAMED_RESTARTS:
            label = f"{len(restarts) - count} more, see the table of attempts"
        axes.axvline(restart.after + 0.5, color=GREY, linestyle=":", linewidth=1.4, label=label)
    numbers: dict[int, list[int]] = {}
    for restart in restarts:
        numbers.setdefault(restart.after, []).append(restart.attempt)
    for after, attempts in numbers.items():
        text = str(attempts[0]) if len(attempts) == 1 else f"{attempts[0]}–{attempts[-1]}"
        axes.annotate(
            text,
            (after + 0.5, 1.0),
            (0, 5),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color="white",
            bbox={"boxstyle": "round,pad=0.3", "facecolor": GREY, "edgecolor": "none"},
        )
