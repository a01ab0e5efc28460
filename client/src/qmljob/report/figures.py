"""The figures of a report, as far as there is material for them."""

from dataclasses import dataclass

from matplotlib.figure import Figure

from qmljob.report.answers import draw_predictions, draw_readouts
from qmljob.report.losses import draw_losses, restarts_of
from qmljob.report.material import Material
from qmljob.report.style import png
from qmljob.report.timing import draw_timing


@dataclass(frozen=True)
class Picture:
    """A figure: its PNG file, and in words what it shows."""

    png: bytes
    words: str


def draw_figures(material: Material) -> dict[str, Picture]:
    """Returns the figures by name: some of loss, readouts, predictions and timing."""
    drawn: dict[str, tuple[Figure, str]] = {}
    record, description = material.record, material.description
    if record.progress:
        figure = draw_losses(record.progress, restarts_of(record))
        drawn["loss"] = figure, "Training and validation loss over epochs, with a numbered line at each restart."
    if description is not None and description.readouts.labels:
        labels = description.readouts.labels
        if description.readouts.after[0]:
            figure = draw_readouts(description.readouts)
            drawn["readouts"] = figure, "Histograms of each readout by label, before training above and after it below."
        figure = draw_predictions(labels, description.predictions)
        drawn["predictions"] = figure, "Histograms of the predictions by label, before training and after it."
    if material.timings:
        figure = draw_timing(material.timings)
        drawn["timing"] = figure, "Stacked bars: seconds of training and of validation in each epoch, for each worker."
    return {name: Picture(png(figure), words) for name, (figure, words) in drawn.items()}
