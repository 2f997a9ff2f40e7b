"""Runs one cell with Flink as the engine: `python -m peers.flink`.

The run is judged like a run of `oncebench run`.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from oncebench.commands.run import require_writable, run_one
from oncebench.commands.shared.options import (
    MAX_PARTITIONS,
    GroupedCommand,
    base_cell,
    keep_option,
    load_options,
    outage_option,
    refuse_idle_outage,
    work_dir_option,
)
from oncebench.errors import ExitCode, UserError
from oncebench.kafka_access.access import KafkaAccess
from oncebench.kafka_access.connection import is_secured
from oncebench.measure import exit_code
from oncebench.report.results import LOCAL, Results, default_work_dir, stamp
from oncebench.report.summary import summary
from peers.flink.engine import flink
from peers.flink.settings import GUARANTEES
from peers.flink.variant import EXAMPLE, FORM, FlinkVariant


@click.command(cls=GroupedCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--sink", type=click.Choice(["kafka"]), default="kafka", show_default=True, help="Sink of the job.")
@click.option("--guarantee", type=click.Choice(list(GUARANTEES)), required=True, help="Delivery guarantee of the sink.")
@click.option("--variant", default="flink-hashmap-1000ms", show_default=True, metavar=FORM,
              help=f"State backend (hashmap or rocksdb) and checkpoint interval, such as {EXAMPLE}.")  # fmt: skip
@load_options()
@click.option("--partitions", type=click.IntRange(1, MAX_PARTITIONS), default=2, show_default=True,
              help="Partitions of each topic, and parallelism of the job.")  # fmt: skip
@click.option("--transaction-timeout", "transaction_timeout_ms", type=click.IntRange(1000), default=60_000,
              metavar="MS", show_default=True, help="Milliseconds that a Kafka transaction may stay open.")  # fmt: skip
@click.option("--warmup", "warmup_s", type=click.FloatRange(0, 86_400), default=3.0, show_default=True, metavar="S",
              help="Seconds after the start of the load that are not measured.")  # fmt: skip
@click.option("--random-kills", type=click.IntRange(0), default=0, metavar="N",
              help="Number of SIGKILLs at random times, drawn from --seed.")  # fmt: skip
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
    """Run one cell with Flink as the engine, and judge it.

    The load, the observer, the auditors and the report are those of `oncebench run`.

    \b
    Example:
      python -m peers.flink --guarantee exactly-once \\
        --variant flink-rocksdb-200ms --random-kills 1
    """
    require_writable(json_path)
    FlinkVariant.parse(variant)
    if kafka is not None and is_secured(kafka.client):
        raise UserError(
            "Flink's job cannot use TLS or a login. Name a plaintext listener, or leave out --bootstrap-servers",
            exit_code=ExitCode.USAGE,
        )
    cell = replace(base_cell(**options), sink=sink, guarantee=guarantee, variant=variant)
    refuse_idle_outage(cell)
    place = work_dir or default_work_dir("flink")
    report = run_one(cell, place, kafka, keep, lambda lab: flink(cell, lab.java))
    Results(LOCAL, f"flink-{stamp()}").add(report)
    if json_path == "-":
        click.echo(json.dumps(report, indent=1))
    else:
        click.echo(summary(report, place))
        if json_path:
            Path(json_path).write_text(json.dumps(report, indent=1), "utf-8")
    sys.exit(ExitCode.INTERRUPTED if report["interrupted"] else exit_code([report]))


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    logging.getLogger("oncebench").setLevel(logging.INFO)
    logging.getLogger("kafka").setLevel(logging.ERROR)  # it warns about each delay of 0.1 s on a busy machine
    try:
        main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UserError as error:
        click.echo(f"peers.flink: {error}", err=True)
        sys.exit(error.exit_code)
