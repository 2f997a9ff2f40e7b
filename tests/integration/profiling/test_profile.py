"""A profile of a real run: every process is sampled, and the run is judged as usual."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.profiling import parts
from oncebench.profiling.stacks import parse

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_profile_names_every_part_and_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(psutil.Process().children(recursive=True))  # other tests of this process have servers
    words = ("--rate", "600", "--for", "4", "--warmup", "1", "--work-dir", "work")
    done = CliRunner().invoke(cli, ("profile", "--sink", "kafka", "--guarantee", "exactly-once", *words))
    assert done.exit_code == 0, (done.output, done.exception)
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("| ")]
    assert {parts.PLANNING, parts.TASKS, parts.STATE, parts.OPERATOR, parts.DRIVER, "Kafka broker", "all"} <= set(rows)
    assert "kafka exactly-once two-phase, healthy, kept\nA batch takes " in done.stdout
    folder = tmp_path / "work" / "profile"
    for name in ("jvm", "driver", "workers-1", "workers-2"):
        assert list(parse((folder / f"{name}.collapsed").read_text()))
    for name in ("jvm", "python"):
        assert "<html" in (folder / f"{name}.html").read_text()
    left = {each.name() for each in set(psutil.Process().children(recursive=True)) - before}
    assert not {"py-spy", "asprof", "java"} & left
