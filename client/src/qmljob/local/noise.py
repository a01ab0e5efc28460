"""Lines of TensorFlow's C++ code that tell a person nothing: left out on the screen, kept in the log file.

They come from before its logging is set up, or repeat in gRPC's words what the program says in one line.
"""

import re

_NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\)"
    r"|[IWE]\d{4} [\d:.]+ +\d+ (?:grpc_server_lib|coordination_service_agent|computation_placer|cuda_)\w*\.cc:"
    r"|I\d{4} [\d:.]+ +\d+ (?:service\.cc|device_compiler\.h):"
    r"|\d{4}-\d\d-\d\d [\d:.]+: [IWE] tensorflow/(?:core|tsl|compiler)/"
    r"|\d{4}-\d\d-\d\d [\d:.]+: [IWE] external/local_"
    r"|Additional GRPC error information from remote target"
    r'|:\{"created":"@'
)


def is_noise(line: str) -> bool:
    """Whether a line of a replica's output is left out on the screen."""
    return _NOISE.match(line) is not None
