"""The `qmljob` command: validate QMLJobs and run them on one machine."""

__version__ = "0.1.0"
