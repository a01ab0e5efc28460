"""Names of the environment variables through which the operator (or a local run) speaks to a training container."""

TF_CONFIG = "TF_CONFIG"
NAME = "QMLJOB_NAME"
NAMESPACE = "QMLJOB_NAMESPACE"
UID = "QMLJOB_UID"
ATTEMPT = "QMLJOB_ATTEMPT"
RESTARTS = "QMLJOB_RESTARTS"

STORE_ROOT = "QMLJOB_STORE_ROOT"
"""A folder that stands in for buckets: `gs://b/p` then means the file `<folder>/b/p`. Set by local runs only."""

PEER_TIMEOUT_SECONDS = "QMLJOB_PEER_TIMEOUT_SECONDS"
"""How long a worker waits for its peers; unset or 0 means without limit. Set by local runs: on a cluster the operator
owns this wait."""

TERMINATION_MESSAGE_PATH = "QMLJOB_TERMINATION_MESSAGE_PATH"
"""Where the last progress line goes; a container's default is /dev/termination-log."""


def port_variable(port_name: str) -> str:
    """Returns the variable that holds a named port of `spec.ports` (`profiler` -> `QMLJOB_PORT_PROFILER`).

    A manifest writes `--profiler-port=$(QMLJOB_PORT_PROFILER)`, so that the same line works on a cluster, where each
    replica has an address of its own, and on one machine, where each replica needs a port of its own.
    """
    return "QMLJOB_PORT_" + port_name.upper().replace("-", "_")
