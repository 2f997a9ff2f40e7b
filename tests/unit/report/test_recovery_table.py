"""Recovery over a fault matrix: medians and maxima per fault, percentiles over all faults."""

from __future__ import annotations

from typing import Any

from oncebench.report.measures.recovery import Recovery
from oncebench.report.tables import recovery_table

S = 1_000_000


def fault(text: str, t_us: int, first_visible: float | None, replayed_rows: int | None = 20) -> dict[str, Any]:
    marks = Recovery(50.0, 1000.0, first_visible, None, longest_gap=first_visible, replayed_rows=replayed_rows)
    return {"fault": text, "hit": True, "t_us": t_us, "recovery": marks.as_json()}


def report(*faults: dict[str, Any], verdict: str = "kept", variant: str = "two-phase") -> dict[str, Any]:
    return {
        "cell": {"sink": "kafka", "guarantee": "exactly-once", "variant": variant},
        "verdict": verdict,
        "faults": list(faults),
    }


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


KILLS = report(fault("batch-start:kill", 0, 4000.0), fault("mid-write:kill@after=2", 30 * S, 6000.0, 40))


def test_faults_of_one_kind_are_one_line() -> None:
    again = report(fault("mid-write:kill", 0, 11000.0, 60))
    heading, _, line = cells(recovery_table.markdown(recovery_table.outages_of([KILLS, again]), "kills"))
    assert heading[3:] == ["fault", "n", "seen s", "process back s", "first row s", "longest gap s",
                           "replayed rows"]  # fmt: skip
    assert line == [
        "kafka", "exactly-once", "two-phase", "kill", "3", "0.1 / 0.1", "1.0 / 1.0", "6.0 / 11.0", "6.0 / 11.0",
        "40 / 60",
    ]  # fmt: skip


def test_a_fault_and_a_fault_in_its_replay_are_one_outage() -> None:
    pair = fault("mid-write:kill", 0, None, 0), fault("after-prepare:kill", 5 * S, 4000.0)
    assert recovery_table.markdown(recovery_table.outages_of([report(*pair)]), "kills") == ""
    (_, _, line) = cells(recovery_table.markdown(recovery_table.outages_of([report(*pair)]), "pairs"))
    assert line[3:] == ["kill, kill", "1", "0.1 / 0.1", "6.0 / 6.0", "9.0 / 9.0", "4.0 / 4.0", "20 / 20"]


def test_each_random_kill_is_an_outage() -> None:
    killed = report(*(fault("random:kill", t_us, 3000.0) for t_us in (0, 30 * S)))
    assert recovery_table.markdown(recovery_table.outages_of([killed]), "kills") == ""
    (_, _, line) = cells(recovery_table.markdown(recovery_table.outages_of([killed]), "random"))
    assert line[3:] == ["random kill", "2", "0.1 / 0.1", "1.0 / 1.0", "3.0 / 3.0", "3.0 / 3.0", "20 / 20"]


def test_percentiles_cover_all_faults_with_their_number() -> None:
    reported = {line[0]: line[1:] for line in cells(recovery_table.overall([KILLS, KILLS]))}
    assert reported["first row s"] == ["4", "4.0", "6.0"]
    assert reported["replayed rows"] == ["4", "20", "40"]
    assert reported["caught up s"] == ["0", "-", "-"]


MACHINE = {"cpu": "AMD EPYC", "cores": 2}


def test_runs_of_two_machines_are_two_rows_and_never_one_median() -> None:
    on_two = [
        report(fault("mid-write:kill", 0, ms)) | {"environment": MACHINE | {"cores": cores}}
        for cores, ms in ((64, 8000.0), (2, 28_000.0))
    ]
    found = recovery_table.tables(recovery_table.outages_of(on_two), "kills")
    assert {machine: [row[7] for row in rows] for machine, rows in found.items()} == {
        "AMD EPYC, 2 cores": ["28.0 / 28.0"], "AMD EPYC, 64 cores": ["8.0 / 8.0"]
    }  # fmt: skip
    for text in (recovery_table.markdown(recovery_table.outages_of(on_two), "kills"), recovery_table.overall(on_two)):
        assert text.startswith("AMD EPYC, 2 cores:\n\n| ") and "\n\nAMD EPYC, 64 cores:\n\n| " in text
        assert "18.0" not in text
    overall = {
        machine: dict(row[::2] for row in rows) for machine, rows in recovery_table.overall_tables(on_two).items()
    }
    assert [rows["first row s"] for rows in overall.values()] == ["28.0", "8.0"]


def test_runs_whose_speed_is_withheld_have_no_recovery() -> None:
    for wrong in ({"deaths": {"unasked": 1}}, {"generator": {"lateness_ms": {"p99": 5000.0}}}, {"interrupted": True}):
        assert (
            recovery_table.overall([KILLS | wrong])
            == recovery_table.markdown(recovery_table.outages_of([KILLS | wrong]), "kills")
            == ""
        )


def test_only_kept_hit_and_measured_faults_have_figures() -> None:
    missed = {"fault": "mid-write:kill", "hit": False, "t_us": None, "recovery": None}
    old = {"fault": "mid-write:kill", "hit": True}
    for reported in (report(*KILLS["faults"], verdict="broken"), report(missed), report(old)):
        assert recovery_table.markdown(recovery_table.outages_of([reported]), "kills") == ""
        assert recovery_table.overall([reported]) == ""


def test_rows_have_the_order_of_all_tables() -> None:
    reports = [report(fault("mid-write:kill", 0, 1.0), variant=variant) for variant in ("two-phase", "idempotent")]
    assert [line[2] for line in cells(recovery_table.markdown(recovery_table.outages_of(reports), "kills"))[2:]] == [
        "idempotent",
        "two-phase",
    ]
