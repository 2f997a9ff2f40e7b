"""What watching costs is told from windows of one run: each watched one beside the one next to it."""

from __future__ import annotations

import pytest

from tools.observer_cost import Window, ratios, share, turns


def test_each_pair_of_windows_has_one_of_both_and_the_order_turns() -> None:
    assert turns(8) == [True, False, False, True, True, False, False, True]


def test_a_watched_window_is_compared_with_the_one_beside_it_whichever_came_first() -> None:
    windows = [Window(True, 6.0, 0.3), Window(False, 5.0, 0.0), Window(False, 4.0, 0.0), Window(True, 5.0, 0.2)]
    assert ratios(windows) == [1.2, 1.25]


def test_watchers_are_told_beside_the_windows_that_they_watched() -> None:
    assert share([Window(True, 6.0, 0.3), Window(False, 5.0, 0.1), Window(True, 4.0, 0.2)]) == pytest.approx(0.05)
