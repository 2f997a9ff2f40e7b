"""A machine of a cluster must have the driver's checkpoint and the job's certificates."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.stores.objects import ObjectStore
from pipeline.failures import explain
from pipeline.spark.cluster.machines import needed_files, refuse_machine
from tests import ROOT


class Ours:
    def check_still_ours(self) -> None:
        """There is no other driver."""


def take(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_a_machine_with_the_folder_and_the_files_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, passwords = tmp_path / "ca.pem", tmp_path / "pgpass"
    authority.touch()
    passwords.touch()
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    client = {"ssl.ca.location": str(authority)}
    with needed_files(checkpoint, 3, client, {"PGPASSFILE": str(passwords), "PGHOST": "db1"}) as needed:
        take(monkeypatch, needed)
        refuse_machine()
        assert len(list(checkpoint.iterdir())) == 1, "an executor leaves nothing"
        for path in (authority, passwords):
            path.rename(f"{path}.away")
            with pytest.raises(RefusedStart, match=f"cannot read {path} .No such file.*Put the file under the same"):
                refuse_machine()
            Path(f"{path}.away").rename(path)
    assert list(checkpoint.iterdir()) == []


def test_a_machine_without_the_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with needed_files(tmp_path, 3, {}, {}) as needed:
        take(monkeypatch, needed)
    with pytest.raises(RefusedStart, match=f"do not share the folder {tmp_path} with this driver .No such file"):
        refuse_machine()


def test_a_machine_needs_no_folder_for_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with needed_files(ObjectStore("bucket", "jobs"), 1, {"ssl.ca.location": str(tmp_path / "ca.pem")}, {}) as needed:
        take(monkeypatch, needed)
        with pytest.raises(RefusedStart, match=r"ca\.pem"):
            refuse_machine()


def test_a_driver_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    left, newer, other = (tmp_path / name for name in (".shared-9-a", ".shared-11-b", "offsets"))
    for path in (left, newer, other):
        path.touch()
    with needed_files(tmp_path, 10, {}, {}):
        assert not left.exists()
        assert newer.exists(), "its driver runs, and this one will stop"
    assert {path.name for path in tmp_path.iterdir()} == {newer.name, "offsets"}


def test_the_daemon_of_a_refused_machine_ends_with_an_error_that_the_driver_explains(tmp_path: Path) -> None:
    with needed_files(tmp_path, 3, {}, {}) as needed:
        environment = {**os.environ, **needed, "PYTHONPATH": str(ROOT)}
    daemon = subprocess.run([sys.executable, "-m", "pipeline.spark.workers"], env=environment, stdin=subprocess.DEVNULL,
                            capture_output=True, text=True, check=False)  # fmt: skip
    # As PythonWorkerFactory.startDaemon of Spark 4.2 does.
    text = "Error from python worker:\n  " + daemon.stderr.replace("\n", "\n  ") + "\nPYTHONPATH was:\n  oncebench.zip"
    found = explain(RuntimeError(text), Ours())  # type: ignore[arg-type]
    assert isinstance(found, RefusedStart)
    assert str(found).startswith("the executors on ")
    assert str(found).endswith("mounts under the same path.")
