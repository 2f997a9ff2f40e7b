"""`oncebench batches`: prints what is counted, and an interruption has its own exit code."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from oncebench.cli import cli
from oncebench.commands import batches
from oncebench.errors import ExitCode, MissingEnvironment, UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.report.tables.batch_series import series_in
from oncebench.servers.kafka.topics import Kafka

ARM = "files-jsonl.at-least-once.acknowledged"
LARGE = ("ledger", "kafka", "checkpoint", ARM)


def called(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    rounds: range,
    *words: str,
    interrupted: bool = False,
    kafka: KafkaAccess | None = None,
) -> Result:
    """Calls the command with a run that has timed these rounds."""

    @contextmanager
    def no_lab(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(kafka=Kafka(kafka or KafkaAccess("localhost:1")), own_kafka=not kafka, theirs={})

    def run(_lab: Any, work: Path, _arms: Any, _plan: Any, stopped: Callable[[], bool]) -> None:
        lines = [json.dumps({"round": number, "arm": ARM, "ms": 5.0}) for number in rounds]
        (work / "batches.jsonl").write_text("".join(f"{line}\n" for line in lines))
        if interrupted:
            signal.raise_signal(signal.SIGINT)
            assert stopped()

    monkeypatch.chdir(folder)
    monkeypatch.setattr(batches, "open_lab", no_lab)
    monkeypatch.setattr(batches, "run", run)
    return CliRunner().invoke(
        cli, ["batches", "--sink", "files-jsonl", "--only", "acknowledged", "--rounds", "4", *words]
    )


def test_an_interruption_prints_what_was_timed_and_exits_with_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = called(monkeypatch, tmp_path, range(-20, 2), interrupted=True)
    assert done.exit_code == ExitCode.INTERRUPTED
    assert "| acknowledged | 5.0 " in done.stdout
    assert "interrupted: 2 of 4 batches done after the warm-up" in done.stderr


def test_an_interruption_of_the_warm_up_prints_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = called(monkeypatch, tmp_path, range(-20, -5), interrupted=True)
    assert (done.exit_code, done.stdout) == (ExitCode.INTERRUPTED, "")


def test_json_has_no_rounds_of_the_warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = called(monkeypatch, tmp_path, range(-20, 4), "--json")
    assert (done.exit_code, [json.loads(line)["round"] for line in done.stdout.splitlines()]) == (0, [0, 1, 2, 3])


def test_a_series_is_stored_and_printed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = called(monkeypatch, tmp_path, range(-20, 4))
    (path,) = (tmp_path / "results" / "local" / "batches").glob("*.jsonl")
    again = CliRunner().invoke(cli, ["batches", "--from", str(path)])
    assert again.exit_code == 0, again.stderr
    assert done.stdout in again.stdout
    assert (
        "`oncebench batches --sink files-jsonl --only acknowledged --rows 1000 --rounds 4 --partitions 2 --seed 1`"
        in again.stdout
    )


@pytest.mark.parametrize("content", ['{"schema": 3}\n', '{"series": "a", "cell": {}}\n', "", "[]\n", "\0"])
def test_a_file_that_is_no_series_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(content * 2)
    refused = CliRunner().invoke(cli, ["batches", "--from", str(path)]).exception
    assert isinstance(refused, UserError)
    assert (refused.exit_code, "is no series of `oncebench batches`" in str(refused)) == (ExitCode.USAGE, True)


def test_a_missing_series_is_refused_with_the_folder_of_series(tmp_path: Path) -> None:
    refused = CliRunner().invoke(cli, ["batches", "--from", str(tmp_path / "none.jsonl")]).exception
    assert isinstance(refused, UserError)
    assert (refused.exit_code, "does not exist. Give a file of results/local/batches/" in str(refused)) == (
        ExitCode.USAGE, True,
    )  # fmt: skip


def test_rows_and_events_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = called(monkeypatch, tmp_path, range(0), "--rows", "10", "--events", "1000").exception
    assert isinstance(refused, UserError)
    assert (refused.exit_code, "give --rows or --events" in str(refused)) == (ExitCode.USAGE, True)


def test_a_series_names_the_kafka_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called(monkeypatch, tmp_path, range(4), kafka=KafkaAccess("kafka.example:9092"))
    (series,) = series_in(tmp_path / "results" / "local")
    assert series.about["environment"]["kafka"] == {
        "bootstrap_servers": "kafka.example:9092", "own": False,
    }  # fmt: skip


def test_series_that_cannot_be_compared_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called(monkeypatch, tmp_path, range(4))
    (path,) = (tmp_path / "results" / "local" / "batches").glob("*.jsonl")
    again = CliRunner().invoke(cli, ["batches", "--from", str(path), "--from", str(path)])
    assert again.stderr == "not compared: these files have the same series\n"


def test_batches_too_small_for_their_partitions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = called(monkeypatch, tmp_path, range(0), "--events", "100", "--partitions", "7").exception
    assert isinstance(refused, UserError)
    assert (refused.exit_code, "Give --events 700 or more" in str(refused)) == (ExitCode.USAGE, True)


def test_results_that_cannot_be_written_are_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results" / "local").mkdir(parents=True)
    (tmp_path / "results" / "local" / "batches").touch()
    refused = called(monkeypatch, tmp_path, range(4), "--work-dir", str(tmp_path / "work")).exception
    assert isinstance(refused, UserError)
    assert (refused.exit_code, "batches cannot be written (it is a file)" in str(refused)) == (ExitCode.USAGE, True)
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("keep", [False, True])
def test_only_keep_keeps_the_large_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool) -> None:
    work = tmp_path / "work"
    for name in LARGE:
        (work / name).mkdir(parents=True)
    (work / "oncebench-work.json").touch()
    called(monkeypatch, tmp_path, range(4), "--work-dir", str(work), *["--keep"] * keep)
    assert [name for name in LARGE if (work / name).exists()] == (list(LARGE) if keep else [])


def test_a_stored_series_is_printed_as_json_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = called(monkeypatch, tmp_path, range(4), "--json")
    (path,) = (tmp_path / "results" / "local" / "batches").glob("*.jsonl")
    assert CliRunner().invoke(cli, ["batches", "--from", str(path), "--json"]).stdout == done.stdout


@pytest.mark.parametrize("words", [["--publish"], ["--rounds", "3"], ["--events", "1000"], ["--keep"]])
def test_options_of_a_measurement_are_refused_with_a_stored_series(tmp_path: Path, words: list[str]) -> None:
    (path := tmp_path / "batches.jsonl").touch()
    refused = CliRunner().invoke(cli, ["batches", "--from", str(path), *words]).exception
    assert isinstance(refused, UserError)
    assert (refused.exit_code, f"{words[0]} has no effect with --from" in str(refused)) == (ExitCode.USAGE, True)


def test_a_load_without_room_on_the_disk_is_refused_before_a_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    refused = called(monkeypatch, tmp_path, range(4), "--events", "10000000000", "--work-dir", str(work)).exception
    assert isinstance(refused, MissingEnvironment)
    assert "run fewer events" in str(refused)
    assert not work.exists()


def test_a_work_dir_in_which_the_load_was_cut_off_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work := tmp_path / "work").mkdir()
    for name in ("oncebench-work.json", "load.json"):
        (work / name).touch()
    refused = called(monkeypatch, tmp_path, range(4), "--work-dir", str(work)).exception
    assert isinstance(refused, UserError)
    assert "contains load.json" in str(refused)
