"""`oncebench faults`: what is run, what an earlier try has done already, and what is said of a series that was cut."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands import faults as command
from oncebench.errors import ExitCode, UserError
from oncebench.report import report as report_files
from oncebench.report.results import Results, whole_lines
from oncebench.scenario import fault_matrix
from oncebench.scenario.cell import Cell
from tests.unit.scenario.test_fault_matrix import fault, report

KILLS = ("faults", "--sink", "kafka", "--only", "two-phase", "--seeds", "1", "--family", "kills")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """Cells that the command runs, all of which are kept; results go below tmp_path."""
    ran: list[Cell] = []

    def pretend(cells: list[Cell], results: Results, *_: Any) -> Any:
        for cell in cells:
            ran.append(cell)
            made = report(*(fault(text) for text in cell.faults)) | {"config": cell.as_json(), "run": f"ob-{len(ran)}"}
            made["cell"] |= {"variant": cell.variant}
            results.add(made)
            yield made

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "run_series", pretend)
    monkeypatch.setattr(command, "numbered", lambda path: enumerate(map(json.loads, path.open()), 1))
    return ran


def test_what_is_in_a_file_of_reports_is_not_run_again_and_new_ones_go_into_it(tmp_path: Path, ran: list[Cell]) -> None:
    words = ["faults", "--sink", "kafka", "--only", "two-phase", "--seeds", "1"]
    assert CliRunner().invoke(cli, [*words, "--family", "kills"]).exit_code == 0
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    assert len(ran) == 1
    again = CliRunner().invoke(cli, [*words, "--family", "kills", "--family", "pairs", "--resume", str(file)])
    assert again.exit_code == 0
    assert [cell.faults[1] for cell in ran] == ["mid-write:kill@after=2", "after-prepare:kill"]
    assert len(file.read_text().splitlines()) == 2
    assert len(list(tmp_path.glob("results/local/tables/*"))) == 2
    older = [json.loads(line) for line in file.read_text().splitlines()]
    for each in older:
        del each["config"]["open_sessions"]  # an option that is younger than the report
    file.write_text("".join(json.dumps(each) + "\n" for each in older))
    assert CliRunner().invoke(cli, [*words, "--family", "kills", "--resume", str(file)]).exit_code == 0
    assert len(ran) == 2
    assert CliRunner().invoke(cli, [*words, "--family", "kills", "--open-sessions", "7"]).exit_code == 0
    assert ran[-1].open_sessions == 7


def test_shares_run_every_cell_once_and_are_shown_together(tmp_path: Path, ran: list[Cell]) -> None:
    words = ["faults", "--sink", "kafka", "--only", "two-phase", "--seeds", "3", "--family", "kills"]
    for share in ("1/2", "2/2"):
        assert CliRunner().invoke(cli, [*words, "--share", share]).exit_code == 0
    assert [cell.seed for cell in ran] == [1, 3, 2]
    files = sorted(tmp_path.glob("results/local/runs/*.jsonl"))
    assert [len(file.read_text().splitlines()) for file in files] == [2, 1]
    both = CliRunner().invoke(cli, [*words, *(word for file in files for word in ("--resume", str(file)))])
    assert (both.exit_code, len(ran)) == (0, 3)
    assert "27 kills and 0 other faults in 27 cells" in both.stdout
    for wrong in ("0/2", "3/2", "half", "1"):
        assert CliRunner().invoke(cli, [*words, "--share", wrong]).exit_code == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--sink", "kafka"], "9 faults, about 2 min on two cores with three shares side by side, longer without"),
        (["--sink", "kafka", "--seeds", "50"], "450 faults, about 2 h on two cores with three shares side by side"),
        (["--sink", "kafka", "--seeds", "3", "--share", "1/3"],
         "9 faults, about 6 min on two cores with all 3 shares side by side\n"),
        (["--sink", "kafka", "--family", "random"], "43 faults, about 7 min on two cores"),
        (["--sink", "delta", "--only", "idempotent"], "18 faults, about 7 min on two cores"),
    ],
)  # fmt: skip
def test_at_its_start_it_says_how_many_faults_are_left_and_how_long_so_many_took(
    ran: list[Cell], words: list[str], told: str
) -> None:
    said = CliRunner().invoke(cli, [*KILLS, *words]).stderr
    assert f" are left here: {told}" in said.splitlines(keepends=True)[0]


def test_where_nothing_is_left_it_says_no_time(tmp_path: Path, ran: list[Cell]) -> None:
    CliRunner().invoke(cli, KILLS)
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    again = CliRunner().invoke(cli, [*KILLS, "--resume", str(file)])
    assert again.stderr.startswith("1 runs, of which 0 are left here\n")


def test_a_run_that_two_files_have_is_counted_once(tmp_path: Path, ran: list[Cell]) -> None:
    CliRunner().invoke(cli, KILLS)
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    again = CliRunner().invoke(cli, [*KILLS, "--resume", str(file), "--resume", str(file)])
    assert "9 kills and 0 other faults in 9 cells" in again.stdout


def test_a_family_that_is_named_twice_is_run_once(tmp_path: Path, ran: list[Cell]) -> None:
    CliRunner().invoke(cli, [*KILLS, "--family", "kills"])
    assert len(ran) == 1


@pytest.mark.parametrize("word", ["unknown", "vacuous"])
def test_a_matrix_that_can_not_tell_somewhere_ends_with_1(tmp_path: Path, ran: list[Cell], word: str) -> None:
    CliRunner().invoke(cli, KILLS)
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"verdict": word}) + "\n")
    assert CliRunner().invoke(cli, [*KILLS, "--resume", str(file)]).exit_code == 1


def test_a_matrix_with_a_broken_run_ends_with_3_also_if_none_of_its_faults_was_hit(
    tmp_path: Path, ran: list[Cell]
) -> None:
    CliRunner().invoke(cli, KILLS)
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    broken = json.loads(file.read_text()) | {"verdict": "broken", "broken_by": ["LOSS"]}
    broken["faults"] = [each | {"hit": False} for each in broken["faults"]]
    file.write_text(json.dumps(broken) + "\n")
    assert CliRunner().invoke(cli, [*KILLS, "--resume", str(file)]).exit_code == 3


def test_a_report_without_its_configuration_is_not_resumed_and_publishing_is_no_resuming(
    tmp_path: Path, ran: list[Cell]
) -> None:
    CliRunner().invoke(cli, KILLS)
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    refused = CliRunner().invoke(cli, [*KILLS, "--resume", str(file), "--publish"]).exception
    assert isinstance(refused, UserError)
    assert "oncebench table --publish FILE" in str(refused)
    old = json.loads(file.read_text())
    del old["config"]
    file.write_text(json.dumps(old) + "\n")
    refused = CliRunner().invoke(cli, [*KILLS, "--resume", str(file)]).exception
    assert isinstance(refused, UserError)
    assert "does not tell its configuration" in str(refused)


def test_an_interrupted_run_is_run_again_and_not_shown(tmp_path: Path, ran: list[Cell]) -> None:
    words = ["faults", "--sink", "kafka", "--only", "two-phase", "--seeds", "1", "--family", "kills"]
    assert CliRunner().invoke(cli, words).exit_code == 0
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    cut = json.loads(file.read_text()) | {"interrupted": True, "verdict": "unknown"}
    file.write_text(json.dumps(cut) + "\n")
    again = CliRunner().invoke(cli, [*words, "--resume", str(file)])
    assert (again.exit_code, len(ran)) == (0, 2)
    assert "9 kills and 0 other faults in 9 cells: 0 broken, 0 unknown" in again.stdout


def test_reports_are_added_to_a_file_of_reports_alone_and_each_on_a_line_of_its_own(tmp_path: Path) -> None:
    alone = tmp_path / "report.json"
    alone.write_text("{}")
    refused = CliRunner().invoke(cli, ["faults", "--sink", "sqlite", "--resume", str(alone)]).exception
    assert isinstance(refused, UserError)
    assert refused.exit_code == 2
    half = tmp_path / "runs" / "reports.jsonl"
    half.parent.mkdir()
    half.write_text('{"a": 1}')
    Results.of(half).add({"b": 2})
    assert [json.loads(line) for line in half.read_text().splitlines()] == [{"a": 1}, {"b": 2}]
    with half.open("a") as file:
        file.write('{"a": ')  # cut
    Results.of(half).add({"c": 3})
    assert [json.loads(line) for line in half.read_text().splitlines()] == [{"a": 1}, {"b": 2}, {"c": 3}]


@pytest.mark.parametrize("there", ["", '{"schema": 1, "ver'])
def test_a_file_whose_first_report_found_no_room_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell], there: str
) -> None:
    monkeypatch.setattr(command, "numbered", report_files.numbered)
    file = tmp_path / "runs" / "reports.jsonl"
    file.parent.mkdir()
    file.write_text(there)
    assert CliRunner().invoke(cli, [*KILLS, "--resume", str(file)]).exit_code == 0
    assert [json.loads(line)["run"] for line in file.read_text().splitlines()] == ["ob-1"]


def test_a_choice_that_leaves_nothing_is_refused() -> None:
    refused = CliRunner().invoke(cli, ["faults", "--only", "no such row"]).exception
    assert isinstance(refused, UserError)
    assert refused.exit_code == 2


NO_DISK = "a small disk is mounted by root only"


def test_faults_that_can_not_be_done_here_are_left_out_one_by_one_and_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell]
) -> None:
    words = ["faults", "--sink", "files-jsonl", "--only", "two-phase", "--seeds", "1"]
    monkeypatch.setattr("oncebench.faults.catalogue.cannot_mount", lambda: None)
    theirs = CliRunner().invoke(cli, [*words, "--family", "disk", "--bootstrap-servers", "theirs:9092"])
    assert "left out: mid-write:fill-broker:20, after-decision:fill-broker:20 (the kafka of" in theirs.stderr
    assert [fault.split("@")[0] for fault in ran.pop().faults] == [
        "after-prepare:fill-checkpoint:20", "mid-write:fill-output:20", "after-decision:fill-output:20",
    ]  # fmt: skip
    monkeypatch.setattr("oncebench.faults.catalogue.cannot_mount", lambda: NO_DISK)
    assert CliRunner().invoke(cli, words).stderr.count("left out: ") == 1
    assert len(ran) == len(
        [family for family in fault_matrix.FAMILIES if family not in ("disk", "postgres", "timeout")]
    )
    whole = CliRunner().invoke(cli, [*words, "--family", "kills"])
    assert "left out" not in whole.stderr


def test_an_outage_that_is_longer_than_the_time_out_can_be_done_with_a_kafka_of_the_users_own(ran: list[Cell]) -> None:
    words = ["--only", "two-phase", "--family", "timeout", "--bootstrap-servers", "theirs:9092"]
    assert "left out" not in CliRunner().invoke(cli, ["faults", "--sink", "kafka", "--seeds", "1", *words]).stderr
    assert len(ran) == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--family", "disk"], NO_DISK),
        (["--family", "postgres"], "a run of sink kafka has no postgres"),
        (["--family", "broker", "--bootstrap-servers", "theirs:9092"], "the kafka of this run is not ours to break"),
    ],
)
def test_a_choice_of_which_nothing_can_be_done_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, ran: list[Cell], words: list[str], why: str
) -> None:
    monkeypatch.setattr("oncebench.faults.catalogue.cannot_mount", lambda: NO_DISK)
    refused = CliRunner().invoke(cli, ["faults", "--sink", "kafka", *words]).exception
    assert str(refused) == f"none of these faults can be done: {why}"


def test_a_line_that_was_cut_while_it_was_written_is_no_report_and_refuses_none() -> None:
    assert whole_lines('{"a": 1}\n{"b": ') == ['{"a": 1}\n']
    assert whole_lines('{"a": 1}\n{"b": 2}') == ['{"a": 1}\n', '{"b": 2}']
    assert whole_lines('{"a": 1}\n{"b": \n') == ['{"a": 1}\n', '{"b": \n']  # not cut but damaged: to be refused
    assert whole_lines("") == []


@pytest.mark.parametrize(
    "error", [None, KeyboardInterrupt(), UserError("before the load", exit_code=ExitCode.INTERRUPTED)]
)
def test_an_interrupted_matrix_shows_what_is_done_and_the_command_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell], error: BaseException | None
) -> None:
    whole = command.run_series

    def cut(cells: list[Cell], *others: Any) -> Any:
        yield from whole(cells[:1], *others)
        if error is not None:
            raise error

    monkeypatch.setattr(command, "run_series", cut)
    words = ["--sink", "kafka", "--only", "two-phase exactly-once", "--seeds", "3", "--family", "kills"]
    done = CliRunner().invoke(cli, ["faults", *words, "--publish", "--work-dir=there", "--share", "1/1"])
    assert done.exit_code == 130
    assert "9 kills and 0 other faults in 9 cells" in done.stdout
    (file,) = Path().glob("results/runs/*.jsonl")
    again = f"faults {shlex.join(words)} --share 1/1 --resume {file}"
    assert done.stderr.endswith(f"interrupted: 1 of 3 runs done; go on with `oncebench {again}`\n")
    monkeypatch.setattr(command, "run_series", whole)
    assert CliRunner().invoke(cli, shlex.split(again)).exit_code == 0
    assert [cell.seed for cell in ran] == [1, 2, 3]
    monkeypatch.setattr(command, "run_series", cut)
    third = CliRunner().invoke(cli, [*shlex.split(again), "--seeds", "5"]).stderr
    assert third.count("--resume") == 1


def test_a_matrix_that_was_interrupted_before_anything_was_stored_goes_on_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell]
) -> None:
    monkeypatch.setattr(command, "run_series", lambda *_: iter(()))
    done = CliRunner().invoke(cli, KILLS)
    assert done.exit_code == 130
    assert done.stderr.endswith(
        "interrupted: 0 of 1 runs done, and nothing is stored: there is nothing to go on with\n"
    )


def test_an_error_that_is_no_interruption_is_told_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell]
) -> None:
    def fail(*_: Any) -> Any:
        raise UserError("the disk is full")

    monkeypatch.setattr(command, "run_series", fail)
    assert str(CliRunner().invoke(cli, KILLS).exception) == "the disk is full"


def test_shares_that_go_on_run_what_is_theirs_in_whichever_order_and_leave_older_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell]
) -> None:
    assert CliRunner().invoke(cli, KILLS).exit_code == 0
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    before = file.read_text()
    for share in ("1/2", "2/2"):
        again = CliRunner().invoke(cli, [*KILLS, "--seeds", "4", "--resume", str(file), "--share", share])
        assert again.exit_code == 0
    assert [cell.seed for cell in ran] == [1, 3, 2, 4]
    assert file.read_text() == before
    assert sorted(len(each.read_text().splitlines()) for each in file.parent.iterdir()) == [1, 1, 2]


def test_a_share_that_was_interrupted_goes_on_as_that_share_with_every_file_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell]
) -> None:
    whole, times = command.run_series, iter(("morning", "noon", "evening"))
    monkeypatch.setattr(command, "run_series", lambda cells, *others: whole(cells[:1], *others))
    monkeypatch.setattr(command, "stamp", lambda: next(times))
    words = [*KILLS, "--seeds", "6", "--share", "1/2"]
    files = [f"results/local/runs/faults-{time}-1.jsonl" for time in ("morning", "noon")]
    for done, named in ((1, files[:1]), (2, files)):
        said = CliRunner().invoke(cli, words).stderr.splitlines()[-1]
        words = [*KILLS, "--seeds", "6", "--share", "1/2", *(word for file in named for word in ("--resume", file))]
        assert said == f"interrupted: 1 of {4 - done} runs done; go on with `oncebench {shlex.join(words)}`"
    assert CliRunner().invoke(cli, words).exit_code == 0
    assert [cell.seed for cell in ran] == [1, 3, 5]


def test_a_share_that_was_interrupted_before_it_stored_anything_goes_on_with_the_files_that_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell]
) -> None:
    assert CliRunner().invoke(cli, KILLS).exit_code == 0
    (file,) = Path().glob("results/local/runs/*.jsonl")
    monkeypatch.setattr(command, "run_series", lambda *_: iter(()))
    words = [*KILLS, "--seeds", "4", "--share", "1/2", "--resume", str(file)]
    said = CliRunner().invoke(cli, words).stderr
    assert f"\nreports {file}\n" in said
    assert said.endswith(f"interrupted: 0 of 1 runs done; go on with `oncebench {shlex.join(words)}`\n")
