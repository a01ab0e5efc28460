"""From a run's folder to the report's files."""

from collections.abc import Mapping
from pathlib import Path

from qmljob.report.errors import ReportError
from qmljob.report.figures import Picture, draw_figures
from qmljob.report.material import Material, gather
from qmljob.report.page import render_page

REPORT_FOLDER = "report"
PAGE = "report.html"


def write_report(run_dir: Path) -> Path:
    """Writes `report/report.html` and its figures into a run's folder, and returns the page's path.

    Raises:
        ReportError: the folder holds no record of a run, or can't be written.
    """
    return write_files(gather(run_dir))


def write_files(material: Material) -> Path:
    """Writes the page and the figures of what was gathered, and returns the page's path.

    Raises:
        ReportError: the folder can't be written.
    """
    pictures: Mapping[str, Picture] = draw_figures(material)
    folder = material.folder / REPORT_FOLDER
    page = render_page(material, pictures)
    try:
        folder.mkdir(exist_ok=True)
        for name, picture in pictures.items():
            (folder / f"{name}.png").write_bytes(picture.png)
        (folder / PAGE).write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ReportError(f"{folder}: can't be written: {error.strerror}; make room or give another --report") from None
    return folder / PAGE
