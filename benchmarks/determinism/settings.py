"""TensorFlow's settings that may decide whether bits repeat, as one value."""

import os
from dataclasses import asdict, dataclass

VARIABLE = "DETERMINISM_SETTINGS"
"""Carries the settings to a process, as `threads,inter_op,deterministic`."""
TIMES_MARK = "determinism/times"
"""The key of a line of measured_worker.py: [epoch, user seconds, system seconds]."""


@dataclass(frozen=True)
class Settings:
    """How TensorFlow is set up.

    Attributes:
        threads: of each op (intra-op); 0 is TensorFlow's own choice, the number of cores.
        inter_op: ops that may run at once; 0 is TensorFlow's own choice.
        deterministic: whether op determinism is asked for.
    """

    threads: int = 1
    inter_op: int = 2
    deterministic: bool = True

    def __str__(self) -> str:
        threads, inter_op = (str(value or "default") for value in (self.threads, self.inter_op))
        return f"threads {threads}, inter-op {inter_op}, determinism {'on' if self.deterministic else 'off'}"

    def encode(self) -> str:
        """Returns the text for VARIABLE."""
        return ",".join(str(int(value)) for value in asdict(self).values())

    def apply(self) -> None:
        """Sets TensorFlow up; to be called before its first op."""
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(self.threads)
        tf.config.threading.set_inter_op_parallelism_threads(self.inter_op)
        if self.deterministic:
            tf.config.experimental.enable_op_determinism()


def from_environment() -> Settings:
    """Reads VARIABLE."""
    threads, inter_op, deterministic = (int(part) for part in os.environ[VARIABLE].split(","))
    return Settings(threads, inter_op, bool(deterministic))
