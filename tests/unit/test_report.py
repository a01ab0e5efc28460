"""The report of a run: what it shows, that it stands alone, and that it believes nothing it is given."""

import math
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmljob.local.record import AttemptRecord, Phase, ReplicaRecord, RunRecord, write_record
from qmljob.report import ReportError, write_report
from qmljob.report.figures import Picture, draw_figures
from qmljob.report.losses import restarts_of
from qmljob.report.material import Material, tails_of, timings_of
from qmljob.report.page import flags_of, render_page
from qmljob.report.write import write_files
from qmljob_api.artifact import ModelDescription, RunDescription
from qmljob_api.description import ArtifactDescription, CircuitDrawing, Predictions, Readouts
from qmljob_api.progress import InferenceResult, Progress, to_line

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WORKERS = ("qcnn-worker-0", "qcnn-worker-1")
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><rect width="40" height="40" /></svg>'
PNG = b"\x89PNG\r\n\x1a\n"
HOSTILE = """</title><script>alert("1")</script><img src=x onerror='alert(2)'>&$\\frac{"""
VOID = {"meta", "img", "br"}


def line(epoch: int, *, epochs: int = 4, attempt: int = 0, index: int = 0, **changes: float) -> Progress:
    values: dict[str, float] = {"loss": 1 / epoch, "val_loss": 1.2 / epoch, "seconds": 0.2, "validation_seconds": 0.1}
    return Progress(
        role="worker",
        index=index,
        attempt=attempt,
        epoch=epoch,
        epochs=epochs,
        step=2 * epoch,
        sign_accuracy=0.75,
        val_sign_accuracy=0.5,
        learning_rate=0.02,
        examples_per_second=100,
        **(values | changes),
    )


def attempt(number: int, cause: str | None = None, code: int = 0, reason: str = "") -> AttemptRecord:
    began = START + timedelta(minutes=number)
    ends = tuple(
        ReplicaRecord(
            replica=worker,
            exit_code=code if worker == cause else 69 if cause else 0,
            finished_at=began + timedelta(seconds=5),
            stopped=False,
            log=f"logs/{worker}-attempt{number}.log",
        )
        for worker in WORKERS
    )
    return AttemptRecord(
        attempt=number,
        restarts=number,
        started_at=began,
        ended_at=began + timedelta(seconds=6),
        ends=ends,
        cause=cause,
        reason=reason,
        charged=cause is not None,
    )


def run_record(**changes: object) -> RunRecord:
    epochs = tuple(line(epoch) for epoch in range(1, 5))
    whole = RunRecord(
        phase=Phase.SUCCEEDED,
        job="qcnn",
        namespace="default",
        uid="8a",
        manifest="qcnn.yaml",
        store="/store",
        command=("python", "-m", "qmljob_training", "--epochs=4", "--threads", "2"),
        replicas=WORKERS,
        chief=WORKERS[0],
        started_at=START,
        ended_at=START + timedelta(seconds=90),
        exit_code=0,
        attempts=(attempt(0),),
        progress=epochs,
        replica_progress=dict.fromkeys(WORKERS, epochs),
        inference=InferenceResult(
            artifact="gs://b/w.h5", mse=0.3, sign_accuracy=0.5, examples=4, fresh_mse=0.4, fresh_examples=9
        ),
        artifact="gs://b/w.h5",
        artifact_path="/store/b/w.h5",
    )
    return whole.model_copy(update=changes)


def description(*, readouts: int = 2, circuits: Sequence[CircuitDrawing] | None = None) -> ArtifactDescription:
    drawn = CircuitDrawing(title="Ansatz", svg=SVG, text="0───X", qubits=1, moments=1, gates=1)
    before = tuple(tuple(0.1 * row for _ in range(readouts)) for row in range(4))
    return ArtifactDescription(
        artifact="gs://b/w.h5",
        model=ModelDescription(workload="qcnn", qubits=3, symbols=("q0",), parameters=30),
        run=RunDescription(
            seed=0,
            examples=14,
            epochs=4,
            workers=2,
            global_batch_size=8,
            learning_rate=0.02,
            engine="tfq",
            threads=1,
            versions={"numpy": "2.0.2"},
        ),
        metrics={"val_loss": 0.3},
        drawn_symbols={"θ0": "q000", "θ1": "q001", "x0": "angle000"},
        circuits=(drawn,) if circuits is None else tuple(circuits),
        readouts=Readouts(labels=(1, -1, 1, -1), before=before, after=before),
        predictions=Predictions(before=(0.1, 0.1, -0.1, 0.2), after=(1, -1, 1, -1)),
    )


def material(folder: Path, record: RunRecord | None = None, about: ArtifactDescription | None = None) -> Material:
    record = record or run_record()
    return Material(folder, record, about, timings_of(folder, record), tails_of(folder, record), ())


class Page(HTMLParser):
    """What a browser would make of a page: elements, what they load, where they lead, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.attributes if key == name]


def size_of(png: bytes) -> tuple[int, int]:
    """Returns width and height of a PNG file, from its header."""
    assert png[:8] == PNG
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_a_whole_report_is_one_page_with_its_figures_beside_it(tmp_path: Path) -> None:
    path = write_files(material(tmp_path, about=description()))
    assert path == tmp_path / "report" / "report.html"
    figures = {file.name: size_of(file.read_bytes()) for file in path.parent.glob("*.png")}
    assert set(figures) == {"loss.png", "readouts.png", "predictions.png", "timing.png"}
    assert all(width >= 1000 and height >= 300 for width, height in figures.values())
    page = Page(path.read_text("utf-8"))
    assert page.open == []
    assert page.tags.count("img") == len(figures) + 1
    assert all(page.values("alt"))
    for words in (
        "0.2500",
        "0.3000",
        "0.4000",
        "sign accuracy 75.0%",
        "θ0 … θ1",
        "q001",
        "--threads",
        "2.0.2",
        "/store/b/w.h5",
    ):
        assert words in page.text


def test_the_page_stands_alone(tmp_path: Path) -> None:
    text = write_files(material(tmp_path, about=description())).read_text("utf-8")
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert all(
        source.startswith(("data:image/png;base64,", "data:image/svg+xml;base64,")) for source in page.values("src")
    )
    assert all(link.startswith("../logs/") for link in page.values("href"))
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in {"srcset", "background"}]
    assert "url(" not in text
    assert "@import" not in text
    assert len(text) < 3_000_000


def test_names_and_log_lines_are_text_and_nothing_else(tmp_path: Path) -> None:
    names = (HOSTILE, WORKERS[1])
    ends = (
        ReplicaRecord(replica=HOSTILE, exit_code=1, finished_at=START, stopped=False, log="logs/a.log"),
        ReplicaRecord(replica=WORKERS[1], exit_code=0, finished_at=START, stopped=True, log='javascript:x"><b>'),
    )
    bad = attempt(0).model_copy(update={"ends": ends, "cause": HOSTILE, "reason": HOSTILE})
    record = run_record(
        job=HOSTILE,
        replicas=names,
        chief=HOSTILE,
        attempts=(bad, attempt(1)),
        replica_progress={name: (line(1),) for name in names},
        command=("python", f"--{HOSTILE}", HOSTILE),
    )
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text(f"\x1b[31m{HOSTILE}\x1b[0m\n", "utf-8")
    drawn = CircuitDrawing(title=HOSTILE, svg=f"<svg>{HOSTILE}", text=HOSTILE, qubits=1, moments=1, gates=1)
    page = Page(write_files(material(tmp_path, record, description(circuits=[drawn]))).read_text("utf-8"))
    assert "script" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count(HOSTILE) >= 6
    assert "\x1b" not in page.text
    assert all(link.startswith("../") for link in page.values("href"))


@given(name=st.text(min_size=1, max_size=60))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_no_name_changes_what_the_page_is_made_of(name: str) -> None:
    picture = {"loss": Picture(PNG, name)}
    pages = []
    for word in (name, "plain"):
        record = run_record(
            job=word, manifest=word, store=word, artifact=word, artifact_path=None, attempts=(attempt(0, reason=word),)
        )
        around = Material(Path(), record, None, {}, {record.attempts[0].ends[0].log: (word,)}, (word,))
        pages.append(Page(render_page(around, picture)))
    assert pages[0].tags == pages[1].tags
    assert [name for name, _ in pages[0].attributes] == [name for name, _ in pages[1].attributes]


TOO_LARGE = CircuitDrawing(title="Ansatz", svg=None, text="0───X", qubits=40, moments=99, gates=9999)
EVERYTHING = {"loss", "readouts", "predictions", "timing"}
PARTIAL = {
    "nothing but a start": (
        {
            "phase": Phase.RUNNING,
            "ended_at": None,
            "attempts": (),
            "progress": (),
            "replica_progress": {},
            "inference": None,
        },
        None,
        set(),
    ),
    "a failure before the first epoch": (
        {
            "phase": Phase.FAILED,
            "attempts": (attempt(0, WORKERS[1], 64, "InvalidConfiguration"),),
            "progress": (),
            "replica_progress": {},
            "inference": None,
        },
        None,
        set(),
    ),
    "no inference": ({"inference": None}, description(), EVERYTHING),
    "no description": ({}, None, {"loss", "timing"}),
    "one epoch": ({"progress": (line(1, epochs=1),)}, description(), EVERYTHING),
    "one worker": ({"replicas": WORKERS[:1]}, description(), EVERYTHING),
    "no readouts": ({}, description(readouts=0), EVERYTHING - {"readouts"}),
    "a single readout": ({}, description(readouts=1), EVERYTHING),
    "more readouts than are shown": ({}, description(readouts=30), EVERYTHING),
    "no circuits": ({}, description(circuits=()), EVERYTHING),
    "a circuit that is too large to draw": ({}, description(circuits=[TOO_LARGE]), EVERYTHING),
    "a loss that is no number": (
        {"progress": (line(1, loss=math.nan, val_loss=math.inf), line(2, loss=math.inf, val_loss=math.nan))},
        description(),
        EVERYTHING,
    ),
    "no time measured": (
        {"replica_progress": {WORKERS[0]: (line(1, seconds=0, validation_seconds=0),)}},
        description(),
        EVERYTHING,
    ),
    "a program that is not ours": (
        {"command": ("python", "train.py"), "artifact": None, "progress": ()},
        None,
        {"timing"},
    ),
    "twelve restarts": (
        {"attempts": (*(attempt(k, WORKERS[k % 2], 137, "ReplicaFailed") for k in range(12)), attempt(12))},
        description(),
        EVERYTHING,
    ),
}


@pytest.mark.parametrize(("changes", "about", "figures"), PARTIAL.values(), ids=PARTIAL)
def test_a_report_shows_what_there_is(
    tmp_path: Path, changes: dict[str, object], about: ArtifactDescription | None, figures: set[str]
) -> None:
    path = write_files(material(tmp_path, run_record(**changes), about))
    assert {file.stem for file in path.parent.glob("*.png")} == figures
    assert all(size_of(file.read_bytes()) > (0, 0) for file in path.parent.glob("*.png"))
    assert Page(path.read_text("utf-8")).open == []


def test_twenty_workers_fit_a_figure(tmp_path: Path) -> None:
    names = tuple(f"qcnn-worker-{index}" for index in range(20))
    record = run_record(replicas=names, replica_progress={name: (line(1), line(2)) for name in names})
    _, height = size_of(draw_figures(material(tmp_path, record))["timing"].png)
    assert height < 2500


def test_a_run_without_an_artifact_says_why_there_are_no_circuits(tmp_path: Path) -> None:
    write_record(tmp_path, run_record(artifact=None))
    page = Page(write_report(tmp_path).read_text("utf-8"))
    assert "No circuits and readouts: the run left no artifact." in page.text


@pytest.mark.parametrize("content", [None, "", "{}", "[1]"], ids=["missing", "empty", "an object", "a list"])
def test_a_folder_without_a_record_is_one_line(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(ReportError, match=r"^[^\n]*run\.json: [^\n]*$"):
        write_report(tmp_path)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("in the way")
    with pytest.raises(ReportError, match=r"^[^\n]*report: can't be written: [^\n]*; [^\n]*$"):
        write_files(material(tmp_path))


def test_a_restart_stands_between_the_epochs_of_two_attempts() -> None:
    progress = (line(1), line(2), line(3, attempt=2), line(4, attempt=2))
    attempts = (attempt(0, WORKERS[1], 137, "ReplicaFailed"), attempt(1, WORKERS[0], 1, "ReplicaFailed"), attempt(2))
    first, second = restarts_of(run_record(progress=progress, attempts=attempts))
    assert (first.attempt, first.after, second.attempt, second.after) == (1, 2, 2, 2)
    assert first.cause == "qcnn-worker-1 exited with 137: killed by SIGKILL"


def test_times_that_the_record_lacks_come_from_the_logs_and_count_once(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    logs = {
        0: [line(1, index=1), line(2, index=1, seconds=9)],
        1: [line(2, index=1, attempt=1), line(3, index=1, attempt=1)],
    }
    for number, lines in logs.items():
        text = "".join(to_line(one) + "\n" for one in lines)
        (tmp_path / "logs" / f"qcnn-worker-1-attempt{number}.log").write_text("a word\n" + text)
    attempts = (attempt(0, WORKERS[0], 1, "ReplicaFailed"), attempt(1))
    record = run_record(attempts=attempts, replica_progress={})
    timings = timings_of(tmp_path, record)
    assert [one.epoch for one in timings[WORKERS[1]]] == [1, 2, 3]
    assert [one.seconds for one in timings[WORKERS[1]]] == [0.2, 0.2, 0.2]
    assert timings[WORKERS[0]] == record.progress


def test_a_record_shows_no_file_outside_the_run_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret\n")
    end = ReplicaRecord(replica=WORKERS[0], exit_code=1, finished_at=START, stopped=False, log="../secret")
    record = run_record(attempts=(attempt(0).model_copy(update={"ends": (end,), "cause": WORKERS[0]}),))
    assert tails_of(folder, record) == {"../secret": ()}


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (("python", "-m", "x"), []),
        (("python", "--a=1", "--b", "2"), [("--a", "1"), ("--b", "2")]),
        (("python", "--a", "--b=", "--c=x=y"), [("--a", ""), ("--b", ""), ("--c", "x=y")]),
    ],
    ids=["none", "both ways of giving a value", "no value, and one with an equals sign"],
)
def test_flags_of_a_command(command: tuple[str, ...], flags: list[tuple[str, str]]) -> None:
    assert flags_of(command) == flags
