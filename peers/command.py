"""Makes the command line of a peer, such as `python -m peers.flink`.

The command runs one cell with the peer as the engine. The run is judged like a run of `oncebench run`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from oncebench.commands.run import finish, require_writable
from oncebench.commands.shared.options import (
    MAX_PARTITIONS,
    GroupedCommand,
    base_cell,
    keep_option,
    load_options,
    outage_option,
    random_kills_option,
    work_dir_option,
)
from oncebench.commands.shared.refusals import refuse
from oncebench.commands.shared.writable import new_results
from oncebench.downloads.java import Java
from oncebench.errors import ExitCode, UserError
from oncebench.experiments.workspace import Workspace, run_one
from oncebench.kafka_access.access import KafkaAccess
from oncebench.kafka_access.connection import is_secured
from oncebench.lab.engine import Engine
from oncebench.report.results import default_work_dir, stamp
from oncebench.scenario.cell import Cell
from oncebench.scenario.reproduce import Program
from peers.variant import Form


@dataclass(frozen=True)
class Peer:
    """An engine that does the pipeline's work, as its command needs it.

    Attributes:
        name: the module below `peers`.
        title: the engine in texts.
        engine: starts the attempts of a cell.
        guarantees: the guarantees of the engine's sink.
        variants: the names of the variants.
        default_variant: the variant without --variant.
        transaction_timeout_ms: the default of --transaction-timeout.
        program: the command line of the peer.
        check: raises UserError for a cell that the engine would refuse.
    """

    name: str
    title: str
    engine: Callable[[Cell, Java], Engine]
    guarantees: tuple[str, ...]
    variants: Form
    default_variant: str
    transaction_timeout_ms: int
    program: Program
    check: Callable[[Cell], None] = lambda _cell: None


def command(peer: Peer) -> click.Command:
    """Returns the command that runs one cell with the peer."""
    form = peer.variants
    states = " or ".join(form.states)
    text = f"""Run one cell with {peer.title} as the engine, and judge it.

    The load, the observer, the auditors and the report are those of `oncebench run`.

    \b
    Example:
      python -m peers.{peer.name} --guarantee exactly-once \\
        --variant {form.example} --random-kills 1
    """

    @click.command(cls=GroupedCommand, context_settings={"help_option_names": ["-h", "--help"]}, help=text)
    @click.option("--sink", type=click.Choice(["kafka"]), default="kafka", show_default=True, help="Sink of the job.")
    @click.option("--guarantee", type=click.Choice(peer.guarantees), required=True,
                  help="Delivery guarantee of the sink.")  # fmt: skip
    @click.option("--variant", default=peer.default_variant, show_default=True, metavar=str(form),
                  help=f"State backend ({states}) and {form.step} interval, such as {form.example}.")  # fmt: skip
    @load_options()
    @click.option("--partitions", type=click.IntRange(1, MAX_PARTITIONS), default=2, show_default=True,
                  help="Partitions of each topic, and parallelism of the job.")  # fmt: skip
    @click.option("--transaction-timeout", "transaction_timeout_ms", type=click.IntRange(1000),
                  default=peer.transaction_timeout_ms, metavar="MS", show_default=True,
                  help="Milliseconds that a Kafka transaction may stay open.")  # fmt: skip
    @click.option("--warmup", "warmup_s", type=click.FloatRange(0, 86_400), default=3.0, show_default=True, metavar="S",
                  help="Seconds after the start of the load that are not measured.")  # fmt: skip
    @random_kills_option
    @outage_option
    @click.option("--json", "json_path", metavar="PATH",
                  help="Also write the report to this file as JSON; - prints it instead of the summary.")  # fmt: skip
    @work_dir_option
    @keep_option
    def main(
        sink: str,
        guarantee: str,
        variant: str,
        kafka: KafkaAccess | None,
        json_path: str | None,
        work_dir: Path | None,
        keep: bool,
        **options: Any,
    ) -> None:
        require_writable(json_path)
        form.parse(variant)
        if kafka is not None and is_secured(kafka.client):
            raise UserError(
                f"{peer.title}'s job cannot use TLS or a login. Name a plaintext listener, or leave out "
                "--bootstrap-servers",
                exit_code=ExitCode.USAGE,
            )
        cell = replace(base_cell(**options), sink=sink, guarantee=guarantee, variant=variant)
        refuse([cell], kafka)
        peer.check(cell)
        results = new_results(f"{peer.name}-{stamp()}")
        place = work_dir or default_work_dir(peer.name)
        report = run_one(cell, Workspace(place, kafka, keep, engine=lambda cell, lab: peer.engine(cell, lab.java)))
        finish(report, results, place, json_path)

    return main
