"""The figures of what the model answers on the test split, before and after training."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from qmljob.report.style import BLUE, GREY, VERMILLION, dress, legend_below, new_figure
from qmljob_api.description import Predictions, Readouts

COLUMNS = 4
SHOWN_READOUTS = 12
_BINS = 24


def draw_readouts(readouts: Readouts) -> Figure:
    """Draws histograms of each readout, split by label: a row before training and one after it."""
    total = len(readouts.after[0])
    count = min(total, SHOWN_READOUTS)
    columns = min(count, COLUMNS)
    bands = -(-count // columns)
    title = "Readouts on the test split" + (f" (the first {count} of {total})" if total > count else "")
    figure = new_figure(0.8 + 3.3 * bands, title)
    # One scale for all panels: heights and places compare between readouts, and before with after.
    grid = figure.subplots(2 * bands, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat:
        axes.set_visible(False)
    span = _span([value for rows in (readouts.before, readouts.after) for row in rows for value in row])
    for index in range(count):
        band, column = divmod(index, columns)
        for row, (when, rows) in enumerate((("before", readouts.before), ("after", readouts.after))):
            axes = grid[2 * band + row, column]
            axes.set_visible(True)
            _histogram(axes, [example[index] for example in rows], readouts.labels, span)
            dress(axes, x="expectation value" if row else "", y=f"examples, {when}" if column == 0 else "")
            axes.tick_params(labelbottom=bool(row), labelleft=column == 0)
        grid[2 * band, column].set_title(f"readout {index}", fontsize=9)
    legend_below(figure, grid[0, 0], columns=2)
    return figure


def draw_predictions(labels: Sequence[float], predictions: Predictions) -> Figure:
    """Draws histograms of the predictions, split by label, before and after training."""
    figure = new_figure(3.4, "Predictions on the test split")
    pair = figure.subplots(1, 2, sharex=True, sharey=True)
    span = _span([1.0, *predictions.before, *predictions.after])
    for axes, when, values in zip(pair, ("before", "after"), (predictions.before, predictions.after), strict=True):
        _histogram(axes, values, labels, span)
        axes.axvline(0, color=GREY, linestyle=":", linewidth=1.2)
        dress(axes, x="prediction (its sign is the answer)", y="examples" if when == "before" else "")
        error = sum((value - label) ** 2 for value, label in zip(values, labels, strict=True)) / len(labels)
        axes.set_title(f"{when} training: mean squared error {error:.4f}", loc="left", fontsize=9)
    legend_below(figure, pair[0], columns=2)
    return figure


def _histogram(axes: Axes, values: Sequence[float], labels: Sequence[float], span: float) -> None:
    limits = (-span, span)
    for name, sign, colour, dash in (("label −1", -1, VERMILLION, "--"), ("label +1", 1, BLUE, "-")):
        some = [value for value, label in zip(values, labels, strict=True) if label * sign > 0 and math.isfinite(value)]
        axes.hist(some, bins=_BINS, range=limits, color=(colour, 0.35), histtype="stepfilled", label=name)
        axes.hist(some, bins=_BINS, range=limits, color=colour, histtype="step", linestyle=dash, linewidth=1.3)
    axes.set_xlim(*limits)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))


def _span(values: Sequence[float]) -> float:
    """Returns how far from 0 the axis reaches, to both sides: as far as values do, and a little more."""
    return 1.05 * max((abs(value) for value in values if math.isfinite(value)), default=1.0) or 1.0
