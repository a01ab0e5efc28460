"""What of a replica's output the screen leaves out."""

import pytest

from qmljob.local.noise import is_noise


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "I0000 00:00:1795227483.405865   20010 grpc_server_lib.cc:464] Started server with target: grpc://127.0.0.1:28412",
        "I0000 00:00:1795227483.564292   20004 coordination_service_agent.cc:340] Coordination agent has connected.",
        "I0000 00:00:1795262104.166280   30507 service.cc:156]   StreamExecutor device (0): Host, Default Version",
        "I0000 00:00:1795262104.941164   30507 device_compiler.h:188] Compiled cluster using XLA!  This line is logged",
        "2026-11-21 02:17:52.817012: E tensorflow/core/common_runtime/ring_alg.cc:291] Aborting RingReduce",
        "Additional GRPC error information from remote target /job:worker/replica:0/task:1 while calling RecvBuf:",
        ':{"created":"@1795227472.816885094","description":"Error received from peer ipv4:127.0.0.1:23446"}',
    ],
)
def test_tensorflows_own_remarks_are_noise(line: str) -> None:
    assert is_noise(line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "error: lost a peer: Connection reset by peer; look at the other replicas' logs",
        "resuming after epoch 24, step 48",
        "Traceback (most recent call last):",
        "WARNING: my own program warns",
        "2026-11-21 my own program logs with a date",
    ],
)
def test_what_a_program_says_is_not(line: str) -> None:
    assert not is_noise(line)
