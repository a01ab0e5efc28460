"""`python -m qmljob` is the `qmljob` command."""

from qmljob.cli import main

if __name__ == "__main__":
    main()
