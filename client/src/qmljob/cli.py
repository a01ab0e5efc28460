"""The `qmljob` command: reads flags, calls what does the work, and turns what that raises into one line each."""

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from qmljob import __version__
from qmljob.explain import NoExplanationError
from qmljob.explain import explain as explain_job
from qmljob.local import run as local
from qmljob.local.identity import IdentityError, StoreInUseError
from qmljob.local.output import Output
from qmljob.local.plan import local_problems
from qmljob.local.ports import NoFreePortError
from qmljob.local.summary import shown
from qmljob.manifest import ManifestError, load_job
from qmljob_api.exitcodes import ExitCode
from qmljob_api.explanation_text import as_text
from qmljob_api.types import QMLJob

app = typer.Typer(
    name="qmljob",
    help="Train quantum machine-learning models on many machines, or on this one, from one YAML file.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_FILE = Annotated[Path, typer.Argument(metavar="FILE", help="The manifest: YAML with one QMLJob.", show_default=False)]


class InvalidInputError(Exception):
    """What the user gave can't be used; one line for each reason."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"qmljob {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


@app.command()
def validate(file: _FILE) -> None:
    """Check a manifest: print every error with its field and what would be right."""
    job = load_job(file)
    sys.stdout.write(f"{file}: valid: {_summary(job)}\n")


@app.command()
def explain(
    file: _FILE,
    *,
    replicas: Annotated[
        int | None, typer.Option("--replicas", metavar="N", help="Number of workers, in the place of the manifest's.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Tell what training would compute, on which engine and why, and how long it would take; trains nothing."""
    job = load_job(file, replicas=replicas)
    try:
        found = explain_job(job)
    except NoExplanationError as error:
        _end(f"{file}: {error}", error.code)
    sys.stdout.write((found.model_dump_json() if json else as_text(found)) + "\n")


@app.command()
def run(
    file: _FILE,
    *,
    replicas: Annotated[
        int | None, typer.Option("--replicas", metavar="N", help="Number of workers, in the place of the manifest's.")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store", metavar="DIR", help="Folder for checkpoints and artifacts: an interrupted run resumes."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Folder for report, record and logs; default: runs/<job>/<time>."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--quiet", help="Show the replicas' lines and progress, or the summary only.")
    ] = True,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no figures; the record and logs stay.")] = False,
    no_inference: Annotated[bool, typer.Option("--no-inference", help="End after training.")] = False,
    namespace: Annotated[
        str | None, typer.Option("--namespace", metavar="NAME", help="Namespace, in the place of the manifest's.")
    ] = None,
) -> None:
    """Train on this machine: processes in the place of pods, a folder in the place of a bucket.

    To go on with a run that was interrupted, give its --store again.
    """
    job = load_job(file, replicas=replicas, namespace=namespace)
    if job.spec.suspend:
        sys.stderr.write(f"{file}: spec.suspend is true, so nothing starts; set it to false to run the job\n")
        return
    problems = local_problems(job)
    if problems:
        raise InvalidInputError(*(f"{file}: {problem}" for problem in problems))
    folder = (report or local.default_run_folder(job, Path.cwd())).absolute()
    folders = local.Folders(run=folder, store=(store or folder / "store").absolute())
    output = Output(sys.stdout, sys.stderr, quiet=not follow)
    try:
        resume = _resume_command(file, folders.store, replicas, namespace)
        code = local.run_job(
            job, local.Options(file, folders, resume, inference=not no_inference, report=not no_report), output
        )
    except (IdentityError, StoreInUseError, local.RunFolderError) as error:
        raise InvalidInputError(str(error)) from None
    except NoFreePortError as error:
        _end(f"error: {error}", local.FAILURE)
    except BrokenPipeError:
        # The reader of our output went away; without this, Python would fail once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    raise typer.Exit(code)


def main() -> None:
    """The command's entry point: its own errors are lines on standard error, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe that isn't UTF-8 must not end a run because of a letter in a replica's line.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = app(prog_name="qmljob", standalone_mode=False)
    except (ManifestError, InvalidInputError) as error:
        _end("\n".join(error.problems), ExitCode.INVALID_CONFIGURATION)
    except typer.TyperException as error:
        _end(f"error: {error.format_message().rstrip('.')}; see qmljob --help", ExitCode.INVALID_CONFIGURATION)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        _end(f"error: {error.filename or 'this machine'}: {error.strerror}", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _end(text: str, code: int) -> NoReturn:
    sys.stderr.write(text + "\n")
    sys.exit(code)


def _summary(job: QMLJob) -> str:
    roles = ", ".join(f"{spec.replicas} x {role.value}" for role, spec in job.spec.replica_specs.present())
    inference = "" if job.spec.inference is None else ", inference after it"
    return f"job {job.metadata.name} in namespace {job.metadata.namespace} with {roles}{inference}"


def _resume_command(file: Path, store: Path, replicas: int | None, namespace: str | None) -> str:
    words = ["qmljob", "run", str(file), "--store", shown(store)]
    words += [] if replicas is None else ["--replicas", str(replicas)]
    words += [] if namespace is None else ["--namespace", namespace]
    return shlex.join(words)
