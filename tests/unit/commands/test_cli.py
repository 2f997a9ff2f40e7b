"""Mistakes at the command line: one clear line, the right exit code, nothing started."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.commands.options import base_cell
from oncebench.delivery.contract import GUARANTEES
from oncebench.delivery.failpoints import POINTS
from oncebench.errors import UserError
from oncebench.report.tables.batches import table as batches_table
from oncebench.scenario.cell import Cell, require_sinks
from oncebench.scenario.profiles import PROFILES
from oncebench.sinks.registry import SINKS

GOOD = ("run", "--sink", "kafka", "--guarantee", "exactly-once")


def said(*words: str, cwd: Path | None = None, **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the real command, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", "from oncebench.cli import main; main()", *words],
        capture_output=True, text=True, timeout=120, check=False, cwd=cwd, env={**os.environ, **environment},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "--sink", "nowhere", "--guarantee", "exactly-once"), "unknown sink 'nowhere'; the sinks are: "),
        (("run", "--sink", "kafka", "--guarantee", "twice"), "unknown delivery guarantee 'twice'"),
        ((*GOOD, "--variant", "claim"), "has no variant 'claim' of exactly-once; it has: two-phase, idempotent"),
        ((*GOOD, "--fault", "nowhere"), "unknown failpoint 'nowhere'; the failpoints are: batch-start"),
        ((*GOOD, "--fault", "mid-write:stop"), "stop needs its seconds"),
        ((*GOOD, "--rate", "0"), "rate: 0.0 events per second is not possible"),
        ((*GOOD, "--rate", "-1"), "rate: -1.0 events per second is not possible"),
        ((*GOOD, "--rate", "nan"), "not possible"),
        ((*GOOD, "--rate", "1e300", "--duration", "1e300"), "make no load"),
        ((*GOOD, "--rate", "1e9", "--duration", "1e5"), "more than a load can have"),
        ((*GOOD, "--seed", str(2**64)), "is not in the range"),
        ((*GOOD, "--warmup", "nan"), "nan is no number of seconds"),
        ((*GOOD, "--warmup", "inf"), "is not in the range"),
        ((*GOOD, "--fault", "mid-write:stop:999999"), "is not of the form"),
        ((*GOOD, "--rate", "fast"), "neither a number of events per second nor"),
        ((*GOOD, "--shape", "square"), "shape"),
        ((*GOOD, "--duration", "-3"), "must be a number of seconds above 0"),
        ((*GOOD, "--duration", "3", "--sessions", "3"), "not both"),
        ((*GOOD, "--sessions", "0"), "at least 1 is needed"),
        ((*GOOD, "--master", "moon"), "is no Spark master"),
        ((*GOOD, "--master", "local[2,4]"), "master local[2,4] tries failed tasks again"),
        ((*GOOD, "--partitions", "0"), "is not in the range"),
        ((*GOOD, "--json", "no/such/folder/report.json"), "there is no folder no/such/folder; make it first"),
        ((*GOOD, "--json", "/"), "it is a folder"),
        (("load", "--topic", "t"), "say with --bootstrap-servers where that is"),
        (("run", "--sink", "sqlite", "--guarantee", "at-least-once"), "does not support at-least-once (the example"),
        (
            ("run", "--sink", "files-jsonl", "--guarantee", "exactly-once", "--variant", "idempotent"),
            "no variant 'idempotent' of exactly-once (a folder takes one file in one step",
        ),
        (("run", "--sink", "delta", "--guarantee", "exactly-once", "--variant", "two-phase"), "no process can end"),
        (
            ("run", "--sink", "broken-kafka", "--guarantee", "exactly-once"),
            "has no default for exactly-once; give --var",
        ),
        ((*GOOD, "--postgres", "host=db1"), "--postgres is of no use here"),
        (("compare", "--postgres", "host=db1"), "--postgres is of no use here"),
        ((*GOOD, "--variant", "idempotent", "--on-lost", "drop"), "--on-lost is of no use here"),
        (("compare", "--only", "at-least-once", "--on-lost", "drop"), "--on-lost is of no use here"),
        (("compare", "--sink", "broken-kafka"), "nothing of sink broken-kafka: give --profile broken"),
        (("compare", "--profile", "broken", "--sink", "kafka"), "nothing of sink kafka"),
        (("batches", "--sink", "broken-kafka"), "is broken on purpose"),
        (("list", "--sink", "nowhere"), "unknown sink 'nowhere'"),
        (("table", "no-such-folder"), "no-such-folder does not exist; give a run's work folder, a report.json"),
        (("audit", "no-such-folder"), "no-such-folder does not exist"),
        (("compare", "--only", "no such cell"), "no cell's title"),
        (("compare", "--profile", "slow"), "is not one of"),
        (("faults", "--sink", "kafka", "--only", "no such row"), "no row of the matrix has all that"),
        (("faults", "--sink", "kafka", "--family", "postgres"), "a run of sink kafka has no postgres"),
        (
            ("faults", "--sink", "kafka", "--family", "broker", "--bootstrap-servers", "localhost:1"),
            "the kafka of this run is not ours to break",
        ),
        (("burn",), "No such command"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_2(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, words, catch_exceptions=True)
    if isinstance(result.exception, UserError):
        assert (result.exception.exit_code, says in str(result.exception)) == (2, True), result.exception
    else:
        assert (result.exit_code, says in result.output) == (2, True), result.output


def test_the_real_command_prints_no_traceback_and_leaves_nothing(tmp_path: Path) -> None:
    code, out, err = said("run", "--sink", "nowhere", "--guarantee", "exactly-once", cwd=tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("oncebench: unknown sink 'nowhere'; the sinks are: ")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_unreachable_broker_is_told_within_seconds(tmp_path: Path) -> None:
    for guarantee in ("exactly-once", "at-most-once"):  # this one prepares nothing, so the default of --on-lost is idle
        cell = ("--sink", "kafka", "--guarantee", guarantee)
        code, _, err = said("run", *cell, "--bootstrap-servers", "127.0.0.1:1", cwd=tmp_path)
        assert code == 5
        assert "no Kafka can be reached at 127.0.0.1:1" in err


def test_no_java_is_told_with_what_to_set(tmp_path: Path) -> None:
    nothing = {
        "PATH": str(tmp_path),
        "JAVA_HOME": "",
        "ONCEBENCH_FETCH_JAVA": "0",
        "ONCEBENCH_CACHE": str(tmp_path / "c"),
    }
    code, _, err = said(*GOOD, cwd=tmp_path, **nothing)
    assert code == 5
    assert "no Java 17, 21 or 25" in err
    assert "JAVA_HOME" in err


def test_a_foreign_folder_is_not_taken_as_a_work_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "letter.txt").write_text("dear")
    refused = CliRunner().invoke(cli, [*GOOD, "--work-dir", "theirs"]).exception
    assert isinstance(refused, UserError)
    assert "is no work dir of this suite" in str(refused)
    assert (tmp_path / "theirs" / "letter.txt").read_text() == "dear"


def test_a_newer_and_a_damaged_report_are_refused(tmp_path: Path) -> None:
    newer, damaged, other = tmp_path / "newer.json", tmp_path / "damaged.json", tmp_path / "other.json"
    newer.write_text(json.dumps({"schema": 99, "verdict": "kept"}))
    damaged.write_text('{"schema": 1, "verd')
    other.write_text("{}")
    for file, says in ((newer, "judge it with a newer one"), (damaged, "is no report"), (other, "is no report")):
        refused = CliRunner().invoke(cli, ["audit", str(file)]).exception
        assert isinstance(refused, UserError)
        assert (refused.exit_code, says in str(refused)) == (1, True)


def test_every_cell_of_every_profile_gives_the_command_that_runs_it_again() -> None:
    for profile in PROFILES.values():
        for cell in profile.cells(base_cell(rate="500", duration=4, sessions=None, shape="constant")):
            words = shlex.split(cell.reproduce())
            assert words[:2] == ["oncebench", "run"]
            rate, sessions = words[words.index("--rate") + 1], words[words.index("--sessions") + 1]
            assert (float(rate), int(sessions)) == (500.0, cell.sessions)
            assert words.count("--fault") == len(cell.faults)


def test_a_chain_of_faults_has_every_failpoint_in_a_batch_of_its_own() -> None:
    for cell in PROFILES["failpoints"].chosen(None):
        if cell.faults:
            assert [fault.split(":")[0] for fault in cell.faults] == list(POINTS)
            assert all(fault.endswith("@after=2") for fault in cell.faults[1:])


def test_the_list_shows_what_can_be_combined() -> None:
    shown = CliRunner().invoke(cli, ["list"]).output
    assert all(word in shown for word in ("two-phase (default)", "idempotent", "native", "claim", *POINTS))


def test_the_list_is_of_the_sinks_that_are_named_and_has_variants_in_their_own_column() -> None:
    shown = CliRunner().invoke(cli, ["list", "--sink", "files-jsonl"]).output
    rows = [line.split() for line in shown.splitlines() if line.startswith("files-jsonl")]
    assert [row[1:4] for row in rows][3:] == [
        ["exactly-once", "idempotent", "(n/a)"],
        ["exactly-once", "two-phase", "(default)"],
    ]
    assert "kafka" not in shown


def test_guarantees_and_variants_come_in_one_order_everywhere() -> None:
    cells = [(cell.guarantee, cell.variant) for cell in PROFILES["quick"].chosen(None, ["postgres"])[::2]]
    listed = [line.split()[1:3] for line in CliRunner().invoke(cli, ["list", "--sink", "postgres"]).output.splitlines()
              if line.startswith("postgres ")]  # fmt: skip
    lines = [{"round": 0, "arm": f"postgres.{'.'.join(each)}", "ms": 1.0} for each in reversed(cells)]
    timed = [line.split("|")[2:4] for line in batches_table(lines, 1).splitlines()[2:]]
    assert cells == [tuple(row) for row in listed] == [(a.strip(), b.strip()) for a, b in timed]
    assert [guarantee for guarantee, _ in cells] == sorted((d for d, _ in cells), key=GUARANTEES.index)


def test_a_reader_that_goes_away_is_no_error() -> None:
    shown = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -c 'from oncebench.cli import main; main()' list | true"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (shown.returncode, shown.stderr) == (0, "")


def test_a_folder_that_is_no_runs_says_what_it_is(tmp_path: Path) -> None:
    comparison, load = tmp_path / "comparison", tmp_path / "load"
    (comparison / "cells" / "001").mkdir(parents=True)
    load.mkdir()
    (load / "load.jsonl").touch()
    for folder, says in ((comparison, "its runs are in cells/001 to 001"), (load, "nothing to judge")):
        refused = CliRunner().invoke(cli, ["audit", str(folder)]).exception
        assert isinstance(refused, UserError)
        assert (refused.exit_code, says in str(refused)) == (2, True), refused


def test_a_profile_has_a_load_of_its_own() -> None:
    shown = CliRunner().invoke(cli, ["list", "--profile", "failpoints"]).output.splitlines()
    assert all("--rate 300 --sessions 180" in line for line in shown)


def test_a_chain_of_faults_is_only_counted_in_a_line_of_progress() -> None:
    few, many = (Cell("kafka", "exactly-once", "two-phase", faults=("mid-write:kill",) * n) for n in (2, 9))
    assert few.brief == few.title
    assert many.brief == "kafka exactly-once two-phase, 9 faults"
    assert replace(many, open_sessions=500).brief == "kafka exactly-once two-phase, 9 faults, 500 open sessions"
    assert replace(few, open_sessions=500).title == f"{few.title}, 500 open sessions"


def test_defaults_stay_out_of_the_command_that_reproduces() -> None:
    assert Cell("kafka", "exactly-once", "two-phase").reproduce() == (
        "oncebench run --sink kafka --guarantee exactly-once --variant two-phase --sessions 200"
    )


def test_an_unknown_sink_is_told_the_sound_ones_first_the_broken_ones_apart_and_the_nearest() -> None:
    with pytest.raises(UserError) as told:
        require_sinks(["kafak"])
    sound, _, broken = str(told.value).partition("; broken on purpose: ")
    assert sound.startswith("unknown sink 'kafak' (did you mean kafka?); the sinks are: ")
    assert {"kafka", "postgres", "sqlite"} <= set(sound.partition("are: ")[2].split(", "))
    assert set(broken.split(", ")) == {name for name in SINKS if name.startswith("broken-")}
    with pytest.raises(UserError, match=r"^unknown sink 'xyz'; the sinks are: "):
        require_sinks(["xyz"])
