"""The report's page: what it says, and the template that says it."""

import base64
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined

from qmljob import __version__
from qmljob.local.record import AttemptRecord, ReplicaRecord, RunRecord
from qmljob.local.summary import ended_with
from qmljob.local.threads import threads_of
from qmljob.report.figures import Picture
from qmljob.report.material import Material
from qmljob_api.description import ArtifactDescription
from qmljob_api.reasons import Reason

TEMPLATE = "report.html.j2"
Rows = list[tuple[str, str]]


def render_page(material: Material, pictures: Mapping[str, Picture]) -> str:
    """Returns the page: one HTML document with everything in it. Every text in it is escaped by the template."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files(__package__).joinpath(TEMPLATE).read_text("utf-8"))
    record, description = material.record, material.description
    return template.render(
        record=record,
        subtitle=_subtitle(record, description),
        figures_of_merit=_headline(record),
        notes=material.notes,
        pictures={name: {"source": _inline("png", one.png), "words": one.words} for name, one in pictures.items()},
        circuits=_circuits(description),
        legend=_legend(description),
        attempts=[_attempt(attempt, material.tails) for attempt in record.attempts],
        settings=_settings(record, description),
        flags=flags_of(record.command),
        command=shlex.join(record.command),
        versions=sorted({**(description.run.versions if description else {}), "qmljob": __version__}.items()),
        places=_places(material),
        repeat=_repeat(record),
    )


def flags_of(command: Sequence[str]) -> Rows:
    """Returns the flags of a command line with their values; a flag without one has an empty value."""
    rows: Rows = []
    for word in command:
        name, _, value = word.partition("=")
        if word.startswith("--"):
            rows.append((name, value))
        elif rows and not rows[-1][1]:
            rows[-1] = (rows[-1][0], word)
    return rows


def _subtitle(record: RunRecord, description: ArtifactDescription | None) -> str:
    count = len(record.replicas)
    parts = [f"{count} replica{'s' if count != 1 else ''}"]
    if description is not None:
        model = description.model
        parts = [model.workload, f"{model.qubits} qubits", f"{model.parameters} parameters", *parts]
    if record.progress:
        parts.append(f"epoch {record.progress[-1].epoch} of {record.progress[-1].epochs}")
    if record.ended_at is not None:
        parts.append(f"{(record.ended_at - record.started_at).total_seconds():.1f} s")
    return " · ".join([*parts, f"started {record.started_at:%Y-%m-%d %H:%M:%S} UTC"])


def _headline(record: RunRecord) -> list[tuple[str, str, str]]:
    """Returns the figures of merit: what, how much, on what."""
    rows: list[tuple[str, str, str]] = []
    if record.progress:
        last = record.progress[-1]
        rows += [
            ("Training loss", f"{last.loss:.4f}", f"sign accuracy {last.sign_accuracy:.1%}"),
            ("Validation loss", f"{last.val_loss:.4f}", f"sign accuracy {last.val_sign_accuracy:.1%}"),
        ]
    result = record.inference
    if result is not None:
        rows.append(("Inference MSE", f"{result.mse:.4f}", f"the same {result.examples} examples, weights reloaded"))
        if result.fresh_mse is not None:
            accuracy = "" if result.fresh_sign_accuracy is None else f", sign accuracy {result.fresh_sign_accuracy:.1%}"
            rows.append(("MSE, fresh data", f"{result.fresh_mse:.4f}", f"{result.fresh_examples} examples{accuracy}"))
    charged = sum(attempt.charged for attempt in record.attempts)
    rows.append(("Restarts", str(max(len(record.attempts) - 1, 0)), f"{charged} charged"))
    return rows


def _circuits(description: ArtifactDescription | None) -> list[dict[str, Any]]:
    return [
        {
            "title": circuit.title,
            "size": f"{circuit.qubits} qubits, {circuit.gates} gates in {circuit.moments} moments",
            # As an image an SVG can neither run scripts nor load anything, whoever drew it.
            "source": None if circuit.svg is None else _inline("svg+xml", circuit.svg.encode()),
            "text": circuit.text,
        }
        for circuit in (description.circuits if description else ())
    ]


def _legend(description: ArtifactDescription | None) -> str:
    """Says which symbols the short names in the drawings stand for, by the first and the last of each kind."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for drawn, name in description.drawn_symbols.items() if description else ():
        kinds.setdefault(drawn.rstrip("0123456789"), []).append((drawn, name))
    ends = [(kind[0], kind[-1]) for kind in kinds.values()]
    return ", ".join(f"{first[0]} … {last[0]} stand for the symbols {first[1]} … {last[1]}" for first, last in ends)


def _attempt(attempt: AttemptRecord, tails: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    known = {reason.value: reason.sentence for reason in Reason}
    at_fault = [end for end in attempt.ends if end.replica == attempt.cause]
    return {
        "number": attempt.attempt,
        "started": f"{attempt.started_at:%H:%M:%S}",
        "seconds": f"{(attempt.ended_at - attempt.started_at).total_seconds():.1f}",
        "cause": f"{attempt.cause} {ended_with(at_fault[0].exit_code)}" if at_fault else attempt.cause or "",
        "reason": attempt.reason,
        "sentence": known.get(attempt.reason, ""),
        "charged": "" if not attempt.reason else "yes" if attempt.charged else "no",
        "ends": [_end(end) for end in sorted(attempt.ends, key=lambda end: end.replica)],
        "tails": [(end.replica, tails[end.log]) for end in at_fault if tails.get(end.log)],
    }


def _end(end: ReplicaRecord) -> dict[str, str]:
    how = "stopped, since the attempt was over" if end.stopped else ended_with(end.exit_code)
    return {"replica": end.replica, "how": how, "link": "../" + quote(end.log), "log": end.log}


def _settings(record: RunRecord, description: ArtifactDescription | None) -> Rows:
    threads = threads_of(record.command)
    if description is None:
        return [("threads", str(threads))] if threads else []
    model, run = description.model, description.run
    return [
        ("workload", model.workload),
        ("engine", run.engine),
        ("qubits", str(model.qubits)),
        ("parameters", f"{model.parameters}, of which {len(model.symbols)} are symbols of the ansatz"),
        ("workers", str(run.workers)),
        ("threads of each worker", str(run.threads)),
        ("global batch", f"{run.global_batch_size} examples"),
        ("examples", f"{run.examples}, of which {len(description.readouts.labels)} are the test split"),
        ("epochs", str(run.epochs)),
        ("learning rate", f"{run.learning_rate:g}"),
        ("seed", str(run.seed)),
    ]


def _places(material: Material) -> Rows:
    record = material.record
    rows = [("artifact", record.artifact or "none"), ("artifact, as a file", record.artifact_path or "")]
    rows += [("store", record.store), ("manifest", record.manifest), ("run folder", str(material.folder.absolute()))]
    rows += [
        ("logs", str(material.folder.absolute() / "logs")),
        ("job", f"{record.namespace}/{record.job}, uid {record.uid}"),
    ]
    return [(name, value) for name, value in rows if value]


def _repeat(record: RunRecord) -> list[tuple[str, str]]:
    workers = sum(replica.startswith(f"{record.job}-worker-") for replica in record.replicas)
    words = ["qmljob", "run", record.manifest, "--namespace", record.namespace]
    words += ["--replicas", str(workers)] if workers else []
    rows = [("The same run, from the start", shlex.join(words))]
    if record.artifact_path:
        location = (
            Path(record.artifact_path).as_uri() if Path(record.artifact_path).is_absolute() else record.artifact_path
        )
        rows.append(("Inference alone", shlex.join(["python", "-m", "qmljob_inference", "--artifact", location])))
        describe = ["python", "-m", "qmljob_training", "describe", "--artifact", location]
        rows.append(("Circuits and answers", shlex.join(describe)))
    return rows


def _inline(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
