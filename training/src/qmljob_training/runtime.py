"""TensorFlow's process-wide settings. They must be made before its first op, and decide whether bits repeat."""

import os

ENVIRONMENT = {
    "TF_USE_LEGACY_KERAS": "1",  # TensorFlow Quantum's layers and tf.distribute's Keras support are Keras 2
    # oneDNN chooses kernels, and so the order of sums, by what it finds at run time. Matrix products use it even so:
    # the same bits need the same instruction set (docs/determinism.md).
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "-1",
}


def prepare_environment() -> None:
    """Sets what TensorFlow reads at import; what the user has set stays."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def configure(threads: int) -> None:
    """Fixes thread counts and asks for deterministic ops; to be called before TensorFlow does anything.

    Args:
        threads: of each op (intra-op). Up to two ops run at once (inter-op); measured with 1, 2 and TensorFlow's own
            choice, neither a bit nor the time depends on that number (docs/determinism.md).
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.experimental.enable_op_determinism()


def versions() -> dict[str, str]:
    """Returns the versions that the numbers depend on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for package in ("qmljob-training", "tensorflow-cpu", "tensorflow-quantum", "tf-keras", "cirq-core", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
