"""Refuses cells that cannot run, and options without an effect, before anything starts.

Promise: each command that runs cells names all of them to `refuse`. So every command refuses the same, in the same
words. A check of one option's text is with the option; a check of cells belongs here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
from click.core import ParameterSource

from oncebench.commands.shared.checkpoint import check_checkpoint
from oncebench.errors import ExitCode, UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.scenario.cell import Cell
from oncebench.scenario.cell_check import require_possible
from oncebench.scenario.supports import is_two_phase
from oncebench.servers.sink_servers import ours, services
from oncebench.sinks.registry import suite_sinks


def refuse(cells: Sequence[Cell], kafka: KafkaAccess | None) -> None:
    """Checks that these cells can run, and that each option has an effect.

    An option of the current command must have an effect on at least one of the cells.

    Args:
        cells: all cells that the command may run.
        kafka: the user's own Kafka; None: the suite starts one.

    Raises:
        UserError: a cell cannot run, or an option has no effect (exit code 2).
    """
    for why in _idle_options(cells, kafka):
        raise UserError(why, exit_code=ExitCode.USAGE)
    for cell in cells:
        check_checkpoint(cell)
    require_possible(cells, ours(kafka))


def given(name: str) -> bool:
    """Returns whether a user has written the option.

    The option is on the command line, or in a scenario file for the same sink.
    """
    source = click.get_current_context().get_parameter_source
    other = any(source(each) is ParameterSource.COMMANDLINE for each in ("sink", "guarantee", "variant"))
    return source(name) is ParameterSource.COMMANDLINE or (source(name) is ParameterSource.DEFAULT_MAP and not other)


def _idle_options(cells: Sequence[Cell], kafka: KafkaAccess | None) -> Iterator[str]:
    """Yields a message for each option that has no effect."""
    used = {name for cell in cells for name in suite_sinks()[cell.sink].traits.services}
    for service in services().values():
        if service.option and service.name not in used and given(service.option.removeprefix("--")):
            able = ", ".join(name for name, sink in suite_sinks().items() if service.name in sink.traits.services)
            yield f"{service.option} has no effect here. Only these sinks use such a server: {able}"
    if given("on_lost") and not any(map(is_two_phase, cells)):
        yield "--on-lost has no effect here. Only a two-phase variant can lose a decided transaction"
    if kafka is None and any(cell.replication for cell in cells):
        yield (
            "--replication has no effect on brokers that are started here: each has a replica of every topic. Give "
            "--brokers 3, or --bootstrap-servers with your own Kafka"
        )
    if kafka is not None and any(cell.brokers > 1 for cell in cells):
        yield "--brokers has no effect on your own Kafka. Leave out --brokers, or --bootstrap-servers and --kafka-conf"
    if any(cell.outage_s and not cell.random_kills for cell in cells):
        yield "--outage has no effect here. It is the time from a random kill to the restart: give --random-kills too"
    if any(cell.outage_s and cell.brokers > 1 for cell in cells):
        yield "--outage holds a commit back in a proxy, which is in front of one broker only. Leave out --brokers"
