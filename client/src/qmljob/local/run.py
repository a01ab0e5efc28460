"""`qmljob run`: the job on this machine, from the manifest to the summary."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from qmljob.local import summary
from qmljob.local.gang import Gang
from qmljob.local.identity import Identity, open_identity
from qmljob.local.noise import is_noise
from qmljob.local.output import Output
from qmljob.local.plan import ProcessPlan, inherited_environment, plan_process
from qmljob.local.process import Ended, Event, Inbox, Interrupted
from qmljob.local.record import Phase, ProgressBook, RunRecord, utc_now, write_record
from qmljob.local.supervisor import Failed, Stopped, Succeeded, Supervisor, Surroundings, Timing
from qmljob.local.threads import advice, available_cores, threads_of
from qmljob_api.exitcodes import ExitCode
from qmljob_api.progress import InferenceResult, parse_progress, parse_result
from qmljob_api.types import QMLJob
from qmljob_operator.policy import FailJob
from qmljob_operator.resources.inference import build_inference_job
from qmljob_operator.topology import Replica, build_topology

DEFAULT_PEER_TIMEOUT_SECONDS = 120
"""How long a worker waits for its peers. They start together here; the slowest part is importing TensorFlow."""

DEFAULT_THREADS = 1
"""Of our training program, where the manifest doesn't say."""

FAILURE = 1
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunFolderError(Exception):
    """The run's folder can't be made."""


@dataclass(frozen=True)
class Folders:
    """Where a run keeps its things: record and logs in `run`, what the job stores in `store`."""

    run: Path
    store: Path


@dataclass(frozen=True)
class Options:
    """What the command line asks for, beside the job."""

    manifest: Path
    folders: Folders
    resume: str
    """The command line that goes on with this run after an interruption."""
    inference: bool = True
    report: bool = True
    environment: Mapping[str, str] | None = None
    timing: Timing = field(default_factory=Timing)


def default_run_folder(job: QMLJob, base: Path) -> Path:
    """Returns a folder for a new run of the job: `runs/<job>/<UTC time>` under `base`."""
    return base / "runs" / job.metadata.name / utc_now().strftime("%Y%m%dT%H%M%S.%fZ")


def run_job(job: QMLJob, options: Options, output: Output) -> int:
    """Runs the job to its end and returns the exit code of the command.

    Raises:
        StoreInUseError, IdentityError, RunFolderError: the store or the run's folder can't be used.
        NoFreePortError, OSError: this machine can't start the processes or write the record.
    """
    folders = options.folders
    with open_identity(folders.store, job.metadata.namespace, job.metadata.name) as identity:
        _make(folders.run)
        metadata = job.metadata.model_copy(update={"uid": identity.uid})
        run = _Run(job.model_copy(update={"metadata": metadata}), options, identity, output)
        try:
            with _interrupts(run.inbox):
                return run.to_the_end()
        finally:
            run.gang.kill()
            output.close()


def _make(folder: Path) -> None:
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{folder}: can't be made: {error.strerror}; choose another by --report") from None


class _Run:
    """One run: what its steps share."""

    def __init__(self, job: QMLJob, options: Options, identity: Identity, output: Output) -> None:
        self.job = job
        self.options = options
        self.identity = identity
        self.output = output
        self.inbox: Inbox = SimpleQueue[Event]()
        self.gang = Gang(self.inbox, self._show)
        self.book = ProgressBook()
        self.chief = build_topology(job).chief
        self.result: InferenceResult | None = None
        shell = os.environ if options.environment is None else options.environment
        self.surroundings = Surroundings(
            inherited=inherited_environment(shell),
            workdir=Path.cwd(),
            run_folder=options.folders.run,
            store=options.folders.store,
            peer_timeout_seconds=job.spec.run_policy.startup_deadline_seconds or DEFAULT_PEER_TIMEOUT_SECONDS,
        )
        self.supervisor = Supervisor(
            job,
            self.gang,
            self.surroundings,
            first_attempt=identity.next_attempt,
            starting=identity.starting,
            status=self._status,
            timing=options.timing,
        )
        plans = self.supervisor.plans(identity.next_attempt, 0)
        self.record = self._first_record(plans)
        self._give_advice(plans)

    def to_the_end(self) -> int:
        """Trains, then runs inference; returns the exit code."""
        self._save()
        outcome = self.supervisor.run()
        match outcome:
            case Succeeded():
                return self._after_success(outcome)
            case Failed():
                return self._after_failure(outcome.decision)
            case Stopped():
                code = 128 + outcome.signal
                self._save(phase=Phase.INTERRUPTED, exit_code=code)
                self.output.advice(f"stopped; resume with: {self.options.resume}")
                return code

    def _after_success(self, outcome: Succeeded) -> int:
        end = self._infer() if self.options.inference and self.job.spec.inference is not None else None
        code = _inference_exit(end)
        if code == ExitCode.SUCCESS:
            self.identity.finished(outcome.attempt)
        location = self.result.artifact if self.result else summary.artifact_location(self.record.command)
        path = None if location is None else summary.artifact_path(location, self.options.folders.store)
        self._save(
            phase=Phase.SUCCEEDED,
            exit_code=code,
            inference=self.result,
            inference_exit_code=end.exit_code if isinstance(end, Ended) else None,
            artifact=location,
            artifact_path=None if path is None else str(path),
        )
        folder = self.options.folders.run
        if isinstance(end, Interrupted):
            self.output.advice(f"stopped during inference; training is done; resume with: {self.options.resume}")
        elif end is not None and code != ExitCode.SUCCESS:
            self.output.advice(
                summary.inference_failure(end.exit_code, end.process.tail, folder, command=self.options.resume)
            )
        self.output.summary(summary.success(self.record, self._report()))
        return code

    def _after_failure(self, decision: FailJob) -> int:
        cause = decision.cause
        invalid = cause is not None and cause.exit_code == ExitCode.INVALID_CONFIGURATION
        code = ExitCode.INVALID_CONFIGURATION.value if invalid else FAILURE
        self._save(phase=Phase.FAILED, exit_code=code)
        tail = [] if cause is None else cause.message.splitlines()
        self.output.advice(summary.failure(decision, tail, self.options.folders.run, command=self.options.resume))
        if self.record.progress and (path := self._report()) is not None:
            self.output.advice(f"report of what was trained: {summary.shown(path)}")
        return code

    def _infer(self) -> Ended | Interrupted:
        name = build_inference_job(self.job)["metadata"]["name"]
        template = build_inference_job(self.job)["spec"]["template"]
        plan = plan_process(
            template, name=name, extra_env=self.surroundings.of(name), workdir=self.surroundings.workdir
        )
        self._status("inference starts")
        self.gang.start(plan, self.surroundings.log(name))
        event = self.gang.wait(None)
        if not isinstance(event, Ended | Interrupted):
            raise RuntimeError("a wait without limit came back without an event: please report this")
        self.gang.stop(self.options.timing.restart_grace)
        return event

    def _report(self) -> Path | None:
        if not self.options.report:
            return None
        # Plotting is slow to import.
        from qmljob import report

        self._status("writing the report")
        try:
            return report.write_report(self.options.folders.run)
        except report.ReportError as error:
            self.output.advice(f"hint: no report was written: {error}")
            return None

    def _show(self, name: str, text: str) -> None:
        short = name.removeprefix(f"{self.job.metadata.name}-")
        progress = parse_progress(text)
        result = parse_result(text)
        if progress is not None:
            self.book.add(name, progress)
            if name == self.chief.name:
                self.output.progress(short, progress)
        elif result is not None:
            self.result = result
        elif not is_noise(text):
            self.output.line(short, text)

    def _status(self, text: str) -> None:
        self._save()
        self.output.status(text)

    def _save(self, **changes: object) -> None:
        """Brings the record up to date and writes it; with `phase` it is the last time."""
        ended = {"ended_at": utc_now()} if "phase" in changes else {}
        news = {
            "attempts": tuple(self.supervisor.attempts),
            "progress": self.book.of(self.chief.name),
            "replica_progress": self.book.all(),
        }
        self.record = self.record.model_copy(update={**news, **ended, **changes})
        write_record(self.options.folders.run, self.record)

    def _first_record(self, plans: Mapping[Replica, ProcessPlan]) -> RunRecord:
        return RunRecord(
            phase=Phase.RUNNING,
            job=self.job.metadata.name,
            namespace=self.job.metadata.namespace,
            uid=self.identity.uid,
            manifest=str(self.options.manifest),
            store=str(self.options.folders.store),
            command=plans[self.chief].argv,
            replicas=tuple(replica.name for replica in plans),
            chief=self.chief.name,
            started_at=utc_now(),
        )

    def _give_advice(self, plans: Mapping[Replica, ProcessPlan]) -> None:
        ours = "qmljob_training" in self.record.command
        threads = threads_of(self.record.command) or (DEFAULT_THREADS if ours else None)
        better = None if threads is None else advice(len(plans), threads, available_cores())
        if better is not None:
            self.output.status(f"hint: {better}")
        if self.identity.resumed:
            self.output.status(
                f"resuming {self.job.metadata.name} from its checkpoints in {self.options.folders.store}, "
                f"attempt {self.identity.next_attempt}"
            )


def _inference_exit(end: Ended | Interrupted | None) -> int:
    if end is None:
        return ExitCode.SUCCESS.value
    if isinstance(end, Interrupted):
        return 128 + end.signal
    if end.exit_code in {ExitCode.SUCCESS, ExitCode.INVALID_CONFIGURATION}:
        return end.exit_code
    return FAILURE


@contextmanager
def _interrupts(inbox: Inbox) -> Iterator[None]:
    """Turns Ctrl-C, and what ends a session, into events. The queue takes them from a handler: its put is reentrant."""

    def handle(number: int, _: FrameType | None) -> None:
        inbox.put(Interrupted(number))

    # What is ignored stays ignored: that is how nohup asks a program to outlive its terminal.
    asked = [number for number in _STOPS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in asked}
    # Where a parent ignores the end of children, and we inherit it, the kernel would drop the exit codes of ours.
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
