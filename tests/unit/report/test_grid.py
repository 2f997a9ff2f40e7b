"""Every table is one Markdown grid that is readable as plain text."""

from __future__ import annotations

from oncebench.report.grid import grid


def test_columns_are_padded_to_one_width() -> None:
    assert grid([("a", "bcd"), ("wide", "e")]) == "| a    | bcd |\n| ---- | --- |\n| wide | e   |\n"


def test_numbers_can_be_aligned_to_the_right() -> None:
    assert grid([("a", "n"), ("b", "100")], right_from=1) == "| a |   n |\n| - | --: |\n| b | 100 |\n"
