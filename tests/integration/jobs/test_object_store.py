"""A stateful job with checkpoint, state and journal in an object store.

The job is killed between decision and commit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from oncebench.delivery.stores.objects import ENDPOINT
from oncebench.lab.lab import Lab
from tests import ROOT
from tests.s3_server import BUCKET, LOGIN, S3Server, s3_server

pytest.importorskip("obstore", reason="needs the extra s3")
# The server is built on the first use, and the client of S3A is a jar of 686 MB.
pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]
FILES, LINES = 4, 50
RUN_LIMIT_S = 600.0  # half a minute on idle cores


def run(lab: Lab, server: S3Server, folder: Path, kill_in: int) -> int:
    """Runs the job to its end; returns its exit code."""
    command = [sys.executable, "-m", "tests.object_store_job", f"s3://{BUCKET}/counts", str(folder), str(kill_in)]
    environment = {**lab.environment(), **LOGIN, ENDPOINT: server.endpoint, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, cwd=ROOT, env=environment, timeout=RUN_LIMIT_S, check=False).returncode


def expected() -> Counter[tuple[str, int]]:
    """Each remainder with its count after each file."""
    counts: Counter[int] = Counter()
    rows: Counter[tuple[str, int]] = Counter()
    for file in range(FILES):
        counts.update(number % 7 for number in range(file * LINES, (file + 1) * LINES))
        rows.update((str(k), count) for k, count in counts.items())
    return rows


def visible(output: Path) -> Counter[tuple[str, int]]:
    lines = (line for path in output.glob("part-*.jsonl") for line in path.read_text().splitlines())
    return Counter((row["k"], row["count"]) for row in map(json.loads, lines))


def test_a_killed_job_goes_on_from_the_object_store(lab: Lab, tmp_path: Path) -> None:
    for name in ("input", "output"):
        (tmp_path / name).mkdir()
    for file in range(FILES):
        numbers = range(file * LINES, (file + 1) * LINES)
        (tmp_path / "input" / f"{file}.txt").write_text("".join(f"{number}\n" for number in numbers))
    with s3_server(tmp_path / "objects") as server:
        assert run(lab, server, tmp_path, 1) == -signal.SIGKILL
        assert sum(visible(tmp_path / "output").values()) == 7, "batch 1 is decided, and not committed"
        assert run(lab, server, tmp_path, 2) == -signal.SIGKILL
        assert run(lab, server, tmp_path, -1) == 0
    assert visible(tmp_path / "output") == expected()
