"""Numbers of generators and observers that cannot work are refused before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncebench.errors import ExitCode, UserError
from oncebench.scenario.cell import Cell
from oncebench.scenario.cell_check import require_possible
from oncebench.sinks.registry import suite_sinks

CELL = Cell("kafka", "exactly-once", "two-phase", sessions=3, partitions=4)


def refusal(cell: Cell) -> str:
    with pytest.raises(UserError) as refused:
        require_possible([cell])
    assert refused.value.exit_code == ExitCode.USAGE
    return str(refused.value)


def test_each_generator_needs_a_session_and_each_observer_a_partition() -> None:
    require_possible([replace(CELL, generators=3, observers=4)])
    assert "the load has 3 sessions" in refusal(replace(CELL, generators=4))
    assert "the output has 4 partitions, and each observer needs one" in refusal(replace(CELL, observers=5))


WHOLE = sorted(
    name for name, sink in suite_sinks().items()
    if sink.read_part is None and not (sink.kind.missing or sink.kind.certify_only)
)  # fmt: skip


@pytest.mark.parametrize("sink", WHOLE)
def test_a_sink_without_partitions_takes_one_observer(sink: str) -> None:
    support = suite_sinks()[sink].kind.supports[0]
    cell = Cell(sink, support.guarantee, support.variant)
    require_possible([replace(cell, generators=2)])
    assert f"sink {sink} has no reader for a part of its output" in refusal(replace(cell, observers=2))
    assert refusal(replace(cell, observers=2)).endswith("these sinks take several: kafka")


def test_titles_say_how_many_there_are() -> None:
    cell = replace(CELL, generators=2, observers=4)
    assert cell.title == cell.brief == "kafka exactly-once two-phase, healthy, 2 generators, 4 observers"
    assert "--generators 2 --observers 4" in cell.reproduce()
    assert "generators" not in CELL.reproduce() + CELL.title
