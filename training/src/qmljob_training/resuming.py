"""Takes the newest checkpoint, on all workers the same one.

The chief's finding rules. It claims what it finds, so that no process of an older attempt can replace it while the
others read; and it tells them which one it is, so that none of them goes on from another, or from nothing.
"""

import time

from qmljob_api.artifact import CheckpointPointer
from qmljob_training.checkpoint import Checkpoint, CheckpointFolder, Position
from qmljob_training.errors import BadArtifactError, ConfigurationError
from qmljob_training.plan import Plan
from qmljob_training.progress import say
from qmljob_training.strategies.protocol import Trainer

_LOOKS = 5
_LOOK_SECONDS = 1.0
"""A network share may show a file to one worker a moment later than to another."""
_NOTHING = 0

Found = tuple[CheckpointFolder, CheckpointPointer, Checkpoint]


def restore(plan: Plan, trainer: Trainer) -> Position:
    """Restores the trainer, and returns where training stands.

    Raises:
        BadArtifactError: the checkpoint is damaged, or of another model or data.
        ConfigurationError: a worker does not see the chief's checkpoint, or --resume-from names none.
    """
    if plan.checkpoints is None and plan.resume is None:
        return Position()
    found = _find(plan) if plan.rendezvous.is_chief else None
    wanted = plan.strategy.exchange(_digest(found))[0]
    if not plan.rendezvous.is_chief and wanted != _NOTHING:
        found = _find_same(plan, wanted)
    if len(set(plan.strategy.exchange(_digest(found)))) > 1:
        raise ConfigurationError(
            f"the workers see different checkpoints at {plan.config.checkpoint_location or plan.config.resume_from}: "
            "choose a location that all of them share (gs://, or a shared volume)"
        )
    if found is None:
        return Position()
    folder, _, checkpoint = found
    try:
        trainer.restore(checkpoint.state)
    except BadArtifactError as error:
        raise BadArtifactError(f"checkpoint {folder.store.location}: {error}; choose another {folder.flag}") from error
    return checkpoint.position


def _find(plan: Plan) -> Found | None:
    """Returns the newest checkpoint of this job, else that of --resume-from; the chief claims the job's own."""
    for folder in (plan.checkpoints, plan.resume):
        latest = folder.latest() if folder is not None else None
        if folder is None or latest is None:
            continue
        pointer, checkpoint = latest
        _check_same_model(plan, folder, pointer)
        if folder is plan.checkpoints and plan.rendezvous.is_chief and not folder.claim(pointer):
            return _find(plan)
        return folder, pointer, checkpoint
    if plan.resume is not None:
        raise ConfigurationError(f"--resume-from {plan.config.resume_from}: there is no checkpoint; check the path")
    return None


def _find_same(plan: Plan, wanted: int) -> Found | None:
    """Returns the checkpoint that the chief has found; None where this worker can't see it."""
    for look in range(_LOOKS):
        if look:
            time.sleep(_LOOK_SECONDS)
        for folder in (plan.checkpoints, plan.resume):
            latest = folder.latest() if folder is not None else None
            if folder is not None and latest is not None and _digest((folder, *latest)) == wanted:
                return folder, *latest
    return None


def _digest(found: Found | None) -> int:
    return _NOTHING if found is None else int(found[1].data.sha256[:15], 16)


def _check_same_model(plan: Plan, folder: CheckpointFolder, pointer: CheckpointPointer) -> None:
    """Refuses a checkpoint of another model or data; warns by name of what changes the bits that follow."""
    own = folder.fingerprint
    differing = {name for name in own if pointer.fingerprint.get(name) != own[name]}
    if wrong := differing & {"workload", "qubits", "examples", "seed"}:
        there = ", ".join(f"{name} {pointer.fingerprint.get(name)} (here {own[name]})" for name in sorted(wrong))
        raise BadArtifactError(
            f"checkpoint {folder.store.location} is of another job: {there}; choose another {folder.flag}"
        )
    changes = [f"{name} {pointer.fingerprint.get(name)} -> {own[name]}" for name in sorted(differing)]
    if pointer.threads != plan.config.threads:
        changes.append(f"threads {pointer.threads} -> {plan.config.threads}")
    if changes:
        say(f"warning: resuming with other settings, so the bits that follow may differ: {', '.join(changes)}")
