"""The sentences at the end of a run: what came out, or what failed and what to do next. No effects."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from qmljob.local.record import RunRecord
from qmljob_api.exitcodes import ExitCode, describe
from qmljob_api.reasons import Reason
from qmljob_operator.policy import FailJob

_NEXT_STEPS: dict[int, str] = {
    ExitCode.INVALID_CONFIGURATION: "correct what the last lines name, in the manifest, and run it again",
    ExitCode.BAD_ARTIFACT: "the store holds an artifact or checkpoint that can't be used; choose another --store",
    ExitCode.LOST_PEER: "the replicas lost each other; look for the first error in their logs",
    ExitCode.STORE_FAILED: "make room in the store, or repair its access; then run again with the same --store",
}


_ALSO = {
    Reason.BACKOFF_LIMIT_EXCEEDED: "every restart of spec.runPolicy.backoffLimit is used up",
    Reason.FAILURE_RULE: "a rule of spec.failurePolicy fails the job",
    Reason.LOST_PEERS_ONLY: "several attempts in a row ended with lost peers only",
}


def ended_with(code: int) -> str:
    """Returns what a person says of an exit code (`exited with 64: invalid configuration`)."""
    words = describe(code)
    return f"exited with {code}" + ("" if words == f"exit code {code}" else f": {words}")


def success(record: RunRecord, report: Path | None) -> str:
    """Returns the figures of a run whose training succeeded, whatever became of inference."""
    rows: list[tuple[str, str]] = []
    if record.progress:
        last = record.progress[-1]
        rows += [("training loss", f"{last.loss:.4f}"), ("validation loss", f"{last.val_loss:.4f}")]
    if record.inference is not None:
        result = record.inference
        rows.append(
            (
                "inference MSE",
                f"{result.mse:.4f}  ({result.examples} examples, sign accuracy {result.sign_accuracy:.3f})",
            )
        )
        if result.fresh_mse is not None:
            rows.append(("MSE, fresh data", f"{result.fresh_mse:.4f}  ({result.fresh_examples} examples)"))
    rows.append(("restarts", str(max(len(record.attempts) - 1, 0))))
    if record.artifact_path or record.artifact:
        rows.append(("artifact", shown(Path(record.artifact_path)) if record.artifact_path else str(record.artifact)))
    if report is not None:
        rows.append(("report", shown(report)))
    width = max(len(name) for name, _ in rows)
    took = "" if record.ended_at is None else f" in {(record.ended_at - record.started_at).total_seconds():.1f} s"
    failed = record.inference_exit_code not in (None, 0)
    outcome = "training succeeded, inference failed" if failed else "succeeded"
    return "\n".join([f"{record.job}: {outcome}{took}", *(f"  {name:<{width}}  {value}" for name, value in rows)])


def failure(decision: FailJob, tail: Sequence[str], folder: Path, *, command: str) -> str:
    """Returns what failed, its last lines, where the logs are and what to do next.

    `tail` holds the last lines of the replica at fault; `command` resumes the run.
    """
    cause = decision.cause
    logs = f"logs: {shown(folder / 'logs')}"
    if cause is None:
        return f"error: {decision.message}\n{logs}\nhint: raise the limit in spec.runPolicy; to go on: {command}"
    also = _ALSO.get(decision.reason)
    lines = [f"error: {cause.replica.name} {ended_with(cause.exit_code)}" + (f"; {also}" if also else "")]
    if tail:
        lines += [
            f"its last {len(tail)} lines:" if len(tail) > 1 else "its last line:",
            *(f"  {text}" for text in tail),
        ]
    step = _NEXT_STEPS.get(cause.exit_code)
    return "\n".join(
        [*lines, logs, f"hint: {step or f'look at the log; to go on from the last checkpoint: {command}'}"]
    )


def inference_failure(code: int, tail: Sequence[str], folder: Path, *, command: str) -> str:
    """Returns how inference failed, after a training that succeeded; `command` runs it again."""
    lines = [f"error: training succeeded, but inference {ended_with(code)}"]
    lines += [f"  {text}" for text in tail]
    return "\n".join([*lines, f"logs: {shown(folder / 'logs')}", f"hint: to run inference again: {command}"])


def shown(path: Path) -> str:
    """Returns a path as a person would type it here: relative where it lies under the current directory."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def artifact_location(argv: Sequence[str]) -> str | None:
    """Returns the artifact that a training command line names, by `--artifact` or by the tutorial's two flags."""
    flags = _flags(argv)
    if "--artifact" in flags:
        return flags["--artifact"]
    bucket, path = flags.get("--weights-gcs-bucket"), flags.get("--weights-gcs-path")
    return f"gs://{bucket}/{path.lstrip('/')}" if bucket and path else None


def artifact_path(location: str, store: Path) -> Path | None:
    """Returns the file behind a location: a bucket's is under the store's folder."""
    parts = urlsplit(location)
    if parts.scheme == "gs":
        return store / parts.netloc / parts.path.lstrip("/")
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(location) if not parts.scheme else None


def _flags(argv: Sequence[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    for position, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if equals:
            flags[name] = value
        elif position + 1 < len(argv):
            flags[name] = argv[position + 1]
    return flags
