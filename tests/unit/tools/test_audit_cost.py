"""`python -m tools.audit_cost` audits the record that its numbers describe, and leaves no half of one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from oncebench.errors import UserError
from tools import audit_cost


def invoke(*words: object) -> UserError | None:
    """Runs the command; returns its error."""
    error = CliRunner().invoke(audit_cost.main, [str(word) for word in words]).exception
    assert error is None or isinstance(error, UserError), error
    return error


@pytest.fixture
def measured_folders(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    folders: list[Path] = []
    monkeypatch.setattr(audit_cost, "measure", folders.append)
    return folders


def test_a_second_call_with_the_same_numbers_audits_the_same_record(
    tmp_path: Path, measured_folders: list[Path]
) -> None:
    folder = tmp_path / "new" / "record"
    assert invoke(200, folder, 300) is None
    made = (folder / "input.arrow").stat()
    assert invoke(200, folder, 300) is None
    assert (folder / "input.arrow").stat() == made
    assert measured_folders == [folder] * 2
    assert [path.name for path in folder.parent.iterdir()] == ["record"]


@pytest.mark.parametrize("others", [(300,), (200, 300)])
def test_a_record_with_other_numbers_is_refused(
    others: tuple[int, ...], tmp_path: Path, measured_folders: list[Path]
) -> None:
    assert invoke(200, tmp_path / "record") is None
    events, *size = others
    refused = invoke(events, tmp_path / "record", *size)
    assert str(refused) == (
        f"{tmp_path}/record holds a record of 200 events with RECORD_BYTES 0. Give these numbers, or another folder"
    )
    assert len(measured_folders) == 1


def test_a_folder_with_other_files_is_refused_and_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    assert "has files that are no record. Give a folder that is empty" in str(invoke(200, tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_interruption_leaves_no_part_of_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(folder: Path, *_: int) -> None:
        folder.mkdir()
        (folder / "input.arrow").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(audit_cost, "write_record", interrupted)
    assert CliRunner().invoke(audit_cost.main, ["200", str(tmp_path / "record")]).exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_failed_audit_shows_its_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^the audit of .* failed with exit code 1:\nno room$"):
        audit_cost.measured('sys.exit("no room")', tmp_path)


@pytest.mark.parametrize("words", [["many"], ["99"], ["200", "record", "60001"], ["200", __file__]])
def test_a_wrong_argument_is_a_mistake_of_the_command_line(words: list[str]) -> None:
    done = CliRunner().invoke(audit_cost.main, words)
    assert done.exit_code == 2
    assert "Invalid value for " in done.stderr
