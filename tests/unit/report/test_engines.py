"""The table of engines: one row per engine and guarantee, from the reports alone."""

from __future__ import annotations

from typing import Any, cast

import pytest

from oncebench.report.schema import Report
from oncebench.report.tables.engines import FLAT_OUT, KILLED, STEADY, by_place, headings, is_of_spark, lines, markdown

CONFIGS: dict[str, dict[str, Any]] = {FLAT_OUT: {"rate": "max"}, STEADY: {"rate": 3000.0}, KILLED: {"rate": 1000.0}}


def report(load: str, variant: str = "two-phase", engine: str = "spark", **more: Any) -> Report:
    kills = [{"hit": True, "fault": "random:kill"}] * 3
    made = {
        "faults": kills if load == KILLED else [],
        "cell": {
            "sink": "kafka",
            "guarantee": "exactly-once",
            "variant": variant,
            "faults": [],
            "random_kills": 3 if load == KILLED else 0,
        },
        "config": CONFIGS[load],
        "environment": {"engine": {"name": engine, "settings": {}}},
        "verdict": "kept",
        "broken_by": [],
        "rows": {"lost": 0, "duplicated": 0},
        "throughput": {"events_per_s": 80_000.0},
        "latency_ms": {"p50": 300.0, "p99": 500.0},
        "cpu_s_per_million_events": 15.0,
        "reproduce": f"{engine} {variant} {load}",
        **more,
    }
    return cast("Report", made)


def line(*reports: Report) -> list[str]:
    (only,) = lines(reports)
    return list(only.cells)


def test_a_line_has_medians_with_their_range_and_sums_of_the_kills() -> None:
    fast = [report(FLAT_OUT, throughput={"events_per_s": each}) for each in (90_000.0, 70_000.0, 80_000.0)]
    steady = report(STEADY, cpu_s_per_million_events=450.0)
    killed = [report(KILLED, rows={"lost": lost, "duplicated": 40}) for lost in (0, 20)]
    assert line(*fast, steady, *killed) == [
        "Spark, our sink", "exactly-once, two-phase", "80,000 (70,000 to 90,000)", "15.0 µs (15.0 to 15.0)",
        "300 ms", "500 ms", "450 µs", "6 times", "-", "20", "80", "kept",
    ]  # fmt: skip


def test_what_was_not_measured_is_no_zero() -> None:
    assert line(report(STEADY))[2:4] == ["-", "-"]
    assert line(report(STEADY))[7:11] == ["-", "-", "-", "-"]
    unknown = report(KILLED, rows={"lost": None, "duplicated": 0})
    assert line(unknown)[9:11] == ["-", "0"]


def test_a_broken_run_is_not_hidden_behind_a_kept_one() -> None:
    broken = report(KILLED, verdict="broken", broken_by=["LOSS", "DUP"])
    assert line(report(KILLED), broken)[-1] == "broken (DUP LOSS)"


def test_each_row_has_the_command_of_each_load_once() -> None:
    reports = [report(load, reproduce=f"{load} {number}") for number in (1, 2) for load in (KILLED, FLAT_OUT, STEADY)]
    (only,) = lines(reports)
    assert only.commands == ("flat out 1", "steady 1", "killed 1")


@pytest.mark.parametrize(
    ("engine", "variant", "title"),
    [
        ("spark", "two-phase", "Spark, our sink"),
        ("spark", "native", "Spark, its own sink"),
        ("kafka-streams", "streams-rocksdb-100ms", "Kafka Streams"),
        ("flink", "native", "Flink"),
    ],
)
def test_a_row_names_the_engine_in_words(engine: str, variant: str, title: str) -> None:
    made = report(STEADY, variant, engine)
    assert line(made)[0] == title
    assert is_of_spark(made) == title.startswith("Spark")


def test_an_older_report_is_of_spark() -> None:
    assert is_of_spark(report(STEADY, environment={}))


def test_rows_keep_the_order_of_the_reports_and_are_of_one_engine_each() -> None:
    reports = [report(FLAT_OUT, "a", "flink"), report(FLAT_OUT), report(FLAT_OUT, "a"), report(STEADY, "a", "flink")]
    assert [each.cells[:2] for each in lines(reports)] == [
        ("Flink", "exactly-once, a"), ("Spark, our sink", "exactly-once, two-phase"),
        ("Spark, our sink", "exactly-once, a"),
    ]  # fmt: skip


def test_the_heading_has_the_rate_of_the_steady_runs() -> None:
    assert "p50 at 3,000/s" in headings([report(STEADY), report(FLAT_OUT)])
    assert "p50, steady" in headings([report(FLAT_OUT)])
    assert markdown([]) == ""


def test_interrupted_and_late_runs_count_for_nothing() -> None:
    late = report(STEADY, generator={"lateness_ms": {"p99": 60_000.0}}, latency_ms={"p50": 9_000.0, "p99": 9_000.0})
    wrong = report(FLAT_OUT, verdict="broken", broken_by=["DUP"], throughput={"events_per_s": 1.0})
    made = line(report(STEADY), late, report(FLAT_OUT), wrong)
    assert (made[2], made[4], made[-1]) == ("80,000", "300 ms", "broken (DUP)")
    assert by_place([report(STEADY, interrupted=True)]) == {}


def test_only_kills_that_happened_count() -> None:
    missed = {"hit": False, "fault": "random:kill"}
    assert line(report(KILLED, faults=[{**missed, "hit": True}, missed, missed]))[7] == "1 times"


@pytest.mark.parametrize(
    ("other", "place"),
    [
        ({"cpu": "B", "commit": "c1"}, "2 cores, B, version c1"),
        ({"cpu": "A", "commit": "c2"}, "2 cores, A, version c2"),
    ],
)
def test_each_machine_and_each_version_has_a_table_of_its_own(other: dict[str, Any], place: str) -> None:
    environments = [{"cores": 2, "cpu": "A", "commit": "c1"}, {"cores": 2, **other}]
    reports = [report(STEADY, environment=each) for each in environments]
    assert list(by_place(reports)) == [place, "2 cores, A, version c1"], "the last ones come first"
    assert markdown(reports).count("exactly-once, two-phase") == 2


def test_a_run_that_fell_behind_is_marked_as_in_the_other_tables() -> None:
    growing = {"lag_slope": 0.4, "lag_slope_error": 0.01, "latency_rise": 3.0}
    behind = report(STEADY, steadiness=growing)
    assert line(behind, report(KILLED))[-1] == "kept, fell behind"
    assert "latencies of this row include the backlog" in markdown([behind])
    assert line(behind, report(STEADY), report(STEADY))[-1] == "kept", "most of the runs decide"
    assert "fell behind" not in markdown([report(STEADY)])


def test_a_p99_of_too_few_sessions_is_missing() -> None:
    few = report(STEADY, latency_ms={"p50": 300.0, "p99": 500.0, "n": 400})
    assert line(few)[4:6] == ["300 ms", "-"]
    assert "p99 is missing for 1 run: it needs 100 sessions" in markdown([few])


def test_the_processor_time_of_a_steady_load_has_a_note() -> None:
    steady = [report(STEADY), report(FLAT_OUT)]
    assert headings(steady)[6] == "CPU per event at 3,000/s†"
    assert "†: no price. " in markdown(steady)
    assert "no price" not in markdown([report(FLAT_OUT)])


def test_a_figure_of_one_run_is_no_median() -> None:
    assert "A figure without a range is of one run." in markdown([report(STEADY)])
    assert "of one run" not in markdown([report(STEADY), report(STEADY), report(KILLED)])


def test_a_setting_without_a_guarantee_is_named_as_the_engine_names_it() -> None:
    cell = {**report(KILLED)["cell"], "guarantee": "at-most-once"}
    none = report(KILLED, cell=cell, environment={"engine": {"name": "flink", "settings": {"guarantee": "NONE"}}})
    same = report(KILLED, environment={"engine": {"name": "flink", "settings": {"guarantee": "EXACTLY_ONCE"}}})
    assert line(none)[1] == "NONE, judged as at-most-once, two-phase"
    assert line(same)[1] == "exactly-once, two-phase"


def test_recovery_is_of_the_kills_that_a_new_row_followed() -> None:
    kill = {"hit": True, "fault": "random:kill"}
    marks = [{"first_visible": 9_000.0}, {"first_visible": None}, None, {"first_visible": 5_000.0}]
    assert line(report(KILLED, faults=[{**kill, "recovery": each} for each in marks]))[8] == "7.0 s (5.0 to 9.0)"
    assert line(report(STEADY))[8] == "-"


def test_a_run_that_broke_its_guarantee_has_no_recovery() -> None:
    faults = [{"hit": True, "fault": "random:kill", "recovery": {"first_visible": 9_000.0}}]
    assert line(report(KILLED, faults=faults, verdict="broken"))[8] == "-"


def test_an_older_run_of_a_peer_has_no_processor_time_flat_out() -> None:
    assert line(report(FLAT_OUT, engine="flink", schema=4))[3] == "-"
    assert line(report(FLAT_OUT, engine="flink", schema=5))[3] == "15.0 µs"
    assert line(report(FLAT_OUT, schema=4))[3] == "15.0 µs"


def test_an_anomaly_in_the_table_is_explained_below_it() -> None:
    broken = report(KILLED, verdict="broken", anomalies={"DUP": 20}, broken_by=["DUP"])
    assert "\nDUP: " in markdown([broken])
    assert "DUP: " not in markdown([report(KILLED)])
