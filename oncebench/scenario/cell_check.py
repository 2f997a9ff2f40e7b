"""Checks whether a cell can run with its faults, workload and processes, on its master.

Failure modes: each problem raises `UserError` with exit code 2 before anything is started.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncebench.delivery.failpoints import parse_fault
from oncebench.delivery.protocols import choose
from oncebench.errors import ExitCode, UserError
from oncebench.faults.catalogue import why_not, why_not_together
from oncebench.faults.setups import why_not_in_setup
from oncebench.scenario.cell import Cell
from oncebench.scenario.master_check import why_not_on_cluster
from oncebench.scenario.process_check import require_shared
from oncebench.scenario.workloads import WORKLOADS
from oncebench.sinks.registry import SINKS, suite_sinks


def require_possible(cells: Iterable[Cell], ours: frozenset[str] | None = None) -> None:
    """Checks that each cell can run; see the module.

    Args:
        ours: the servers that the suite will have started. None: all that the cells need.

    Raises:
        UserError: a cell is impossible, with the reason (exit code 2).
    """
    for cell in cells:
        faults = [parse_fault(text) for text in cell.faults]
        for text, fault in zip(cell.faults, faults, strict=True):
            reason = (
                why_not(fault, suite_sinks()[cell.sink], choose(SINKS[cell.sink], cell.guarantee, cell.variant), ours)
                or why_not_in_setup(fault, cell)
                or why_not_together(fault, faults)
            )
            if reason is not None:
                raise UserError(f"fault {text}: {reason}", exit_code=ExitCode.USAGE)
        require_shared([cell])
        if (why := WORKLOADS[cell.workload].why_not(cell)) is not None:
            raise UserError(f"--workload {cell.workload}: {why}", exit_code=ExitCode.USAGE)
        if (why := why_not_on_cluster(cell, ours)) is not None:
            raise UserError(f"{cell.spark_text}: {why}", exit_code=ExitCode.USAGE)
