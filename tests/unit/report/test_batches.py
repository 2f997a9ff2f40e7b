"""Times of batches that took turns: compared within a round, warm-up left out."""

from __future__ import annotations

from typing import Any

import pytest

from oncebench.report.tables.batches import by_arm, extra_ms, rate_ratio, table

ACKNOWLEDGED, NATIVE, EXACT = "s.at-least-once.acknowledged", "s.at-least-once.native", "s.exactly-once.two-phase"


def lines(**ms: list[float]) -> list[dict[str, Any]]:
    names = {"ack": ACKNOWLEDGED, "native": NATIVE, "exact": EXACT}
    return [
        {"round": at, "arm": names[arm], "ms": spent} for arm, times in ms.items() for at, spent in enumerate(times, -1)
    ]


def test_warm_up_rounds_are_left_out() -> None:
    assert by_arm(lines(ack=[9000, 100, 102])) == {ACKNOWLEDGED: {0: 100.0, 1: 102.0}}


def test_one_round_has_no_interval() -> None:
    assert "| +10.0 (1 round) " in table(lines(ack=[0, 100], exact=[0, 110]), 1000)


def test_a_slower_machine_moves_both_sides_of_a_difference() -> None:
    times = by_arm(lines(ack=[0, 100, 200, 300], exact=[0, 110, 210, 310]))
    found = extra_ms(times, EXACT, ACKNOWLEDGED)
    assert (found.median, found.low, found.high) == (10, 10, 10)


def test_a_rate_is_a_share_of_the_baseline() -> None:
    found = rate_ratio(by_arm(lines(native=[0, 100, 100], exact=[0, 200, 200])), EXACT, NATIVE)
    assert found.median == pytest.approx(0.5)


def test_the_table_compares_within_one_sink() -> None:
    text = table(lines(ack=[0, *[100] * 6], native=[0, *[50] * 6], exact=[0, *[110] * 6]), rows=1000)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    assert rows == [
        ["s", "at-least-once", "acknowledged", "100.0", "100.0", "", "10,000", "0.500 (0.500 to 0.500)"],
        ["s", "at-least-once", "native", "50.0", "50.0", "-50.0 (-50.0 to -50.0)", "20,000", ""],
        [
            "s",
            "exactly-once",
            "two-phase",
            "110.0",
            "110.0",
            "+10.0 (+10.0 to +10.0)",
            "9,091",
            "0.455 (0.455 to 0.455)",
        ],
    ]
