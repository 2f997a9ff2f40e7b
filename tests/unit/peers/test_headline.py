"""The headline: equal loads for every engine, and one line per engine and guarantee."""

from __future__ import annotations

from typing import Any, cast

import pytest
from click.testing import CliRunner

from oncebench.errors import UserError
from oncebench.lab.engine import SPARK
from oncebench.report.schema import Report
from peers.headline.__main__ import main
from peers.headline.plan import LOADS, ROWS, Row, cells, engine_of
from peers.headline.table import commands, markdown

OURS = next(row for row in ROWS if row.variant == "two-phase")


def report(row: Row, load: str, **more: Any) -> Report:
    settings = {"rate": 1000.0, **LOADS[load]}
    made = {
        "cell": {"guarantee": row.guarantee, "variant": row.variant, "random_kills": settings.get("random_kills", 0)},
        "config": {"rate": settings["rate"]},
        "verdict": "kept",
        "broken_by": [],
        "rows": {"lost": 0, "duplicated": 0},
        "throughput": {"events_per_s": 80_000.0},
        "latency_ms": {"p50": 300.0, "p99": 500.0},
        "cpu_s_per_million_events": 15.0,
        "reproduce": f"{row.variant} {load}",
        **more,
    }
    return cast("Report", made)


def line(row: Row, *reports: Report) -> list[str]:
    _, _, *lines = markdown([row], reports).splitlines()
    (only,) = lines
    return [each.strip() for each in only.strip("|").split("|")]


def test_every_row_gets_the_same_loads_and_seeds() -> None:
    planned = list(cells(ROWS, 2, 7))
    assert len(planned) == 2 * len(ROWS) * len(LOADS)
    loads: dict[str, set[Any]] = {}
    for cell in planned:
        load = (cell.rate, cell.sessions, cell.warmup_s, cell.max_events_per_batch, cell.random_kills, cell.seed)
        loads.setdefault(f"{cell.guarantee} {cell.variant}", set()).add(load)
    assert len(loads) == len(ROWS)
    assert len({frozenset(each) for each in loads.values()}) == 1
    assert {cell.seed for cell in planned} == {7, 8}


def test_a_peer_has_its_own_transaction_timeout() -> None:
    found = {cell.variant: cell.transaction_timeout_ms for cell in cells(ROWS, 1, 1)}
    assert (found["two-phase"], found["flink-hashmap-1000ms"], found["streams-rocksdb-100ms"]) == (
        60_000,
        60_000,
        10_000,
    )


def test_neighbours_in_time_are_different_rows_under_one_load() -> None:
    planned = list(cells(ROWS, 1, 1))[: len(ROWS)]
    assert [(cell.guarantee, cell.variant) for cell in planned] == [(row.guarantee, row.variant) for row in ROWS]
    assert {cell.rate for cell in planned} == {"max"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_runs_on_its_engine(row: Row) -> None:
    cell = next(cells([row], 1, 1))
    if row.peer is None:
        assert engine_of(cell, cast("Any", None)) is SPARK
    else:
        assert row.variant.startswith(row.peer.variants.engine)


def test_a_line_has_medians_with_their_range_and_sums_of_the_kills() -> None:
    fast = [report(OURS, "flat out", throughput={"events_per_s": each}) for each in (90_000.0, 70_000.0, 80_000.0)]
    steady = report(OURS, "steady", cpu_s_per_million_events=450.0)
    killed = [report(OURS, "killed", rows={"lost": lost, "duplicated": 40}) for lost in (0, 20)]
    assert line(OURS, *fast, steady, *killed) == [
        "Spark, our sink", "exactly-once, two-phase", "80,000 (70,000 to 90,000)", "15.0 µs (15.0 to 15.0)",
        "300 ms", "500 ms", "450 µs", "6 times", "20", "80", "kept",
    ]  # fmt: skip


def test_what_was_not_measured_is_no_zero() -> None:
    assert line(OURS, report(OURS, "steady"))[2:4] == ["-", "-"]
    assert line(OURS, report(OURS, "steady"))[7:10] == ["-", "-", "-"]
    unknown = report(OURS, "killed", rows={"lost": None, "duplicated": 0})
    assert line(OURS, unknown)[8:10] == ["-", "0"]


def test_a_broken_run_is_not_hidden_behind_a_kept_one() -> None:
    broken = report(OURS, "killed", verdict="broken", broken_by=["LOSS", "DUP"])
    assert line(OURS, report(OURS, "killed"), broken)[-1] == "broken (DUP LOSS)"


def test_each_row_and_load_has_one_command() -> None:
    reports = [report(OURS, load) for load in LOADS] * 2
    assert commands(ROWS, reports) == [f"two-phase {load}" for load in LOADS]


def test_a_text_that_matches_no_row_is_refused_with_the_rows() -> None:
    refused = CliRunner().invoke(main, ["--only", "Storm"]).exception
    assert isinstance(refused, UserError)
    assert "Flink exactly-once flink-hashmap-1000ms" in str(refused)
