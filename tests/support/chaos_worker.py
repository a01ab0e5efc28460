"""The worker program, with SIGKILL waiting at chosen points: run as `python chaos_worker.py FOLDER flags…`.

FOLDER holds `schedule.json` (a list of kills, in the order in which they fire) and collects one file a kill that fired,
written before the signal. The program itself is the real one; what is added only watches it through the trainer's and
the store's own interfaces.
"""

import json
import os
import random
import signal
import sys
import threading
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class Phase(StrEnum):
    """Where in a worker's life a kill strikes."""

    STEP = "inside a graph call in the middle of an epoch"
    CHECKPOINT_DATA = "while a checkpoint's data is written"
    BEFORE_POINTER = "between a checkpoint's data and its pointer"
    ARTIFACT_DATA = "while the artifact's weights are written"
    ARTIFACT_MANIFEST = "between the artifact's data and its manifest"
    UPLOAD_BARRIER = "while the chief uploads the artifact"


CHIEF_ONLY = frozenset(set(Phase) - {Phase.STEP, Phase.UPLOAD_BARRIER})


@dataclass(frozen=True)
class Kill:
    """One kill: the worker's index, the epoch in which it strikes (from 0), the step inside it, and the phase."""

    victim: int
    epoch: int
    step: int
    phase: Phase


class Ledger:
    """The kills that have fired, shared by all processes and attempts of a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._schedule = [
            Kill(**{**kill, "phase": Phase(kill["phase"])})
            for kill in json.loads((folder / "schedule.json").read_text())
        ]

    def due(self, victim: int, phase: Phase) -> Kill | None:
        """The next kill of the schedule, if it is this worker's and of this phase.

        One kill an attempt: where a peer has been killed and this worker has not noticed yet, a second kill would
        interrupt nothing.
        """
        fired = sorted(self._folder.glob("kill-*.json"))
        if len(fired) == len(self._schedule):
            return None
        if fired and json.loads(fired[-1].read_text())["attempt"] >= _attempt():
            return None
        kill = self._schedule[len(fired)]
        return kill if (kill.victim, kill.phase) == (victim, phase) else None

    def fire(self, kill: Kill, epoch: int, step: int) -> None:
        """Writes down where it strikes, then ends this process."""
        number = len(list(self._folder.glob("kill-*.json")))
        record = {**asdict(kill), "epoch": epoch, "step": step, "attempt": _attempt()}
        part = self._folder / "part.json"
        part.write_text(json.dumps(record))
        part.replace(self._folder / f"kill-{number}.json")
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()  # the signal may need an instant to arrive

    def clock(self) -> random.Random:
        """The delays of kills inside a graph call."""
        return random.Random(len(list(self._folder.glob("kill-*.json"))))


def _attempt() -> int:
    return int(os.environ.get("QMLJOB_ATTEMPT", "0"))


class ChaosTrainer:
    """A trainer whose process may die inside a graph call."""

    def __init__(self, inner: Any, ledger: Ledger, worker: int, steps_per_epoch: int, *, drop_slots: bool) -> None:
        self._inner = inner
        self._ledger = ledger
        self._worker = worker
        self._steps_per_epoch = steps_per_epoch
        self._drop_slots = drop_slots
        self._steps = 0
        self._restored: set[str] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def place(self) -> tuple[int, int]:
        """Epoch (from 0) and step inside it."""
        return divmod(self._steps, self._steps_per_epoch)

    def run_steps(self, shard: Any, *, stop: bool, step_seconds: float) -> Any:
        epoch, step = self.place
        kill = self._ledger.due(self._worker, Phase.STEP)
        if kill is None or (epoch, step) != (kill.epoch, kill.step):
            result = self._inner.run_steps(shard, stop=stop, step_seconds=step_seconds)
            self._steps += shard.steps
            return result
        timer = threading.Timer(self._ledger.clock().uniform(0.0, 0.02), self._ledger.fire, (kill, epoch, step))
        timer.start()
        self._inner.run_steps(shard, stop=stop, step_seconds=step_seconds)
        timer.join()
        raise AssertionError("a killed worker goes on")

    def restore(self, state: dict[str, Any]) -> None:
        own = self._inner.state()
        self._inner.restore({name: state.get(name, own[name]) for name in own} if self._drop_slots else state)
        self._steps = next(int(value) for name, value in state.items() if "iteration" in name)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._inner.state()
        if self._drop_slots:
            return {name: value for name, value in state.items() if name.startswith("model/") or "iteration" in name}
        return state


class ChaosStore:
    """A store whose process may die inside a write or just before one."""

    def __init__(self, inner: Any, ledger: Ledger, worker: int, place: Any) -> None:
        self._inner = inner
        self._ledger = ledger
        self._worker = worker
        self._place = place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, name: str, data: bytes, **options: Any) -> int:
        phase = Phase.CHECKPOINT_DATA if name.startswith("checkpoint-") else Phase.ARTIFACT_DATA
        kill = self._due(phase)
        if kill is None:
            return int(self._inner.put(name, data, **options))
        # The data is in its temporary file, and not yet in its place: the store is about to sync it.
        os.fsync = lambda descriptor: self._ledger.fire(kill, *self._place())
        self._inner.put(name, data, **options)
        raise AssertionError("a killed worker goes on")

    def put_if(self, name: str, data: bytes, **options: Any) -> int:
        phase = Phase.BEFORE_POINTER if name == "checkpoint.json" else Phase.ARTIFACT_MANIFEST
        kill = self._due(phase)
        if kill is not None:
            self._ledger.fire(kill, *self._place())
        return int(self._inner.put_if(name, data, **options))

    def _due(self, phase: Phase) -> Kill | None:
        kill = self._ledger.due(self._worker, phase)
        # An epoch is saved after its last step, when the next one has begun to count.
        return kill if kill is not None and self._place()[0] > kill.epoch else None


def main(arguments: list[str]) -> None:
    """Installs the watchers and runs the worker program."""
    from qmljob_training import __main__, loop, runtime

    runtime.prepare_environment()
    from qmljob_training import plan
    from qmljob_training.strategies.multi_worker_mirrored import MultiWorkerMirrored

    folder = Path(arguments[0])
    ledger = Ledger(folder)
    drop_slots = (folder / "drop-slots").exists()
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    trainers: list[ChaosTrainer] = []
    real_trainer, real_exchange = MultiWorkerMirrored.trainer, MultiWorkerMirrored.exchange
    real_open = plan.open_store

    def exchange(self: Any, value: int) -> Any:
        # The last exchange is where workers wait for the chief's upload.
        kill = ledger.due(index, Phase.UPLOAD_BARRIER)
        if kill is not None and place()[0] > kill.epoch:
            ledger.fire(kill, *place())
        return real_exchange(self, value)

    def trainer(self: Any, build_model: Any, data: Any, learning_rate: float) -> Any:
        steps = -(-len(data.train) // int(json.loads((folder / "global-batch-size").read_text())))
        inner = real_trainer(self, build_model, data, learning_rate)
        trainers.append(ChaosTrainer(inner, ledger, index, steps, drop_slots=drop_slots))
        return trainers[-1]

    def place() -> tuple[int, int]:
        return trainers[-1].place if trainers else (0, 0)

    MultiWorkerMirrored.trainer = trainer  # type: ignore[method-assign]
    MultiWorkerMirrored.exchange = exchange  # type: ignore[method-assign]
    plan.open_store = lambda location: ChaosStore(real_open(location), ledger, index, place)
    loop.CALL_SECONDS = 0.0  # one step a graph call, so that there is a middle of an epoch to strike in
    sys.argv[1:] = arguments[1:]
    __main__.main()


if __name__ == "__main__":
    main(sys.argv[1:])
