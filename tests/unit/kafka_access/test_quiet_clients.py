"""No Kafka client of the suite's own process prints librdkafka's lines.

They would come into the user's terminal.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from loadgen.client import settings
from loadgen.config import LoadConfig
from tests import ROOT

# The rooms that run in the suite's process. A job's own clients write to the job's log.
ROOMS = ("loadgen", "oncebench/commands", "oncebench/certify", "oncebench/experiments", "oncebench/faults",
         "oncebench/kafka_access", "oncebench/lab", "oncebench/live", "oncebench/observe", "oncebench/run",
         "oncebench/servers")  # fmt: skip
CLIENTS = ("Producer", "Consumer", "AdminClient", "admin_client")
# librdkafka reports each refused connection at level 3.
CRITICAL = 2
# Each client, and whether the settings beside its call have the level.
FOUND = {
    "loadgen/client.py admin_client": True,
    "loadgen/client.py Producer": False,  # `settings` has it
    "oncebench/faults/server.py Producer": True,
    "oncebench/kafka_access/connection.py AdminClient": True,
    "oncebench/servers/kafka/external.py AdminClient": True,
    "oncebench/servers/kafka/topics.py admin_client": True,
}


def calls(file: Path) -> Iterator[tuple[str, bool]]:
    text = file.read_text("utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLIENTS:
            yield (
                f"{file.relative_to(ROOT)} {node.func.id}",
                '"log_level": ' in (ast.get_source_segment(text, node) or ""),
            )


def test_every_client_of_the_suite_has_a_log_level() -> None:
    assert dict(each for room in ROOMS for file in (ROOT / room).rglob("*.py") for each in calls(file)) == FOUND


def test_a_load_prints_no_refused_connection(tmp_path: Path) -> None:
    """A warm-up runs in the suite's process."""
    load = LoadConfig("127.0.0.1:1", "in", "max", sessions=1, ledger_dir=tmp_path)
    assert int(str(settings(load)["log_level"])) <= CRITICAL
