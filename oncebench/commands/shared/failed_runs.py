"""Reports the runs of a series that failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import click

from oncebench.kafka_access.access import KafkaAccess
from oncebench.scenario.cell import Cell
from oncebench.scenario.reproduce import RUN, Program, reproduce
from oncebench.servers.sink_servers import named_servers, without_secrets


@dataclass
class FailedRuns:
    """Prints each failure when it happens; `repeat` prints all of them again at the end.

    Attributes:
        kafka: the user's own Kafka; None: the suite starts one.
        program_of: returns the command line that runs a cell alone.
    """

    kafka: KafkaAccess | None = None
    program_of: Callable[[Cell], Program] = lambda _cell: RUN
    errors: list[Exception] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    # Made before a run starts: a server that the suite starts is in the environment, too.
    _servers: Mapping[str, str] = field(default_factory=named_servers)

    def __call__(self, cell: Cell, error: Exception) -> None:
        """Adds and prints a failure."""
        self.errors.append(error)
        kafka = None if self.kafka is None else self.kafka.as_json()
        command = reproduce(cell, self.program_of(cell), kafka, without_secrets(self._servers, cell.sink))
        self.lines.append(f"run failed: {cell.title}: {error}\n  {command}")
        click.echo(self.lines[-1], err=True)

    def repeat(self) -> None:
        """Prints all failures again."""
        for line in self.lines:
            click.echo(line, err=True)
