"""A work dir serves one run, is private, and is the only place where files are deleted."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.errors import ExitCode, MissingEnvironment, UserError
from oncebench.workdir import WORK_FOLDER_FILE, delete_below, open_work_dir, require_free
from tests import ROOT


def test_a_work_dir_is_private_and_carries_its_marker(tmp_path: Path) -> None:
    with open_work_dir(tmp_path / "some" / "work") as work:
        assert work.path == (tmp_path / "some" / "work").resolve()
        assert work.path.stat().st_mode & 0o777 == 0o700
        assert json.loads((work.path / WORK_FOLDER_FILE).read_text())["pid"] == os.getpid()


def test_a_refused_start_removes_only_an_empty_folder_of_its_own(
    tmp_path: Path,
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for path in (tmp_path / "some" / "empty", tmp_path / "some" / "used", mine):
        with pytest.raises(UserError, match="refused"), open_work_dir(path) as work:
            if path.name == "used":
                (work.path / "log").touch()
            raise UserError("refused")
    with open_work_dir(tmp_path / "some" / "well"):
        pass
    assert sorted(folder.name for folder in (tmp_path / "some").iterdir()) == ["used", "well"]
    assert (mine / WORK_FOLDER_FILE).exists()


def test_a_removed_folder_does_not_hide_the_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="refused"), open_work_dir(tmp_path / "gone") as work:
        (work.path / WORK_FOLDER_FILE).unlink()
        work.path.rmdir()
        raise UserError("refused")


def test_an_empty_folder_of_the_user_becomes_private(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    with open_work_dir(folder):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_second_run_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with open_work_dir(tmp_path / "work"):
        with pytest.raises(UserError, match=f"in use by process {os.getpid()}") as caught:
            open_work_dir(tmp_path / "work")
        assert caught.value.exit_code == ExitCode.ERROR


def test_a_work_dir_can_be_reopened_and_keeps_its_files(tmp_path: Path) -> None:
    with open_work_dir(tmp_path / "work") as first:
        (first.path / "report.json").write_text("{}")
    with open_work_dir(tmp_path / "work") as second:
        assert (second.path / "report.json").read_text() == "{}"


def test_a_killed_run_does_not_leave_the_work_dir_locked(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from oncebench.workdir import open_work_dir; "
        "work = open_work_dir(Path(sys.argv[1])); print('locked', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "work")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(UserError, match=f"process {holder.pid}"):
            open_work_dir(tmp_path / "work")
        holder.kill()
    open_work_dir(tmp_path / "work").close()


def test_a_lock_without_a_written_pid_is_still_a_lock(tmp_path: Path) -> None:
    with open_work_dir(tmp_path / "work") as work:
        (work.path / WORK_FOLDER_FILE).write_text("")
        with pytest.raises(UserError, match="in use by another process"):
            open_work_dir(tmp_path / "work")


def test_a_folder_with_other_files_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    tmp_path.chmod(0o755)
    with pytest.raises(UserError, match="contains files but no"):
        open_work_dir(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_file_in_place_of_the_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "work"):
        with pytest.raises(MissingEnvironment, match=f"{tmp_path}/file.*in its place.*another --work-dir"):
            open_work_dir(path)


def test_a_marker_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / WORK_FOLDER_FILE).symlink_to(tmp_path / "precious")
    with pytest.raises((UserError, OSError)):
        open_work_dir(tmp_path / "work")
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(MissingEnvironment, match=r"/proc/x.* the folder does not exist and cannot be made"):
        open_work_dir(Path("/proc/x"))


def test_too_little_disk_space_is_an_error(tmp_path: Path) -> None:
    require_free(tmp_path, 1)
    with pytest.raises(MissingEnvironment, match=f"{tmp_path} has .* MB free; about 1,000,000,000 MB are needed"):
        require_free(tmp_path, 10**15)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work dir with some files, next to a folder with precious files."""
    open_work_dir(tmp_path / "work").close()
    (tmp_path / "work" / "kafka" / "data").mkdir(parents=True)
    (tmp_path / "work" / "kafka" / "data" / "log").write_text("x")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("years of work")
    return tmp_path / "work"


def test_a_tree_and_a_file_below_the_marker_are_deleted(work: Path) -> None:
    delete_below(work, work / "kafka" / "data" / "log")
    assert not (work / "kafka" / "data" / "log").exists()
    delete_below(work, work / "kafka")
    assert not (work / "kafka").exists()
    delete_below(work, work / "kafka")


def test_without_a_marker_nothing_is_deleted(work: Path) -> None:
    (work / WORK_FOLDER_FILE).unlink()
    with pytest.raises(UserError, match=f"carries no {WORK_FOLDER_FILE}"):
        delete_below(work, work / "kafka")
    assert (work / "kafka" / "data" / "log").exists()


@pytest.mark.parametrize("target", ["", ".", "..", "../precious", "kafka/../../precious", WORK_FOLDER_FILE, "kafka/.."])
def test_a_path_outside_the_work_dir_is_not_deleted(target: str, work: Path) -> None:
    with pytest.raises(UserError, match="not deleted"):
        delete_below(work, Path(f"{work}/{target}"))
    assert (work.parent / "precious" / "thesis.txt").exists()
    assert (work / WORK_FOLDER_FILE).exists()


def test_a_link_is_removed_and_not_followed(work: Path) -> None:
    (work / "link").symlink_to(work.parent / "precious")
    (work / "kafka" / "link").symlink_to(work.parent / "precious")
    delete_below(work, work / "link")
    delete_below(work, work / "kafka")
    assert not (work / "link").is_symlink()
    assert (work.parent / "precious" / "thesis.txt").read_text() == "years of work"


def test_a_path_through_a_link_is_refused(work: Path) -> None:
    (work / "link").symlink_to(work.parent / "precious")
    with pytest.raises(UserError, match="not deleted"):
        delete_below(work, work / "link" / "thesis.txt")
    assert (work.parent / "precious" / "thesis.txt").exists()


def test_deleting_a_work_dir_follows_no_link(tmp_path: Path, work: Path) -> None:
    with open_work_dir(work) as opened:
        (work / "link").symlink_to(tmp_path / "precious")
        opened.delete()
    assert not work.exists()
    assert (tmp_path / "precious" / "thesis.txt").exists()


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounts need root and unshare")
def test_a_read_only_disk_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from oncebench.errors import UserError; "
        "from oncebench.workdir import open_work_dir\n"
        "try: open_work_dir(Path(sys.argv[1]))\n"
        "except UserError as error: print(error.exit_code, error)"
    )
    script = 'mount -t tmpfs -o ro none "$1" && exec "$2" -c "$3" "$1/work"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(tmp_path), sys.executable, code]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=30, check=False)
    if answer.returncode:
        pytest.skip(f"mounts are not allowed here: {answer.stderr.strip()}")
    assert answer.stdout.startswith(f"5 {tmp_path}/work can't be written: the disk is read-only"), answer.stdout


@pytest.mark.parametrize("left", ["cell.json", "cells/001/cell.json", "load.jsonl", "plan.json"])
def test_every_command_refuses_a_used_work_dir_before_it_starts_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    def started(*_: object) -> None:
        raise AssertionError("something was started")

    for starter in (
        "experiments.workspace.open_lab",
        "commands.batches.open_lab",
        "commands.load.start_kafka",
    ):
        monkeypatch.setattr(f"oncebench.{starter}", started)
    open_work_dir(tmp_path / "work").close()
    (tmp_path / "work" / left).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "work" / left).touch()
    for words in (
        ["run", "--sink", "kafka", "--guarantee", "exactly-once"],
        ["compare"],
        ["sustain"],
        ["faults", "--sink", "kafka", "--family", "kills"],
        ["batches"],
        ["load"],
    ):
        refused = CliRunner().invoke(cli, [*words, "--work-dir", str(tmp_path / "work")]).exception
        assert isinstance(refused, UserError), words
        assert str(refused) == (
            f"the work dir {tmp_path / 'work'} was used by an earlier command: it contains {left}. "
            "Choose another --work-dir"
        )
        assert refused.exit_code == ExitCode.USAGE
