"""A process with a connection to a controller starts other programs.

PySpark starts its JVM in the same way.
"""

from __future__ import annotations

import os
import subprocess
import sys

# Nobody listens there, so gRPC's threads are busy with new attempts. With its handlers of forks, 7 of 300 aborted.
PROGRAM = """
import os, subprocess
from oncebench_pravega.controller import Controller
controller = Controller("127.0.0.1:9")
controller._grpc.channel_ready_future(controller._channel)
aborted = sum(subprocess.run(["true"], preexec_fn=lambda: None).returncode != 0 for _ in range(300))
print(aborted, flush=True)
os._exit(0)  # not through the shutdown of gRPC, which waits for the attempts
"""


def test_a_driver_with_a_connection_starts_other_programs() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("0", 0)
