"""The worker program under other TensorFlow settings, with the processor time of each epoch.

Not run by hand: gang.py starts it. It is the real program; what is replaced is where it sets TensorFlow up, and what is
added is one line after each progress line: the seconds that this process has computed (user, system) until then.
"""

import json
import os
import sys

import settings

from qmljob_api.progress import Progress
from qmljob_training import progress, runtime, worker
from qmljob_training.ending import end


class _MeasuringReporter(progress.ProgressReporter):
    def epoch(self, progress: Progress) -> None:
        super().epoch(progress)
        times = os.times()
        print(json.dumps({settings.TIMES_MARK: [progress.epoch, times.user, times.system]}), flush=True)


def main() -> None:
    """The entry point."""
    runtime.prepare_environment()
    chosen = settings.from_environment()
    runtime.configure = lambda threads: chosen.apply()
    worker.ProgressReporter = _MeasuringReporter
    end(worker.run, sys.argv[1:])


if __name__ == "__main__":
    main()
