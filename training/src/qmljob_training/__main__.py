"""`python -m qmljob_training`: the worker program."""

import sys
from typing import NoReturn

from qmljob_training import runtime
from qmljob_training.ending import end
from qmljob_training.preemption import block_sigterm


def main() -> NoReturn:
    """The entry point: `train` (the default), `describe`, `explain` or `native`."""
    runtime.prepare_environment()
    arguments = sys.argv[1:]
    if arguments[:1] == ["describe"]:
        from qmljob_training.describe import run as describe

        end(describe, arguments[1:])
    if arguments[:1] == ["explain"]:
        from qmljob_training.explain import run as explain

        end(explain, arguments[1:])
    if arguments[:1] == ["native"]:
        from qmljob_training.native.build import run as native

        end(native, arguments[1:])
    block_sigterm()
    from qmljob_training.worker import run as train

    end(train, arguments[1:] if arguments[:1] == ["train"] else arguments)


if __name__ == "__main__":
    main()
