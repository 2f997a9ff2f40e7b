"""`oncebench bench`: asv gets costs and guarantees per cell, under the right commit."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncebench import bench
from oncebench.bench import REPORTS
from oncebench.cli import cli
from oncebench.commands import bench as command
from oncebench.errors import UserError
from oncebench.scenario.cell import Cell
from oncebench.scenario.supports import all_supports
from tests import ROOT
from tests.unit.report.test_tables import BEHIND, report

KILLED = ["after-commit:kill"]


def killed(guarantee: str, verdict: str = "kept", lost: int = 0, duplicated: int = 0) -> dict[str, Any]:
    cell = {"sink": "kafka", "guarantee": guarantee, "variant": "v", "faults": KILLED, "random_kills": 0}
    rows = {"lost": lost, "duplicated": duplicated}
    return report(verdict=verdict, cell=cell, rows=rows, recovery={"first_visible": 12_300.0})


def test_healthy_runs_give_costs_per_round_and_guarantees_once() -> None:
    found = bench.figures_of([report(seed=1), report(seed=2, batches={"trigger_ms": 120.0})])
    assert found.keys() == {"kafka exactly-once two-phase"}
    mine = found["kafka exactly-once two-phase"]
    assert (mine["batch_ms"], mine["p99_ms"]) == ([100.0, 120.0], [7.0, 7.0])
    assert {name: mine[name] for name in ("broken", "untested", "lost", "duplicated")} == {
        "broken": [0.0], "untested": [0.0], "lost": [0.0], "duplicated": [0.0],
    }  # fmt: skip
    assert not mine.keys() & {"recovery_s", "gap_ms", "s_per_million"}  # at a fixed rate these would repeat the plan


def test_a_flat_out_run_gives_time_per_event_and_no_latency() -> None:
    flat_out = report(seed=1, config={"rate": "max"}, throughput={"events_per_s": 3000.0})
    (mine,) = bench.figures_of([report(seed=1), flat_out]).values()
    assert (mine["s_per_million"], mine["p99_ms"], mine["batch_ms"]) == ([333.3], [7.0], [100.0])
    assert mine["broken"] == [0.0]


def test_each_sink_step_is_its_own_metric() -> None:
    spent = {"prepare": 4.0, "decide": 2.0, "commit": 2.5, "total": 240.0}
    (mine,) = bench.figures_of([report(sink_ms=spent)]).values()
    assert {name: mine[name] for name in ("prepare_ms", "decide_ms", "commit_ms")} == {
        "prepare_ms": [4.0], "decide_ms": [2.0], "commit_ms": [2.5],
    }  # fmt: skip
    assert [240.0] not in mine.values()


@pytest.mark.parametrize(
    ("guarantee", "promised"),
    [("at-most-once", {"duplicated"}), ("at-least-once", {"lost"}), ("exactly-once", {"lost", "duplicated"})],
)
def test_a_killed_run_counts_only_forbidden_anomalies(guarantee: str, promised: set[str]) -> None:
    (mine,) = bench.figures_of([killed(guarantee)]).values()
    assert mine == {"broken": [0.0], "untested": [0.0], "recovery_s": [12.3], **{name: [0.0] for name in promised}}


def test_a_sink_that_duplicates_has_a_broken_guarantee() -> None:
    (mine,) = bench.figures_of([killed("exactly-once", "broken", duplicated=20)]).values()
    assert (mine["broken"], mine["duplicated"], mine["lost"]) == ([1.0], [20.0], [0.0])
    assert "recovery_s" not in mine


def test_a_broken_healthy_run_gives_no_costs() -> None:
    broken = report(verdict="broken", rows={"lost": 0, "duplicated": 40})
    (mine,) = bench.figures_of([broken, broken, report()]).values()
    assert (mine["broken"], mine["duplicated"], mine["p99_ms"]) == ([2.0], [80.0], [7.0])


def test_an_unknown_verdict_counts_as_untested() -> None:
    (mine,) = bench.figures_of([report(verdict="unknown"), report(verdict="vacuous"), report()]).values()
    assert (mine["broken"], mine["untested"], mine["p99_ms"]) == ([0.0], [2.0], [7.0])


def test_a_failed_run_is_printed_and_makes_its_cell_untested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def series(cells: Any, *others: Any) -> Any:
        for cell in cells:
            if cell.faulted:
                others[-1](cell, UserError("the pipeline died again and again"))

    monkeypatch.setattr(bench, "run_series", lambda *words: series(*words) or [])
    found = bench.figures(["kafka"], 1)
    assert found == {name: {"untested": [1.0]} for name in bench.names(["kafka"])}
    assert capsys.readouterr().err.count("died again and again") == len(found)


def test_a_server_that_does_not_start_affects_only_its_own_sink(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def series(cells: Any, *_: Any) -> Any:
        for number, cell in enumerate(cells):
            if cell.sink == "postgres" and number == len(starts):
                raise UserError("the server does not start")
            configuration = {"sink": cell.sink, "guarantee": cell.guarantee, "variant": cell.variant}
            yield report(cell={**configuration, "faults": list(cell.faults), "random_kills": 0})

    starts: list[str] = ["one run"]
    monkeypatch.setattr(bench, "run_series", series)
    found = bench.figures(["kafka", "postgres"], 1)
    assert found.keys() == set(bench.names(["kafka", "postgres"]))
    untested = {sink: sum(figures["untested"][0] for name, figures in found.items() if name.startswith(sink))
                for sink in ("kafka", "postgres")}  # fmt: skip
    assert untested == {"kafka": 0.0, "postgres": 3 * len(bench.names(["postgres"])) - 1}
    assert "postgres: the server does not start. 17 of its runs are untested" in capsys.readouterr().err
    starts.clear()
    with pytest.raises(UserError, match="does not start"):
        bench.figures(["postgres"], 1)


def test_each_cell_runs_in_rounds_and_once_killed_and_flat_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[Cell] = []
    monkeypatch.setattr(bench, "run_series", lambda cells, *_: ran.extend(cells) or [])
    bench.figures(["kafka"], 3)
    for name in bench.names(["kafka"]):
        mine = [cell for cell in ran if f"{cell.sink} {cell.guarantee} {cell.variant}" == name]
        assert [(bool(cell.faults), cell.rate == "max") for cell in mine].count((False, False)) == 3
        assert sorted((bool(cell.faults), cell.rate == "max") for cell in mine)[3:] == [(False, True), (True, False)]


def test_with_enough_rounds_every_figure_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Cell] = []
    monkeypatch.setattr(bench, "run_series", lambda cells, *_: ran.extend(cells) or [])
    bench.figures(["kafka"], bench.TESTED_ROUNDS, "two-phase")
    kinds = [(bool(cell.faults), cell.rate == "max") for cell in ran]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        (False, False): bench.TESTED_ROUNDS, (True, False): bench.TESTED_ROUNDS, (False, True): bench.TESTED_ROUNDS,
    }  # fmt: skip
    assert sorted({cell.seed for cell in ran}) == list(range(1, bench.TESTED_ROUNDS + 1))


def test_reports_go_to_the_folder_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    went: list[Path] = []
    monkeypatch.setattr(bench, "run_series", lambda _cells, results, *_: went.append(results.runs) or [])
    bench.figures(["sqlite"], 1)
    monkeypatch.setenv(bench.REPORTS, f"{tmp_path}")
    bench.figures(["sqlite"], 1)
    assert [path.is_relative_to(tmp_path / "runs") for path in went] == [False, True]
    assert went[1].name.startswith("bench-")


def test_an_interruption_ends_all_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[str] = []
    monkeypatch.setattr(bench, "run_series", lambda cells, *_: began.append(cells[0].sink) or [])
    assert bench.figures(["kafka", "postgres"], 1) == {}
    assert len(began) == 1


@pytest.mark.parametrize(
    ("sinks", "only", "rounds"), [("", "", 3), ("", "", 7), ("kafka", "", 1), ("kafka", "exactly-once", 1)]
)
def test_the_asv_timeout_is_twice_the_expected_time(
    sinks: str, only: str, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("asv_runner")
    monkeypatch.setenv("ONCEBENCH_BENCH_SINKS", sinks)
    monkeypatch.setenv("ONCEBENCH_BENCH_ONLY", only)
    monkeypatch.setenv("ONCEBENCH_BENCH_ROUNDS", str(rounds))
    path = ROOT / "benchmarks" / "cells.py"
    cells = runpy.run_path(str(path))
    takes_s = len(bench.names(sinks.split(), only)) * (34 * rounds + (40 + 25) * (rounds if rounds >= 7 else 1))
    assert 2 * takes_s < cells["setup_cache"].timeout < 2 * takes_s + 1200


def test_every_measurable_cell_has_one_unique_name() -> None:
    assert len(bench.names()) == len(set(bench.names()))
    assert set(bench.names(["kafka"])) == {
        f"kafka {support.guarantee} {support.variant}" for sink, support in all_supports() if sink == "kafka"
    }


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for words in (["init", "-q"], ["config", "user.email", "a@b"], ["config", "user.name", "a"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / command.SETTINGS).write_text("{}")
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
    subprocess.run(["git", "commit", "-qm", "first"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_results_that_cannot_be_written_are_refused(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_asv", lambda *_: pytest.fail("asv was started"))
    (clone / "results").touch()
    refused = CliRunner().invoke(cli, ["bench", "--quick", "--dry-run"]).exception
    assert str(refused).startswith("the results in results/local: results cannot be written (it is a file). ")


def test_uncommitted_changes_are_refused_except_in_a_dry_run(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(command, "_asv", lambda words, _environment: ran.append(list(words)))
    (clone / "change").write_text("x")
    refused = CliRunner().invoke(cli, ["bench", "--quick"]).exception
    assert isinstance(refused, UserError)
    assert (refused.exit_code, ran) == (2, [])
    assert CliRunner().invoke(cli, ["bench", "--quick", "--dry-run"]).exit_code == 0
    assert "--dry-run" in ran[-1]


def test_quick_runs_one_sink_and_one_round_under_this_commit(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(command, "_asv", lambda words, environment: ran.append((list(words), environment)))
    assert CliRunner().invoke(cli, ["bench", "--quick", "--pages"]).exit_code == 0
    (_, (words, environment), (pages, _)) = ran
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=clone, capture_output=True, text=True, check=True)
    assert words[words.index("--set-commit-hash") + 1] == head.stdout.strip()
    assert f"--environment=existing:{sys.executable}" in words
    assert (environment["ONCEBENCH_BENCH_SINKS"], environment["ONCEBENCH_BENCH_ROUNDS"]) == ("kafka", "1")
    assert pages == ["publish"]
    assert environment[REPORTS] == f"{clone / 'results' / 'local'}"


@pytest.mark.parametrize(
    ("bench", "cells", "wanted"),
    [
        (None, ["kafka a b"], ["micro.Load.time_encode", "cells.Cost.track_p99_ms('kafka a b')"]),
        ("Cost", ["kafka a b", "delta a b"],
         ["cells.Cost.track_p99_ms('kafka a b')", "cells.Cost.track_p99_ms('delta a b')"]),
        ("^micro", ["kafka a b"], ["micro.Load.time_encode"]),
        ("nobody|time_decode$", ["kafka a b"], []),
        ("Cost", ["kafka a"], []),  # the beginning of a name is none
        ("speed", ["kafka a b"], ["speed.Speed.track_steady_p50_ms"]),
        ("speed", [], ["speed.Speed.track_steady_p50_ms"]),
        (None, [], ["micro.Load.time_encode", "cells.Cost.track_p99_ms('kafka a b')",
                    "cells.Cost.track_p99_ms('delta a b')"]),
    ],
)  # fmt: skip
def test_asv_gets_a_pattern_of_the_selected_cells(bench: str | None, cells: list[str], wanted: list[str]) -> None:
    of_cells = [f"cells.Cost.track_p99_ms('{sink} a b')" for sink in ("kafka", "delta")]
    names = ["micro.Load.time_encode", *of_cells, "speed.Speed.track_steady_p50_ms"]
    pattern = command.benchmark_pattern(bench, cells)
    assert [name for name in names if re.search(pattern, name)] == wanted


def test_only_selects_the_cells_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Cell] = []
    monkeypatch.setattr(bench, "run_series", lambda cells, *_: ran.extend(cells) or [])
    bench.figures([], 1, "kafka exactly-once")
    assert {(cell.sink, cell.guarantee, cell.variant) for cell in ran} == {
        ("kafka", "exactly-once", "idempotent"), ("kafka", "exactly-once", "two-phase"),
    }  # fmt: skip


def test_only_reaches_asv_and_is_refused_if_no_cell_matches(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(command, "_asv", lambda words, environment: ran.append((list(words), environment)))
    assert CliRunner().invoke(cli, ["bench", "--quick", "--only", "sqlite"]).exit_code == 0
    words, environment = ran[-1]
    assert environment["ONCEBENCH_BENCH_ONLY"] == "sqlite"
    asked = words[words.index("--bench") + 1]
    assert re.search(asked, "cells.Cost.track_p99_ms('sqlite exactly-once idempotent')")
    assert not re.search(asked, "cells.Cost.track_p99_ms('kafka exactly-once idempotent')")
    refused = CliRunner().invoke(cli, ["bench", "--only", "kafka nobody"]).exception
    assert isinstance(refused, UserError)
    assert (refused.exit_code, len(ran)) == (2, 2)


def test_older_commits_get_their_own_environments() -> None:
    words = command.arguments("micro", "a-machine", "main~3..main", False)
    assert words[-1] == "main~3..main"
    assert not any("existing" in word or "hash" in word for word in words)


def test_outside_a_clone_the_error_names_the_right_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(cli, ["bench"]).exception
    assert isinstance(refused, UserError)
    assert "clone" in str(refused)


@pytest.mark.parametrize(
    ("cpu", "cores", "name"),
    [
        ("AMD EPYC (family 25, model 1)", 2, "amd-epyc-family-25-model-1-2-cores"),
        ("AMD EPYC (family 26, model 2)", 2, "amd-epyc-family-26-model-2-2-cores"),
        ("AMD EPYC (family 26, model 2)", 4, "amd-epyc-family-26-model-2-4-cores"),
        (None, 8, "arm64-8-cores"),  # macOS
    ],
)
def test_asv_stores_the_figures_of_each_kind_of_machine_apart(
    cpu: str | None, cores: int, name: str, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(command, "_asv", lambda words, _variables: ran.append(list(words)))
    monkeypatch.setattr(command.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(command, "environment", lambda: {"cpu": cpu, "cores": cores, "memory_bytes": 24 * 10**9})
    done = CliRunner().invoke(cli, ["bench", "--quick"])
    assert done.exit_code == 0
    (machine, run) = ran
    assert machine == [
        "machine", "--yes", "--machine", name, "--cpu", f"{cpu or 'arm64'}, {cores} cores", "--ram", "24 GB"
    ]  # fmt: skip
    assert run[:3] == ["run", "--machine", name]
    assert f"`asv compare --machine {name} COMMIT COMMIT`" in done.stderr


def test_each_metric_is_an_asv_method_with_samples_or_a_skip() -> None:
    cells = pytest.importorskip("benchmarks.cells")
    skip = pytest.importorskip("asv_runner.benchmarks.mark").SkipNotImplemented
    figures = {"kafka exactly-once two-phase": {"p50_ms": [1.0, 2.0], "broken": [0.0]}}
    (cell,) = figures
    assert cells.Cost().track_p50_ms(figures, cell) == {"samples": [1.0, 2.0], "number": 1}
    assert cells.Promise().track_broken(figures, cell) == {"samples": [0.0], "number": 1}
    with pytest.raises(skip):
        cells.Recovery().track_recovery_s(figures, cell)


def test_quick_and_rounds_exclude_each_other(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_asv", lambda *_: pytest.fail("asv must not run"))
    refused = CliRunner().invoke(cli, ["bench", "--quick", "--rounds", "3"]).exception
    assert isinstance(refused, UserError)
    assert (refused.exit_code, str(refused)) == (2, "--quick means one round. Give --quick or --rounds, not both")


def test_a_late_generator_gives_no_recovery_figure() -> None:
    late = killed("exactly-once") | {"generator": {"lateness_ms": {"p99": 340.0}}}
    (mine,) = bench.figures_of([late]).values()
    assert "recovery_s" not in mine and mine["broken"] == [0.0]


def test_speed_counts_a_whole_flat_out_load_in_every_commit() -> None:
    speed = pytest.importorskip("benchmarks.speed")
    warmup_s = float(speed.FLAT_OUT[speed.FLAT_OUT.index("--warmup") + 1])
    assert warmup_s >= speed.RUN_LIMIT_S  # older commits leave out no warm-up time, newer ones one that a run reaches
    assert speed.Speed.version != "1"  # whose figures followed two rules


@pytest.mark.parametrize(
    ("verdicts", "code"), [(["kept", "kept"], 0), (["kept", "vacuous"], 1), (["unknown", "broken"], 3)]
)
def test_the_verdicts_of_the_runs_decide_the_exit_code(
    verdicts: list[str], code: int, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asv(words: list[str], _environment: object) -> None:
        runs = clone / "results" / "local" / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        (runs / f"bench-{words[0]}.jsonl").touch()

    made = [report(verdict=verdict, reproduce="again") for verdict in verdicts]
    monkeypatch.setattr(command, "_asv", asv)
    monkeypatch.setattr(command, "read_reports", lambda file: made if file.name == "bench-run.jsonl" else [])
    done = CliRunner().invoke(cli, ["bench", "--quick", "--dry-run"])
    assert done.exit_code == code
    for verdict in verdicts:
        named = f"kafka exactly-once two-phase: {verdict}\n  again\n"
        assert (named in done.stderr) == (verdict != "kept")


def test_a_run_that_fell_behind_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command._exit([report(), report(steadiness=BEHIND)])
    assert ended.value.code == 0
    assert capsys.readouterr().err.startswith(
        "kafka exactly-once two-phase: the pipeline fell behind its load (lag grew by "
    )


@pytest.mark.parametrize(("of_asv", "code"), [(0, 0), (1, 1), (2, 1), (-9, 1)])
def test_a_failed_benchmark_is_no_mistake_of_the_command_line(
    of_asv: int, code: int, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.foreground, "run", lambda *_: of_asv)
    assert CliRunner().invoke(cli, ["bench", "--quick", "--dry-run"]).exit_code == code
