"""How the report's figures look. Colours are those of Okabe and Ito, which colour-blind readers tell apart."""

import io
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#555555"
WIDTH = 9.0
"""Inches; at this resolution 1350 pixels, so that a page of common width shows them sharp."""
RESOLUTION = 150


def new_figure(height: float, title: str) -> Figure:
    """Returns an empty figure, `height` inches high. It belongs to no window and to no global state."""
    figure = Figure((WIDTH, height), dpi=RESOLUTION, layout="constrained", facecolor="white")
    figure.suptitle(title, x=0.012, ha="left", fontsize=11, fontweight="bold")
    return figure


def dress(axes: Axes, *, x: str = "", y: str = "") -> None:
    """Labels axes and takes away what carries no information."""
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8, length=3, color=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def count_epochs(axes: Axes) -> None:
    """Gives the x axis whole numbers, at steps that a person counts in."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=11, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def legend_below(figure: Figure, axes: Axes, columns: int) -> None:
    """Puts the legend of `axes` under the figure, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize=9)
    for text in legend.get_texts():
        literal(text)


def literal(text: Any) -> None:
    """Shows a text as it is: a name with dollar signs is not a formula."""
    text.set_parse_math(False)


def png(figure: Figure) -> bytes:
    """Returns a figure as a PNG file; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
