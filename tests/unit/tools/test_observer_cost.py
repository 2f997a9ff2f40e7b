"""The cost of observation: watched windows compared with their neighbours."""

from __future__ import annotations

import pytest

from tools.observer_cost import Window, ratios, share, turns


def test_each_pair_has_a_watched_and_an_unwatched_window() -> None:
    assert turns(8) == [True, False, False, True, True, False, False, True]


def test_watched_window_is_compared_with_its_neighbour() -> None:
    windows = [Window(True, 6.0, 0.3), Window(False, 5.0, 0.0), Window(False, 4.0, 0.0), Window(True, 5.0, 0.2)]
    assert ratios(windows) == [1.2, 1.25]


def test_share_counts_watched_windows_only() -> None:
    assert share([Window(True, 6.0, 0.3), Window(False, 5.0, 0.1), Window(True, 4.0, 0.2)]) == pytest.approx(0.05)
