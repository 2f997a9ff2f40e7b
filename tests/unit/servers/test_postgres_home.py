"""The temporary folder of a server of ours: a later start deletes it if its run was killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from oncebench.processes import child
from oncebench.servers import postgres, postgres_home
from oncebench.servers.postgres_home import (
    _PREFIX,
    INSTALLED,
    PACKAGE,
    Home,
    _temporary,
    home,
    remove_stale_homes,
)
from oncebench.workdir import WORK_FOLDER_FILE, open_work_dir
from tests import ROOT


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    """The folder of a run that was killed."""
    code = "import os, sys; from pathlib import Path; from oncebench.workdir import open_work_dir; " \
           "work = open_work_dir(Path(sys.argv[1])); os.kill(os.getpid(), 9)"  # fmt: skip
    folder = tmp_path / f"{_PREFIX}dead"
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, check=False)
    (folder / "postgres" / "data").mkdir(parents=True)
    return folder


def test_only_folders_of_killed_runs_are_deleted(tmp_path: Path, dead: Path) -> None:
    held, fresh, link, foreign = (tmp_path / f"{_PREFIX}{name}" for name in ("held", "fresh", "link", "foreign"))
    fresh.mkdir()
    (fresh / WORK_FOLDER_FILE).touch()  # its owner has not locked it yet
    foreign.mkdir()
    (foreign / "data").mkdir()
    other = tmp_path / "other"
    dead.rename(other)
    link.symlink_to(other)
    with open_work_dir(held):
        remove_stale_homes(tmp_path)
        assert all(each.exists() for each in (held, fresh, link, foreign, other / "postgres"))
    other.rename(dead)
    remove_stale_homes(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([fresh, link, foreign])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
@pytest.mark.parametrize("mask", [0o077, 0o027])
def test_the_servers_user_can_run_a_program_that_only_root_may(
    mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # every user reaches it
    folder.chmod(0o755)
    before = os.umask(mask)  # as it was when pip made the package, and as it is during the run
    try:
        installed = folder / PACKAGE / INSTALLED
        (installed / "bin").mkdir(parents=True)
        shutil.copy("/bin/true", installed / "bin" / "postgres")
        (installed / "bin" / "postgres").chmod(0o777 & ~mask)
        (installed / "timezone").write_text("UTC")
        monkeypatch.setattr(postgres_home, "_installed", lambda: installed)
        with home(folder / "work") as made:
            assert made.user is not None
            with child.start("it", [made.programs / "postgres"], tmp_path / "log", user=made.user) as started:
                assert started.wait(60)
            assert started.returncode == 0, (tmp_path / "log").read_text()
            assert (made.programs.parent / "timezone").stat().st_mode & 0o777 == 0o644 | (0o666 & ~mask)
    finally:
        os.umask(before)
        shutil.rmtree(folder)


def test_a_folder_whose_server_still_runs_stays(tmp_path: Path, dead: Path) -> None:
    server = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)", str(dead / "postgres" / "data")]
    with subprocess.Popen(server, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        remove_stale_homes(tmp_path)
        running.kill()
    assert dead.exists()
    remove_stale_homes(tmp_path)
    assert not dead.exists()


def test_a_folder_of_another_user_stays(tmp_path: Path, dead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: dead.stat().st_uid + 1)
    remove_stale_homes(tmp_path)
    assert dead.exists()


def test_a_start_deletes_the_folders_of_killed_runs(
    tmp_path: Path, dead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ExitStack() as stack:
        assert _temporary(stack).parent == tmp_path
        assert not dead.exists()
    assert not list(tmp_path.iterdir())


def test_a_password_does_not_outlive_an_initdb_that_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **_more: object) -> None:
        assert (tmp_path / "password").exists()
        raise OSError("no process can be started")

    monkeypatch.setattr(child, "start", fail)
    with pytest.raises(OSError, match="no process"):
        postgres.PostgresServer(Home(tmp_path, tmp_path, None), tmp_path / "log")
    assert not (tmp_path / "password").exists()
