"""The known slowdown runs enough rounds for asv, and selects rows by kind."""

from __future__ import annotations

import pytest

from tools.known_slowdown import ROUNDS, of_kind

COMPARED = """
All benchmarks:

| Change   | Before [7cfda05e] <main>   | After [afc5de02]   | Ratio   | Benchmark (Parameter)                      |
|----------|----------------------------|--------------------|---------|--------------------------------------------|
| +        | 5.1                        | 15.2               | 2.98    | cells.Cost.track_commit_ms('kafka a b')    |
| +        | 0.0                        | 1.0                | n/a     | cells.Promise.track_broken('kafka a b')    |
"""


def test_asv_needs_seven_rounds_to_find_a_change() -> None:
    is_different = pytest.importorskip("asv._stats").is_different
    found = {
        rounds: is_different(list(range(rounds)), list(range(100, 100 + rounds)), {}, {}) for rounds in (6, ROUNDS)
    }
    assert found == {6: False, 7: True}


def test_rows_are_selected_by_kind_of_benchmark() -> None:
    head, promises = of_kind(COMPARED, "cells.Promise")
    assert (len(head), [line.split("|")[5].strip() for line in promises]) == (
        2,
        ["cells.Promise.track_broken('kafka a b')"],
    )
    assert len(of_kind(COMPARED, "cells.")[1]) == 2
    assert of_kind("", "cells.") == ([], [])
