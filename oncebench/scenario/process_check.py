"""Checks whether several generators and observers can share a run's load and output.

Promise: everything that cannot work is refused before anything is started, and by what a sink declares.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncebench.errors import ExitCode, UserError
from oncebench.scenario.cell import Cell
from oncebench.sinks.registry import suite_sinks
from oncebench.sinks.suite import SuiteSink


def require_shared(cells: Iterable[Cell]) -> None:
    """Checks that each cell can run with its numbers of generators and observers.

    Raises:
        UserError: a number is impossible, with the reason (exit code 2).
    """
    for cell in cells:
        if (why := why_not_shared(cell)) is not None:
            raise UserError(why, exit_code=ExitCode.USAGE)


def why_not_shared(cell: Cell) -> str | None:
    """Why the cell cannot run with its numbers of generators and observers; None if it can."""
    if cell.generators > cell.sessions:
        return (
            f"--generators {cell.generators}: the load has {cell.sessions} sessions, and each session belongs to one "
            f"generator. Give fewer generators, or {'more records' if cell.records else 'a longer --duration'}"
        )
    if cell.observers == 1:
        return None
    if suite_sinks()[cell.sink].read_part is None:
        able = ", ".join(name for name, sink in suite_sinks().items() if sink.read_part is not None and _sound(sink))
        return (
            f"--observers {cell.observers}: sink {cell.sink} has no reader for a part of its output, so one observer "
            f"reads the whole of it. Leave out --observers; these sinks take several: {able}"
        )
    if cell.observers > cell.partitions:
        return (
            f"--observers {cell.observers}: the output has {cell.partitions} partitions, and each observer needs one. "
            "Give fewer observers, or more --partitions"
        )
    return None


def _sound(sink: SuiteSink) -> bool:
    """Whether no support of the sink is broken on purpose."""
    return not any(support.expected_anomaly for support in sink.kind.supports)
