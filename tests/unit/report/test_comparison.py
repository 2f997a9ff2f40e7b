"""The text of a comparison is the same from runs and from stored reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from oncebench.cli import cli
from oncebench.report.tables import cost_table
from oncebench.report.tables import table as tables
from oncebench.report.tables.comparison import text
from tests import sample_reports
from tests.unit.report.test_paired import BASE, rounds
from tests.unit.report.test_sustained import probe
from tests.unit.report.test_tables import report


def test_ratios_and_differences_follow_the_table() -> None:
    six = rounds(8.0, 10.0, 12.0, 10.0, 10.0, 10.0)
    reported = text(six)
    assert reported.startswith(tables.markdown(six) + "\n")
    assert "+10.0 ms a batch (+8.0 to +12.0)" in reported
    assert reported.endswith(f"of the same sink, 95 % intervals:\n\n{cost_table.markdown(six)}")
    assert "--repeat" not in reported


def test_too_few_rounds_are_called_no_result() -> None:
    few = text(rounds(8.0, 9.0))
    assert (
        "\nNo comparison has more than 2 rounds. Fewer than 6 have no interval and show no difference. For a result, "
        in few
    )
    assert "+8.5 ms a batch" in few and "of the same sink, without intervals:" in few
    one = text(rounds(8.0))
    assert (
        "\nNo comparison has more than one round, and single rounds of equal cells often differ by more than 10 %. "
        in one
    )
    assert "For a result, give --repeat 6.\n\nfigures of single rounds:\n\n| sink " in one
    assert "versus" not in one and "1.08x" not in one and "ratios to" not in one


def test_a_single_cell_is_only_a_table() -> None:
    assert text([report()]) == tables.markdown([report()])


def test_rates_that_a_search_found_are_in_the_text() -> None:
    reported = text([report(), probe(1000, 0.0), probe(2000, 0.5), probe(2000, 0.5)])
    assert "\nwhat each guarantee keeps up with:\n\n| sink " in reported
    assert "| 1,000 " in reported and "| 2,000 " in reported


def test_the_table_command_prints_the_whole_comparison(tmp_path: Path) -> None:
    pair = [sample_reports.cell_of("kafka", "at-least-once", "acknowledged"),
            sample_reports.cell_of("kafka", "exactly-once", "two-phase")]  # fmt: skip
    file = tmp_path / "series.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in pair))
    done = CliRunner().invoke(cli, ["table", str(file)])
    assert done.exit_code == 0, done.output
    assert done.stdout == text(pair)
    assert "figures of single rounds:" in done.stdout


def killed(way: dict[str, Any], *faults: str, seed: int = 1) -> dict[str, Any]:
    each = [{"fault": fault, "point": fault.split(":")[0], "hit": True, "lost": 0, "duplicated": 20, "batch": 6,
             "recovery": {"first_visible": 4000.0}} for fault in faults]  # fmt: skip
    cell = {**way, "faults": list(faults)}
    return report(seed=seed, cell=cell, faults=each, recovery={"first_visible": 4000.0, "restart": 1.0})


def test_kills_of_one_kind_have_a_table_and_mixtures_have_none() -> None:
    kills = ("mid-write:kill", "after-commit:kill")
    pair = [killed(BASE, *kills), killed(report()["cell"], *kills)]
    reported = text(pair)
    assert f"rows that each fault lost or duplicated:\n\n{tables.fault_markdown(pair)}" in reported
    assert reported.endswith("differences and ratios are left out. For a result, give --repeat 6.\n")
    twice = text([*pair, killed(BASE, *kills, seed=2), killed(report()["cell"], *kills, seed=2)])
    assert twice.endswith("2 rounds: +0.0 s until new rows are seen\n")
    mixed = [killed(report()["cell"], "mid-write:kill", "after-commit:stop:5")]
    assert "rows that each fault" not in text(mixed)


def test_an_interrupted_run_is_left_out_unless_it_is_alone() -> None:
    cut = report("idempotent", "unknown", interrupted=True, reasons=["interrupted"])
    assert text([report(), cut]) == text([report()])
    assert "unknown" in text([cut])


def test_probes_alone_have_no_empty_table() -> None:
    assert text([probe(1000, 0.0)]).startswith("what each guarantee keeps up with:")


def test_a_run_that_proves_nothing_has_a_reason_and_advice() -> None:
    missed = report(seed=7, verdict="vacuous", reasons=["the fault after-commit:kill was not hit"])
    reported = text([missed, report(seed=8)])
    assert "vacuous: kafka exactly-once two-phase, healthy, seed 7: the fault after-commit:kill was not" in reported
    assert "vacuous: a fault that tested nothing. Run it again; if it was not hit, with a longer" in reported
    assert "unknown: " not in reported
    assert "vacuous: " not in text([report()])


def test_a_kept_run_without_figures_has_a_reason() -> None:
    late = report(seed=7, generator={"lateness_ms": {"p99": 340.0}})
    said = "no figures of kafka exactly-once two-phase, healthy, seed 7: the generator was 340 ms late"
    assert said in text([late, report(seed=8)])
    assert "no figures" not in text([report(), report("idempotent", "broken"), {**late, "probe": True}])
