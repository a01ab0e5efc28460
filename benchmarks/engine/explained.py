"""How well `explain` foretells: its time of a step beside that of real training, in turns; see README.md."""

import argparse
import json
import subprocess
import sys

from qmljob_api.explanation import parse_explanation
from qmljob_api.progress import parse_progress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qubits", type=int, nargs="+", default=[8, 12, 16, 23])
    parser.add_argument("--engine", default="lightcone")
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=12)
    given = parser.parse_args()
    for qubits in given.qubits:
        flags = [f"--qubits={qubits}", f"--examples={given.examples}", f"--engine={given.engine}"]
        told = parse_explanation(program("explain", *flags, "--json"))
        lines = program(*flags, f"--epochs={given.epochs}", "--progress=json").splitlines()
        epochs = [line for text in lines if (line := parse_progress(text)) is not None]
        if told is None or told.step_seconds is None or told.compile_seconds is None:
            sys.exit(f"explain has no estimate for engine {given.engine}")
        # The first epoch compiles; of the others the quickest says what the machine does when nobody else uses it.
        real = min(epoch.seconds for epoch in epochs[1:]) / told.steps
        record = {"qubits": qubits, "engine": given.engine, "estimated_ms": 1e3 * told.step_seconds}
        record |= {"measured_ms": 1e3 * real, "ratio": told.step_seconds / real}
        record |= {"compile_estimated_s": told.compile_seconds, "first_epoch_s": epochs[0].seconds}
        print(
            json.dumps({name: round(value, 3) if isinstance(value, float) else value for name, value in record.items()})
        )


def program(*arguments: str) -> str:
    """Returns what the training program prints."""
    done = subprocess.run(
        [sys.executable, "-m", "qmljob_training", *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    main()
