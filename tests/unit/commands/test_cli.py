"""The command line: a mistake gives one clear line and an exit code, and starts nothing."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from oncebench.cli import COMMANDS, cli, main
from oncebench.commands import doctor, run
from oncebench.commands.run import require_writable
from oncebench.commands.shared.options import HEADINGS, base_cell
from oncebench.delivery.contract import GUARANTEES
from oncebench.delivery.errors import PipelineError
from oncebench.delivery.failpoints import POINTS
from oncebench.errors import ExitCode, UserError
from oncebench.report.tables.batches import table as batches_table
from oncebench.run.extra_load.warm_up import WARM_UP_SEED
from oncebench.scenario.cell import Cell
from oncebench.scenario.profiles import PROFILES
from oncebench.scenario.supports import require_sinks
from oncebench.sinks.registry import SINKS
from tests import COMMAND

GOOD = ("run", "--sink", "kafka", "--guarantee", "exactly-once")


def run_command(*words: str, cwd: Path | None = None, **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the real command, in a process of its own."""
    done = subprocess.run(
        [*COMMAND, *words],
        capture_output=True, text=True, timeout=120, check=False, cwd=cwd, env={**os.environ, **environment},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("run", "--sink", "nowhere", "--guarantee", "exactly-once"), "unknown sink 'nowhere'; the sinks are: "),
        (("run", "--sink", "kafka", "--guarantee", "twice"), "unknown delivery guarantee 'twice'; they are: "),
        (("run", "--sink", "kafka", "--guarantee", "exactly"), "'exactly' (did you mean exactly-once?); they are: "),
        ((*GOOD, "--variant", "two-phas"), "no variant 'two-phas' of exactly-once (did you mean two-phase?); it has: "),
        ((*GOOD, "--variant", "claim"), "has no variant 'claim' of exactly-once; it has: two-phase, idempotent"),
        ((*GOOD, "--fault", "nowhere"), "unknown failpoint 'nowhere'; the failpoints are: batch-start"),
        ((*GOOD, "--fault", "mid-write:stop"), "stop needs its seconds"),
        ((*GOOD, "--rate", "0"), "rate: 0.0 events per second is not possible"),
        ((*GOOD, "--rate", "-1"), "rate: -1.0 events per second is not possible"),
        ((*GOOD, "--rate", "nan"), "not possible"),
        ((*GOOD, "--rate", "1e300"), "rate: 1e+300 events per second is not possible; give a number above 0 and up to"),
        ((*GOOD, "--duration", "1e300"), "duration: 1e+300 s is not possible; give a number above 0 and up to"),
        ((*GOOD, "--rate", "1e9", "--duration", "1e5"), "more than a load can have"),
        ((*GOOD, "--seed", str(WARM_UP_SEED)), "is not in the range"),
        (("sustain", "--seed", str(WARM_UP_SEED)), "is not in the range"),
        ((*GOOD, "--warmup", "nan"), "nan is not a number of seconds"),
        ((*GOOD, "--warmup", "inf"), "is not in the range"),
        ((*GOOD, "--fault", "mid-write:stop:999999"), "is not of the form"),
        ((*GOOD, "--rate", "fast"), "neither a number of events per second nor"),
        ((*GOOD, "--shape", "square"), "shape"),
        ((*GOOD, "--duration", "-3"), "must be a number of seconds above 0"),
        ((*GOOD, "--duration", "3", "--sessions", "3"), "not both"),
        ((*GOOD, "--rate", "0.1", "--duration", "20"), "would last 1000 s at this rate. Give --duration 1000, or a"),
        ((*GOOD, "--rate", "10", "--duration", "25"), "would last 20 s at this rate"),
        ((*GOOD, "--sessions", "0"), "at least 1 is needed"),
        ((*GOOD, "--master", "moon"), "is not a Spark master"),
        ((*GOOD, "--master", "local[2,4]"), "master local[2,4] tries failed tasks again"),
        ((*GOOD, "--partitions", "0"), "is not in the range"),
        ((*GOOD, "--json", "no/such/folder/report.json"), "there is no folder no/such/folder. Create it"),
        ((*GOOD, "--json", "/"), "it is a folder"),
        ((*GOOD, "--json", "/proc/report.json"), "--json /proc/report.json: it cannot be written ("),
        ((*GOOD, "--work-dir", ""), "the name of the folder is empty"),
        ((*GOOD, "--work-dir", "/etc"), "is not a work dir of this suite"),
        (("load", "--topic", "t"), "Give its address with --bootstrap-servers"),
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
        ((*GOOD, "--postgres", "host=db1"), "--postgres has no effect here"),
        (("compare", "--postgres", "host=db1"), "--postgres has no effect here"),
        ((*GOOD, "--variant", "idempotent", "--on-lost", "drop"), "--on-lost has no effect here"),
        ((*GOOD, "--outage", "5"), "--outage has no effect here"),
        ((*GOOD, "--brokers", "3", "--random-kills", "1", "--outage", "5"), "in front of one broker only"),
        ((*GOOD, "--brokers", "3", "--bootstrap-servers", "b:1"), "--brokers has no effect on your own Kafka"),
        ((*GOOD, "--replication", "3"), "--replication has no effect on brokers that are started here"),
        (("faults", "--replication", "3"), "--replication has no effect on brokers that are started here"),
        ((*GOOD, "--generators", "0"), "is not in the range"),
        ((*GOOD, "--sessions", "3", "--generators", "4"), "the load has 3 sessions"),
        ((*GOOD, "--observers", "3"), "the output has 2 partitions"),
        (("compare", "--sink", "sqlite", "--observers", "2"), "sink sqlite has no reader for a part of its output"),
        ((*GOOD, "--fault", "mid-commit:rolling-restart"), "one broker has no other to take over. Give --brokers 3"),
        (("compare", "--only", "at-least-once", "--on-lost", "drop"), "--on-lost has no effect here"),
        (("compare", "--sink", "broken-kafka"), "no cells of sink broken-kafka: give --profile broken"),
        (("compare", "--profile", "broken", "--sink", "kafka"), "no cells of sink kafka"),
        (("batches", "--sink", "broken-kafka"), "is broken on purpose"),
        (("list", "--sink", "nowhere"), "unknown sink 'nowhere'"),
        (("table", "no-such-folder"), "no-such-folder does not exist. Give a run's work folder, a report.json"),
        (("audit", "no-such-folder"), "no-such-folder does not exist"),
        (("compare", "--only", "no such cell"), "no cell's title"),
        (("compare", "--profile", "slow"), "is not one of"),
        (("faults", "--sink", "kafka", "--only", "no such row"), "no row of the matrix matches"),
        (("faults", "--sink", "kafka", "--family", "postgres"), "a run of sink kafka has no postgres"),
        (
            ("faults", "--sink", "kafka", "--family", "broker", "--bootstrap-servers", "localhost:1"),
            "the kafka of this run is not ours to break",
        ),
        (("burn",), "No such command"),
    ],
)
def test_a_mistake_gives_one_line_and_exit_code_2(words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, words, catch_exceptions=True)
    if isinstance(result.exception, UserError):
        assert (result.exception.exit_code, expected in str(result.exception)) == (2, True), result.exception
    else:
        assert (result.exit_code, expected in result.output) == (2, True), result.output


def test_a_mistake_prints_no_traceback_and_leaves_no_files(tmp_path: Path) -> None:
    code, out, err = run_command("run", "--sink", "nowhere", "--guarantee", "exactly-once", cwd=tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("oncebench: unknown sink 'nowhere'; the sinks are: ")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_unreachable_broker_is_reported_within_seconds(tmp_path: Path) -> None:
    for guarantee in (
        "exactly-once",
        "at-most-once",
    ):  # at-most-once prepares nothing, so the default of --on-lost has no effect
        cell = ("--sink", "kafka", "--guarantee", guarantee)
        code, _, err = run_command("run", *cell, "--bootstrap-servers", "127.0.0.1:1", cwd=tmp_path)
        assert code == 5
        assert "no Kafka can be reached at 127.0.0.1:1" in err


def test_missing_java_is_reported_with_the_variable_to_set(tmp_path: Path) -> None:
    nothing = {
        "PATH": str(tmp_path),
        "JAVA_HOME": "",
        "ONCEBENCH_FETCH_JAVA": "0",
        "ONCEBENCH_CACHE": str(tmp_path / "c"),
    }
    code, _, err = run_command(*GOOD, cwd=tmp_path, **nothing)
    assert code == 5
    assert "no Java 17, 21 or 25" in err
    assert "JAVA_HOME" in err


def test_a_try_of_the_reports_file_changes_nothing(tmp_path: Path) -> None:
    earlier, link = tmp_path / "earlier.json", tmp_path / "link.json"
    earlier.write_text("{}")
    link.symlink_to(tmp_path / "target.json")
    for path in (None, "-", earlier, link, tmp_path / "new.json"):
        require_writable(path and str(path))
    assert (sorted(tmp_path.iterdir()), earlier.read_text()) == ([earlier, link], "{}")


def test_a_report_that_cannot_be_written_names_its_option_and_the_stored_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports").mkdir()

    def folder_goes(*_: Any, **__: Any) -> dict[str, Any]:
        (tmp_path / "reports").rmdir()
        return {"interrupted": False}

    monkeypatch.setattr(run, "run_one", folder_goes)
    monkeypatch.setattr(run, "summary", lambda *_: "")
    words = [*GOOD, "--json", "reports/r.json", "--work-dir", "work"]
    failed = CliRunner().invoke(cli, words).exception
    assert isinstance(failed, UserError)
    assert failed.exit_code == ExitCode.ENVIRONMENT
    assert "reports/r.json can't be written" in str(failed)
    assert str(failed).endswith("or instead of --json take the same report from work/report.json")


def test_a_foreign_folder_is_refused_as_work_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "letter.txt").write_text("dear")
    refused = CliRunner().invoke(cli, [*GOOD, "--work-dir", "theirs"]).exception
    assert isinstance(refused, UserError)
    assert (refused.exit_code, "is not a work dir of this suite" in str(refused)) == (ExitCode.USAGE, True)
    assert (tmp_path / "theirs" / "letter.txt").read_text() == "dear"


def test_a_newer_or_damaged_report_is_refused(tmp_path: Path) -> None:
    newer, damaged, other = tmp_path / "newer.json", tmp_path / "damaged.json", tmp_path / "other.json"
    newer.write_text(json.dumps({"schema": 99, "verdict": "kept"}))
    damaged.write_text('{"schema": 1, "verd')
    other.write_text("{}")
    for file, expected in (
        (newer, "judge it with a newer one"),
        (damaged, "is not a report"),
        (other, "is not a report"),
    ):
        refused = CliRunner().invoke(cli, ["audit", str(file)]).exception
        assert isinstance(refused, UserError)
        assert (refused.exit_code, expected in str(refused)) == (1, True)


def test_every_cell_of_every_profile_has_its_command() -> None:
    for profile in PROFILES.values():
        for cell in profile.cells(base_cell(rate="500", duration=4, sessions=None, shape="constant")):
            words = shlex.split(cell.reproduce())
            assert words[:2] == ["oncebench", "run"]
            rate, sessions = words[words.index("--rate") + 1], words[words.index("--sessions") + 1]
            assert (float(rate), int(sessions)) == (500.0, cell.sessions)
            assert words.count("--fault") == len(cell.faults)


def test_a_chain_has_each_failpoint_in_its_own_batch() -> None:
    for cell in PROFILES["failpoints"].select_cells(None):
        if cell.faults:
            assert [fault.split(":")[0] for fault in cell.faults] == list(POINTS)
            assert all(fault.endswith("@after=2") for fault in cell.faults[1:])


def test_the_list_has_all_variants_and_failpoints() -> None:
    shown = CliRunner().invoke(cli, ["list"]).output
    assert all(word in shown for word in ("two-phase (default)", "idempotent", "native", "claim", *POINTS))


def test_the_list_is_limited_to_the_named_sinks() -> None:
    shown = CliRunner().invoke(cli, ["list", "--sink", "files-jsonl"]).output
    rows = [line.split() for line in shown.splitlines() if line.startswith("files-jsonl")]
    assert [row[1:4] for row in rows][3:] == [
        ["exactly-once", "idempotent", "(n/a)"],
        ["exactly-once", "two-phase", "(default)"],
    ]
    assert "kafka" not in shown


def test_guarantees_and_variants_have_one_order_everywhere() -> None:
    cells = [(cell.guarantee, cell.variant) for cell in PROFILES["quick"].select_cells(None, ["postgres"])[::2]]
    listed = [line.split()[1:3] for line in CliRunner().invoke(cli, ["list", "--sink", "postgres"]).output.splitlines()
              if line.startswith("postgres ")]  # fmt: skip
    lines = [{"round": 0, "arm": f"postgres.{'.'.join(each)}", "ms": 1.0} for each in reversed(cells)]
    timed = [line.split("|")[2:4] for line in batches_table(lines, 1).splitlines()[2:]]
    assert cells == [tuple(row) for row in listed] == [(a.strip(), b.strip()) for a, b in timed]
    assert [guarantee for guarantee, _ in cells] == sorted((d for d, _ in cells), key=GUARANTEES.index)


def test_a_closed_stdout_is_no_error() -> None:
    shown = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -c 'from oncebench.cli import main; main()' list | true"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (shown.returncode, shown.stderr) == (0, "")


@pytest.mark.parametrize("closed", ["2> >(true)", "2>&-"])
def test_a_closed_stderr_does_not_change_an_exit_code(closed: str, tmp_path: Path) -> None:
    mistake = f"{sys.executable} -c 'from oncebench.cli import main; main()' audit {tmp_path}/none"
    ended = subprocess.run(["bash", "-c", f"{mistake} {closed}"], capture_output=True, timeout=30, check=False)
    assert ended.returncode == ExitCode.USAGE


def test_audit_names_the_kind_of_a_wrong_folder(tmp_path: Path) -> None:
    comparison, load = tmp_path / "comparison", tmp_path / "load"
    (comparison / "cells" / "001").mkdir(parents=True)
    load.mkdir()
    (load / "load.jsonl").touch()
    for folder, expected in ((comparison, "Its runs are in cells/001 to 001"), (load, "nothing to judge")):
        refused = CliRunner().invoke(cli, ["audit", str(folder)]).exception
        assert isinstance(refused, UserError)
        assert (refused.exit_code, expected in str(refused)) == (2, True), refused


def test_a_profile_has_its_own_load() -> None:
    shown = CliRunner().invoke(cli, ["list", "--profile", "failpoints"]).output.splitlines()
    assert all("--rate 300 --sessions 180" in line for line in shown)


def test_a_line_of_progress_counts_the_faults_of_a_chain() -> None:
    few, many = (Cell("kafka", "exactly-once", "two-phase", faults=("mid-write:kill",) * n) for n in (2, 9))
    assert few.brief == few.title
    assert many.brief == "kafka exactly-once two-phase, 9 faults"
    assert replace(many, open_sessions=500).brief == "kafka exactly-once two-phase, 9 faults, 500 open sessions"
    assert replace(few, open_sessions=500).title == f"{few.title}, 500 open sessions"


def test_the_reproduce_command_omits_defaults() -> None:
    assert Cell("kafka", "exactly-once", "two-phase").reproduce() == (
        "oncebench run --sink kafka --guarantee exactly-once --variant two-phase --sessions 200"
    )


def test_an_unknown_sink_lists_sound_sinks_broken_sinks_and_the_nearest() -> None:
    with pytest.raises(UserError) as refused:
        require_sinks(["kafak"])
    sound, _, broken = str(refused.value).partition("; broken on purpose: ")
    assert sound.startswith("unknown sink 'kafak' (did you mean kafka?); the sinks are: ")
    assert {"kafka", "postgres", "sqlite"} <= set(sound.partition("are: ")[2].split(", "))
    assert set(broken.split(", ")) == {name for name in SINKS if name.startswith("broken-")}
    with pytest.raises(UserError, match=r"^unknown sink 'xyz'; the sinks are: "):
        require_sinks(["xyz"])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_in_the_help_exists_and_describes_itself(name: str) -> None:
    shown = CliRunner().invoke(cli, [name, "--help"])
    assert shown.exit_code == 0
    assert "\n  [" not in shown.output  # an argument, which the text above the options explains
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert (command.name, command.help is not None) == (name, True)
    assert all(option.help for option in command.params if isinstance(option, click.Option))


def test_the_help_imports_no_command() -> None:
    script = "import sys; from oncebench.cli import cli; cli(['--help'], standalone_mode=False); print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "  doctor " in shown.stdout
    modules = shown.stdout.splitlines()[-1].split()
    assert not {"pyspark", "duckdb", "pandas", "oncebench.commands.run"} & set(modules)


def test_run_accepts_the_earlier_name_of_guarantee() -> None:
    words = ("run", "--sink", "nowhere", "--delivery", "exactly-once")
    refused = CliRunner().invoke(cli, words).exception
    assert isinstance(refused, UserError)
    assert str(refused).startswith("unknown sink 'nowhere'")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("no room", exit_code=ExitCode.ENVIRONMENT), 5, "oncebench: no room\n"),
        (PipelineError("the topic is gone"), 1, "oncebench: the topic is gone\n"),
        (KeyboardInterrupt(), 130, "\ninterrupted\n"),
        (OSError(errno.ENOSPC, "full", "/disk/file"), 5, "oncebench: /disk/file can't be written: "),
    ],
)
def test_an_error_of_a_command_decides_message_and_exit_code(
    error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(_folder: object) -> None:
        raise error

    monkeypatch.setattr(doctor, "checks", fail)
    monkeypatch.setattr(sys, "argv", ["oncebench", "doctor"])
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    monkeypatch.setattr(sys, "stderr", sys.stderr)  # main replaces it
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert capfd.readouterr().err.startswith(message)


def test_the_help_of_run_has_every_option_under_its_heading() -> None:
    shown = CliRunner().invoke(cli, ["run", "--help"]).output
    sections = re.split(r"\n(?=\w+:\n)", shown)
    found = {section.partition(":")[0]: re.findall(r"^  (?:-h, )?(--[a-z-]+)", section, re.M) for section in sections}
    command = cli.get_command(click.Context(cli), "run")
    assert command is not None
    assert {"Options", *HEADINGS} <= found.keys()
    assert found["Options"][:3] == ["--sink", "--guarantee", "--variant"]
    every = [option for options in found.values() for option in options]
    named = [param.opts[0] for param in command.params if isinstance(param, click.Option)]
    assert sorted(every) == sorted(["--help", *named])


def test_a_fetch_that_finds_everything_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "provision", lambda: None)
    monkeypatch.setattr(doctor, "checks", lambda _folder: [SimpleNamespace(name="java", ok=True, detail="", advice="")])
    assert (
        CliRunner().invoke(cli, ["doctor", "--fetch"]).stdout
        == "oncebench is set up: nothing is missing on this machine\n"
    )


def test_a_run_prints_the_path_of_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"interrupted": False, "verdict": "kept", "cell": {"sink": "kafka", "guarantee": "", "variant": ""}}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "run_one", lambda *_: made)
    done = CliRunner().invoke(cli, [*GOOD, "--json", "-"])
    (stored,) = Path("results/local/runs").glob("run-*.jsonl")
    assert done.stderr.splitlines() == [f"reports {stored}"]
    assert json.loads(done.stdout) == made
