"""Reports the runs of a series that failed."""

from __future__ import annotations

from dataclasses import dataclass, field

import click

from oncebench.scenario.cell import Cell


@dataclass
class FailedRuns:
    """Prints each failure when it happens; `repeat` prints all of them again at the end."""

    errors: list[Exception] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __call__(self, cell: Cell, error: Exception) -> None:
        """Adds and prints a failure."""
        self.errors.append(error)
        self.lines.append(f"run failed: {cell.title}: {error}\n  {cell.reproduce()}")
        click.echo(self.lines[-1], err=True)

    def repeat(self) -> None:
        """Prints all failures again."""
        for line in self.lines:
            click.echo(line, err=True)
