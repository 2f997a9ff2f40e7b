"""Two clusters run beside each other, as those of two commands do."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from oncebench.downloads.java import find_java
from oncebench.servers.spark_cluster import start_spark_cluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(900)]
# Where Spark's master listens by default for jobs that anybody submits by HTTP.
REST = 6066


def test_a_port_that_another_master_has_is_not_needed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with suppress(OSError):  # another program has it
            stack.enter_context(socket.create_server(("127.0.0.1", REST)))
        cluster = stack.enter_context(start_spark_cluster(tmp_path, find_java(), 1))
        assert cluster.alive() == 1
        assert "REST" not in cluster.master.log.read_text()
