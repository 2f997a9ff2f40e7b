"""`oncebench faults`: which runs it makes, and how it resumes an interrupted series."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands import faults as command
from oncebench.errors import ExitCode, Interrupted, UserError
from oncebench.record.json_lines import whole_lines
from oncebench.report import report as report_files
from oncebench.report.results import Results
from oncebench.report.tables.fault_matrix import MatrixCell
from oncebench.scenario.cell import Cell
from oncebench.scenario.matrix.families import EVERYDAY
from tests.unit.scenario.test_fault_matrix import fault, report

KILLS = ("faults", "--sink", "kafka", "--only", "two-phase", "--seeds", "1", "--family", "kills")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """The cells that the command runs, all with verdict kept; results go below tmp_path."""
    ran: list[Cell] = []

    def pretend(cells: list[Cell], results: Results, *_: Any, **__: Any) -> Any:
        for cell in cells:
            ran.append(cell)
            made = report(*(fault(text) for text in cell.faults)) | {"config": cell.as_json(), "run": f"ob-{len(ran)}"}
            made["cell"] |= {"variant": cell.variant}
            results.add(made)
            yield made

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "run_series", pretend)
    monkeypatch.setattr(command, "reports_with_lines", lambda path: enumerate(map(json.loads, path.open()), 1))
    return ran


def test_the_checkpoint_of_every_run_is_in_the_object_store(ran: list[Cell]) -> None:
    pytest.importorskip("obstore", reason="needs the extra s3")
    done = CliRunner().invoke(cli, [*KILLS, "--checkpoint", "s3://bench/runs"])
    assert [cell.checkpoint for cell in ran] == ["s3://bench/runs"]
    assert "kills, checkpoint in an object store:" in done.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--checkpoint", "/data"), "it takes an object store"),
        (("--checkpoint", "s3://bench/runs", "--cluster", "2"), "Take a local master"),
    ],
)
def test_a_checkpoint_that_no_run_could_use_is_refused_before_the_first(
    ran: list[Cell], words: tuple[str, ...], why: str
) -> None:
    pytest.importorskip("obstore", reason="needs the extra s3")
    refused = CliRunner().invoke(cli, [*KILLS, *words]).exception
    assert isinstance(refused, UserError)
    assert why in str(refused)
    assert (refused.exit_code, ran) == (ExitCode.USAGE, [])


def test_resume_skips_stored_runs_and_adds_new_reports(tmp_path: Path, ran: list[Cell]) -> None:
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
        del each["config"]["open_sessions"]  # a field that an older report lacks
    file.write_text("".join(json.dumps(each) + "\n" for each in older))
    assert CliRunner().invoke(cli, [*words, "--family", "kills", "--resume", str(file)]).exit_code == 0
    assert len(ran) == 2
    assert CliRunner().invoke(cli, [*words, "--family", "kills", "--open-sessions", "7"]).exit_code == 0
    assert ran[-1].open_sessions == 7


def test_a_workload_reaches_every_run_and_a_file_is_not_asked_for(ran: list[Cell]) -> None:
    assert CliRunner().invoke(cli, [*KILLS, "--workload", "windows"]).exit_code == 0
    assert {(cell.workload, cell.max_events_per_batch) for cell in ran} == {("windows", None)}
    assert CliRunner().invoke(cli, [*KILLS, "--workload", "records"]).exit_code == ExitCode.USAGE
    refused = CliRunner().invoke(cli, [*KILLS, "--workload", "windows", "--open-sessions", "7"])
    assert isinstance(refused.exception, UserError)
    assert (refused.exception.exit_code, len(ran)) == (ExitCode.USAGE, 1)
    assert "Leave out --open-sessions" in str(refused.exception)


def test_shares_run_every_cell_once_and_make_one_table(tmp_path: Path, ran: list[Cell]) -> None:
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
    ("words", "expected"),
    [
        (["--sink", "kafka"], "9 faults, about 2 min on two cores with three shares in parallel, longer without"),
        (["--sink", "kafka", "--seeds", "50"], "450 faults, about 2 h on two cores with three shares in parallel"),
        (["--sink", "kafka", "--seeds", "3", "--share", "1/3"],
         "9 faults, about 6 min on two cores with all 3 shares in parallel\n"),
        (["--sink", "kafka", "--family", "random"], "43 faults, about 7 min on two cores"),
        (["--sink", "delta", "--only", "idempotent"], "18 faults, about 7 min on two cores"),
    ],
)  # fmt: skip
def test_the_first_line_has_the_number_of_faults_and_the_duration(
    ran: list[Cell], words: list[str], expected: str
) -> None:
    said = CliRunner().invoke(cli, [*KILLS, *words]).stderr
    assert f" of them to do here: {expected}" in said.splitlines(keepends=True)[0]


def test_without_remaining_runs_there_is_no_estimate(tmp_path: Path, ran: list[Cell]) -> None:
    CliRunner().invoke(cli, KILLS)
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    again = CliRunner().invoke(cli, [*KILLS, "--resume", str(file)])
    assert again.stderr.startswith("1 runs, 0 of them to do here\n")


def test_a_run_in_two_files_counts_once(tmp_path: Path, ran: list[Cell]) -> None:
    CliRunner().invoke(cli, KILLS)
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    again = CliRunner().invoke(cli, [*KILLS, "--resume", str(file), "--resume", str(file)])
    assert "9 kills and 0 other faults in 9 cells" in again.stdout


def test_a_family_given_twice_runs_once(tmp_path: Path, ran: list[Cell]) -> None:
    CliRunner().invoke(cli, [*KILLS, "--family", "kills"])
    assert len(ran) == 1


@pytest.mark.parametrize("word", ["unknown", "vacuous"])
def test_an_unknown_or_vacuous_run_exits_with_1(tmp_path: Path, ran: list[Cell], word: str) -> None:
    CliRunner().invoke(cli, KILLS)
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"verdict": word}) + "\n")
    assert CliRunner().invoke(cli, [*KILLS, "--resume", str(file)]).exit_code == 1


def test_a_broken_run_exits_with_3_even_without_a_hit_fault(tmp_path: Path, ran: list[Cell]) -> None:
    CliRunner().invoke(cli, KILLS)
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    broken = json.loads(file.read_text()) | {"verdict": "broken", "broken_by": ["LOSS"]}
    broken["faults"] = [each | {"hit": False} for each in broken["faults"]]
    file.write_text(json.dumps(broken) + "\n")
    assert CliRunner().invoke(cli, [*KILLS, "--resume", str(file)]).exit_code == 3


def test_resume_refuses_publish_and_reports_without_configuration(tmp_path: Path, ran: list[Cell]) -> None:
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
    assert "has no configuration" in str(refused)


def test_resume_repeats_an_interrupted_run(tmp_path: Path, ran: list[Cell]) -> None:
    words = ["faults", "--sink", "kafka", "--only", "two-phase", "--seeds", "1", "--family", "kills"]
    assert CliRunner().invoke(cli, words).exit_code == 0
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    cut = json.loads(file.read_text()) | {"interrupted": True, "verdict": "unknown"}
    file.write_text(json.dumps(cut) + "\n")
    again = CliRunner().invoke(cli, [*words, "--resume", str(file)])
    assert (again.exit_code, len(ran)) == (0, 2)
    assert "9 kills and 0 other faults in 9 cells: 0 broken, 0 unknown" in again.stdout


def test_reports_are_added_only_to_a_jsonl_file(tmp_path: Path) -> None:
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
def test_a_file_without_a_whole_report_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell], there: str
) -> None:
    monkeypatch.setattr(command, "reports_with_lines", report_files.reports_with_lines)
    file = tmp_path / "runs" / "reports.jsonl"
    file.parent.mkdir()
    file.write_text(there)
    assert CliRunner().invoke(cli, [*KILLS, "--resume", str(file)]).exit_code == 0
    assert [json.loads(line)["run"] for line in file.read_text().splitlines()] == ["ob-1"]


def test_a_selection_without_rows_is_refused() -> None:
    refused = CliRunner().invoke(cli, ["faults", "--only", "no such row"]).exception
    assert isinstance(refused, UserError)
    assert refused.exit_code == 2


NO_DISK = "a small disk is mounted by root only"


def test_impossible_faults_are_left_out_with_the_reason(
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
    assert len(ran) == len([family for family in EVERYDAY if family not in ("disk", "postgres", "timeout")])
    whole = CliRunner().invoke(cli, [*words, "--family", "kills"])
    assert "left out" not in whole.stderr


def test_a_timeout_outage_is_possible_with_the_users_own_kafka(ran: list[Cell]) -> None:
    words = ["--only", "two-phase", "--family", "timeout", "--bootstrap-servers", "theirs:9092"]
    assert "left out" not in CliRunner().invoke(cli, ["faults", "--sink", "kafka", "--seeds", "1", *words]).stderr
    assert len(ran) == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--family", "disk"], NO_DISK),
        (["--family", "postgres"], "a run of sink kafka has no postgres"),
        (["--family", "broker", "--bootstrap-servers", "theirs:9092"], "the kafka of this run is not ours to break"),
        (
            ["--family", "leader-decide", "--only", "claim"],
            "leader-decide has no fault for this sink, guarantee and variant",
        ),
    ],
)
def test_a_selection_without_possible_faults_is_refused(
    monkeypatch: pytest.MonkeyPatch, ran: list[Cell], words: list[str], why: str
) -> None:
    monkeypatch.setattr("oncebench.faults.catalogue.cannot_mount", lambda: NO_DISK)
    refused = CliRunner().invoke(cli, ["faults", "--sink", "kafka", *words]).exception
    assert str(refused) == f"none of these faults is possible: {why}"


def test_a_cut_last_line_is_ignored() -> None:
    assert whole_lines('{"a": 1}\n{"b": ') == ['{"a": 1}\n']
    assert whole_lines('{"a": 1}\n{"b": 2}') == ['{"a": 1}\n', '{"b": 2}']
    assert whole_lines('{"a": 1}\n{"b": \n') == ['{"a": 1}\n', '{"b": \n']  # not cut but damaged: to be refused
    assert whole_lines("") == []


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), Interrupted("before the load")])
def test_an_interrupted_matrix_prints_results_and_the_resume_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell], error: BaseException | None
) -> None:
    whole = command.run_series

    def cut(cells: list[Cell], *others: Any, **more: Any) -> Any:
        yield from whole(cells[:1], *others, **more)
        if error is not None:
            raise error

    monkeypatch.setattr(command, "run_series", cut)
    words = ["--sink", "kafka", "--only", "two-phase exactly-once", "--seeds", "3", "--family", "kills"]
    done = CliRunner().invoke(cli, ["faults", *words, "--publish", "--work-dir=there", "--share", "1/1"])
    assert done.exit_code == 130
    assert "9 kills and 0 other faults in 9 cells" in done.stdout
    (file,) = Path().glob("results/runs/*.jsonl")
    again = f"faults {shlex.join(words)} --share 1/1 --resume {file}"
    assert done.stderr.endswith(f"interrupted: 1 of 3 runs done. Resume with `oncebench {again}`\n")
    monkeypatch.setattr(command, "run_series", whole)
    assert CliRunner().invoke(cli, shlex.split(again)).exit_code == 0
    assert [cell.seed for cell in ran] == [1, 2, 3]
    monkeypatch.setattr(command, "run_series", cut)
    third = CliRunner().invoke(cli, [*shlex.split(again), "--seeds", "5"]).stderr
    assert third.count("--resume") == 1


def test_an_interruption_before_the_first_report_has_nothing_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell]
) -> None:
    monkeypatch.setattr(command, "run_series", lambda *_, **__: iter(()))
    done = CliRunner().invoke(cli, KILLS)
    assert done.exit_code == 130
    assert done.stderr.endswith("interrupted: 0 of 1 runs done. Nothing is stored, so there is nothing to resume\n")


def test_an_error_other_than_an_interruption_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell]
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise UserError("the disk is full")

    monkeypatch.setattr(command, "run_series", fail)
    assert str(CliRunner().invoke(cli, KILLS).exception) == "the disk is full"


def test_resumed_shares_write_their_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell]) -> None:
    assert CliRunner().invoke(cli, KILLS).exit_code == 0
    (file,) = tmp_path.glob("results/local/runs/*.jsonl")
    before = file.read_text()
    for share in ("1/2", "2/2"):
        again = CliRunner().invoke(cli, [*KILLS, "--seeds", "4", "--resume", str(file), "--share", share])
        assert again.exit_code == 0
    assert [cell.seed for cell in ran] == [1, 3, 2, 4]
    assert file.read_text() == before
    assert sorted(len(each.read_text().splitlines()) for each in file.parent.iterdir()) == [1, 1, 2]


def test_an_interrupted_share_resumes_with_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell]
) -> None:
    whole, times = command.run_series, iter(("morning", "noon", "evening"))
    monkeypatch.setattr(command, "run_series", lambda cells, *others, **more: whole(cells[:1], *others, **more))
    monkeypatch.setattr(command, "stamp", lambda: next(times))
    words = [*KILLS, "--seeds", "6", "--share", "1/2"]
    files = [f"results/local/runs/faults-{time}-1.jsonl" for time in ("morning", "noon")]
    for done, named in ((1, files[:1]), (2, files)):
        said = CliRunner().invoke(cli, words).stderr.splitlines()[-1]
        words = [*KILLS, "--seeds", "6", "--share", "1/2", *(word for file in named for word in ("--resume", file))]
        assert said == f"interrupted: 1 of {4 - done} runs done. Resume with `oncebench {shlex.join(words)}`"
    assert CliRunner().invoke(cli, words).exit_code == 0
    assert [cell.seed for cell in ran] == [1, 3, 5]


def test_a_share_interrupted_early_resumes_with_the_given_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Cell]
) -> None:
    assert CliRunner().invoke(cli, KILLS).exit_code == 0
    (file,) = Path().glob("results/local/runs/*.jsonl")
    monkeypatch.setattr(command, "run_series", lambda *_, **__: iter(()))
    words = [*KILLS, "--seeds", "4", "--share", "1/2", "--resume", str(file)]
    said = CliRunner().invoke(cli, words).stderr
    assert f"\nreports {file}\n" in said
    assert said.endswith(f"interrupted: 0 of 1 runs done. Resume with `oncebench {shlex.join(words)}`\n")


def test_a_broken_fault_is_printed_with_its_codes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    of = MatrixCell(("kafka", "exactly-once", "two-phase"), "mid-write", "broken", "DUP LOSS", 1, 1, 1, "again")
    seen = [of, replace(of, outcome="vacuous", details="it was not hit"), replace(of, outcome="unknown", details="")]
    command._print([], seen, Results(tmp_path / "results", "faults-1"), [])
    row = "kafka exactly-once two-phase mid-write:"
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith(row)]
    assert lines == [f"{row} broken (DUP LOSS)", f"{row} vacuous (it was not hit)", f"{row} unknown"]
