"""A sink in a package of its own, installed by pip, works like one of ours.

It is listed, run, killed and judged in the same way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncebench.servers.kafka.broker import KafkaBroker
from tests import COMMAND, ROOT

pytestmark = [pytest.mark.integration, pytest.mark.spark]

PACKAGE = ROOT / "tests" / "data" / "out_of_tree_sink"
QUIET = ("--quiet", "--disable-pip-version-check")
# Without a network: the project's test environment has the build backend.
OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *QUIET, *OFFLINE, "--target", str(folder), str(PACKAGE)],
        check=True, timeout=120,
    )  # fmt: skip
    return folder


def oncebench(site: Path, *words: str, cwd: Path = ROOT, timeout_s: float = 280) -> subprocess.CompletedProcess[str]:
    """The real command, in a process that finds the package."""
    paths = os.pathsep.join(filter(None, (str(site), str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [*COMMAND, *words],
        capture_output=True, text=True, timeout=timeout_s, check=False, cwd=cwd,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip


def test_an_installed_sink_is_listed(site: Path) -> None:
    listed = oncebench(site, "list", "--sink", "lines")
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.splitlines()[:4] == [
        "sink   guarantee      variant                 how it is kept",
        "lines  at-most-once   n/a                     the example keeps to two guarantees",
        "lines  at-least-once  acknowledged (default)  a file per write, forced to the disk",
        "lines  exactly-once   idempotent (default)    a file whose name only one write can take",
    ]
    assert oncebench(site, "list", "--profile", "standard", "--sink", "lines").stdout.count("--sink lines") == 4


@pytest.mark.slow
@pytest.mark.parametrize(("guarantee", "again"), [("at-least-once", True), ("exactly-once", False)])
def test_an_installed_sink_keeps_its_guarantee_though_the_pipeline_is_killed(
    site: Path, kafka: KafkaBroker, tmp_path: Path, guarantee: str, again: bool
) -> None:
    done = oncebench(
        site, "run", "--sink", "lines", "--guarantee", guarantee, "--fault", "after-commit", "--rate", "1000",
        "--sessions", "100", "--warmup", "0", "--bootstrap-servers", kafka.bootstrap_servers,
        "--work-dir", str(tmp_path / "run"), "--json", str(tmp_path / "report.json"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verdict"] == "kept"
    assert [fault["hit"] for fault in report["faults"]] == [True]
    assert report["rows"]["visible"] >= report["rows"]["expected"] > 0
    assert (report["rows"]["lost"], report["rows"]["duplicated"] > 0) == (0, again)
    assert report["environment"]["versions"]["oncebench-lines"] == "1.0"


@pytest.mark.slow
@pytest.mark.timeout(800)
def test_an_installed_sink_has_its_row_in_the_fault_matrix(site: Path, kafka: KafkaBroker, tmp_path: Path) -> None:
    done = oncebench(
        site, "faults", "--sink", "lines", "--only", "exactly-once", "--family", "old-checkpoint", "--seeds", "1",
        "--bootstrap-servers", kafka.bootstrap_servers, cwd=tmp_path, timeout_s=780,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (stored,) = (tmp_path / "results" / "local" / "runs").glob("faults-*.jsonl")
    report = json.loads(stored.read_text())
    assert (report["verdict"], report["environment"]["versions"]["oncebench-lines"]) == ("kept", "1.0")
    assert [(fault["fault"], fault["hit"]) for fault in report["faults"]] == [("after-commit:roll-back", True)]
    (table,) = (tmp_path / "results" / "local" / "tables").glob("faults-*.md")
    assert "| lines " in table.read_text()
