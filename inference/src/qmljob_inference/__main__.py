"""`python -m qmljob_inference`: the inference program."""

import sys
from typing import NoReturn

from qmljob_training import runtime
from qmljob_training.ending import end


def main() -> NoReturn:
    """The entry point."""
    runtime.prepare_environment()
    from qmljob_inference.program import run

    end(run, sys.argv[1:])


if __name__ == "__main__":
    main()
