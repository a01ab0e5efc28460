"""The figure of times: what each worker spent on training and on validation in each epoch."""

import statistics
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qmljob.report.style import BLUE, GREY, VERMILLION, count_epochs, dress, legend_below, literal, new_figure
from qmljob_api.progress import Progress

SHOWN_WORKERS = 8
NAMED_OUTLIERS = 6
_OUTLIER = 3.0
"""An epoch that took so many times the median is cut off: the first one of an attempt also compiles."""


def draw_timing(timings: Mapping[str, Sequence[Progress]]) -> Figure:
    """Draws a row of stacked bars for each worker, all to one scale; beyond `SHOWN_WORKERS` the others are left out."""
    shown = list(timings.items())[:SHOWN_WORKERS]
    missing = len(timings) - len(shown)
    title = "Seconds per epoch" + (f" (the first {len(shown)} of {len(timings)} replicas)" if missing else "")
    figure = new_figure(1.1 + 1.6 * len(shown), title)
    rows = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    top = _top([_total(line) for _, lines in shown for line in lines])
    for axes, (replica, lines) in zip(rows, shown, strict=True):
        _draw_worker(axes, lines, top)
        dress(axes, y="seconds")
        literal(axes.set_title(replica[:80], loc="left", fontsize=9))
    epochs = [line.epoch for _, lines in shown for line in lines]
    rows[-1].set_xlabel("epoch", fontsize=9)
    rows[-1].set_xlim(min(epochs) - 0.7, max(epochs) + 0.7)
    rows[-1].set_ylim(0, top)
    count_epochs(rows[-1])
    legend_below(figure, rows[-1], columns=2)
    return figure


def _draw_worker(axes: Axes, lines: Sequence[Progress], top: float) -> None:
    epochs = [line.epoch for line in lines]
    training = [line.seconds for line in lines]
    axes.bar(epochs, training, width=0.8, color=BLUE, label="training")
    validation = [line.validation_seconds for line in lines]
    axes.bar(epochs, validation, bottom=training, width=0.8, color=VERMILLION, label="validation")
    for line in [line for line in lines if _total(line) > top][:NAMED_OUTLIERS]:
        text = f"▲ {_total(line):.3g} s"
        axes.annotate(text, (line.epoch + 0.4, top), (2, -7), textcoords="offset points", fontsize=8, color=GREY)


def _top(totals: Sequence[float]) -> float:
    usual = statistics.median(totals)
    return 1.15 * max((total for total in totals if total <= _OUTLIER * usual), default=usual) or 1.0


def _total(line: Progress) -> float:
    return line.seconds + line.validation_seconds
