"""Takes a job through its attempts. What follows from a failure is decided by the operator's policy, never here."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from qmljob.local.gang import Gang
from qmljob.local.plan import ProcessPlan, plan_process
from qmljob.local.ports import free_ports
from qmljob.local.process import Ended, Interrupted, Process
from qmljob.local.record import AttemptRecord, ReplicaRecord, utc_now
from qmljob.local.summary import ended_with
from qmljob_api import environment
from qmljob_api.reasons import Reason
from qmljob_api.types import QMLJob
from qmljob_operator.gangstate import GangState, ReplicaEnd
from qmljob_operator.policy import (
    FailJob,
    KeepWaiting,
    RestartGang,
    Succeed,
    decide,
)
from qmljob_operator.resources.pod import build_pod
from qmljob_operator.topology import Replica, build_topology


@dataclass(frozen=True)
class Timing:
    """How long a local run waits for what, in seconds.

    Much shorter than on a cluster: no node can be lost here and nothing is pulled or scheduled, so that the failure at
    the root shows at once and another start costs nobody anything.
    """

    settle: float = 1.0
    backoff_base: float = 1.0
    restart_grace: float = 5.0
    """For survivors of a failure: they may hang in a collective, and have nothing to save that the checkpoint lacks."""
    stop_grace: float = 20.0
    """For a gang that the user stops: it finishes a graph call (5 s or so) and writes a checkpoint."""
    linger: float = 10.0
    """For the other replicas after the chief's success: they are about to end too."""


@dataclass(frozen=True)
class Surroundings:
    """Where processes run: what they take over from the shell, their working directory, the folders of the run."""

    inherited: Mapping[str, str]
    workdir: Path
    run_folder: Path
    store: Path
    peer_timeout_seconds: int

    def of(self, name: str) -> dict[str, str]:
        """Returns the variables of a process beside those of its pod."""
        return {
            **self.inherited,
            environment.STORE_ROOT: str(self.store),
            environment.PEER_TIMEOUT_SECONDS: str(self.peer_timeout_seconds),
            environment.TERMINATION_MESSAGE_PATH: str(self.run_folder / f"{name}.termination"),
        }

    def log(self, name: str, attempt: int | None = None) -> Path:
        """Returns the log of a process."""
        return self.run_folder / "logs" / (name + ("" if attempt is None else f"-attempt{attempt}") + ".log")


@dataclass(frozen=True)
class Succeeded:
    """Training is done."""

    attempt: int


@dataclass(frozen=True)
class Failed:
    """Training has failed: the policy's decision, and the last lines of the replica at fault."""

    decision: FailJob


@dataclass(frozen=True)
class Stopped:
    """The user stopped the run, or the system did, by a signal."""

    signal: int


Outcome = Succeeded | Failed | Stopped
Verdict = Succeed | RestartGang | FailJob | Stopped


class Supervisor:
    """Runs attempts until the job is decided. `attempts` grows by a record for each."""

    def __init__(
        self,
        job: QMLJob,
        gang: Gang,
        surroundings: Surroundings,
        *,
        first_attempt: int,
        starting: Callable[[int], None],
        status: Callable[[str], None],
        timing: Timing,
    ) -> None:
        self._job = job
        self._gang = gang
        self._surroundings = surroundings
        self._first_attempt = first_attempt
        self._starting = starting
        self._status = status
        self._timing = timing
        self._topology = build_topology(job)
        self.attempts: list[AttemptRecord] = []

    def run(self) -> Outcome:
        """Returns how the job ended. Raises OSError or NoFreePortError where the machine can't start a process."""
        now = time.monotonic()
        state = GangState(
            topology=self._topology,
            attempt=self._first_attempt,
            restarts=0,
            ended=(),
            never_started=frozenset(),
            started_at=now,
            job_started_at=now,
        )
        while True:
            verdict = self._attempt(state)
            match verdict:
                case Succeed():
                    return Succeeded(state.attempt)
                case FailJob():
                    return Failed(verdict)
                case Stopped():
                    return verdict
            stopped = self._before_restart(verdict, state)
            if stopped is not None:
                return stopped
            lost = verdict.reason is Reason.LOST_PEERS_ONLY
            state = replace(
                state,
                attempt=state.attempt + 1,
                restarts=state.restarts + verdict.charged,
                ended=(),
                started_at=time.monotonic(),
                lost_peer_attempts=state.lost_peer_attempts + 1 if lost else 0,
            )

    def plans(self, attempt: int, restarts: int) -> dict[Replica, ProcessPlan]:
        """Returns the processes of an attempt, on loopback ports that are free now."""
        named = [port.name for port in self._job.spec.ports]
        each = 1 + len(named)
        numbers = free_ports(each * len(self._topology.replicas))
        own = {
            replica: numbers[each * position : each * (position + 1)]
            for position, replica in enumerate(self._topology.replicas)
        }
        addresses = {replica.name: f"127.0.0.1:{ports[0]}" for replica, ports in own.items()}
        return {
            replica: plan_process(
                build_pod(
                    self._job,
                    self._topology,
                    replica,
                    attempt=attempt,
                    restarts=restarts,
                    addresses=addresses,
                    ports=dict(zip(named, ports[1:], strict=True)),
                ),
                name=replica.name,
                extra_env=self._surroundings.of(replica.name),
                workdir=self._surroundings.workdir,
            )
            for replica, ports in own.items()
        }

    def _attempt(self, state: GangState) -> Verdict:
        started_at = utc_now()
        plans = self.plans(state.attempt, state.restarts)
        self._starting(state.attempt)
        ends: list[tuple[Ended, bool]] = []
        try:
            replicas = {
                self._gang.start(plan, self._surroundings.log(replica.name, state.attempt)): replica
                for replica, plan in plans.items()
            }
            verdict = self._watch(state, replicas, ends)
            if isinstance(verdict, Succeed):
                ends += [(end, False) for end in self._gang.linger(self._timing.linger)]
            grace = self._timing.restart_grace
            if isinstance(verdict, Stopped):
                grace = self._timing.stop_grace
                self._status(f"stopping: up to {grace:.0f} s for a checkpoint; Ctrl-C once more ends it at once")
            ends += [(end, True) for end in self._gang.stop(grace)]
        finally:
            self._gang.kill()
        self._record(state, started_at, ends, verdict)
        if isinstance(verdict, RestartGang) and self._gang.interrupted is not None:
            return Stopped(self._gang.interrupted)
        return verdict

    def _watch(self, state: GangState, replicas: Mapping[Process, Replica], ends: list[tuple[Ended, bool]]) -> Verdict:
        while True:
            now = time.monotonic()
            decision = decide(
                self._job,
                state,
                now=now,
                settle_seconds=self._timing.settle,
                backoff_base=self._timing.backoff_base,
            )
            if not isinstance(decision, KeepWaiting):
                return decision
            event = self._gang.wait(decision.until)
            if isinstance(event, Interrupted):
                return Stopped(event.signal)
            if isinstance(event, Ended):
                ends.append((event, False))
                end = ReplicaEnd(
                    replicas[event.process],
                    event.exit_code,
                    event.finished_at,
                    message="\n".join(event.process.tail),
                )
                state = replace(state, ended=(*state.ended, end))

    def _before_restart(self, verdict: RestartGang, state: GangState) -> Stopped | None:
        """Waits for the next attempt's time; a stop by the user ends the wait."""
        cause = verdict.cause
        limit = self._job.spec.run_policy.backoff_limit
        count = f"restart {state.restarts + 1} of {limit}" if verdict.charged else "not charged"
        self._status(
            f"{cause.replica.name} {ended_with(cause.exit_code)} in attempt {state.attempt}; "
            f"starting again in {verdict.delay_seconds:.1f} s ({count})"
        )
        event = self._gang.wait(time.monotonic() + verdict.delay_seconds)
        return Stopped(event.signal) if isinstance(event, Interrupted) else None

    def _record(self, state: GangState, started_at: datetime, ends: list[tuple[Ended, bool]], verdict: Verdict) -> None:
        cause, reason = None, ""
        if isinstance(verdict, RestartGang | FailJob):
            cause, reason = verdict.cause, verdict.reason.value
        folder = self._surroundings.run_folder
        self.attempts.append(
            AttemptRecord(
                attempt=state.attempt,
                restarts=state.restarts,
                started_at=started_at,
                ended_at=utc_now(),
                ends=tuple(
                    ReplicaRecord(
                        replica=end.process.name,
                        exit_code=end.exit_code,
                        finished_at=_utc(end.finished_at),
                        stopped=stopped,
                        log=str(self._surroundings.log(end.process.name, state.attempt).relative_to(folder)),
                    )
                    for end, stopped in ends
                ),
                cause=None if cause is None else cause.replica.name,
                reason=reason,
                charged=isinstance(verdict, RestartGang) and verdict.charged,
            )
        )


def _utc(moment: float) -> datetime:
    return utc_now() - timedelta(seconds=time.monotonic() - moment)
