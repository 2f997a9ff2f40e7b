"""`oncebench batches`: measures what each protocol adds to a batch, in one Spark session."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from oncebench.commands.shared.kafka import kafka_options
from oncebench.commands.shared.options import (
    MAX_PARTITIONS,
    GroupedCommand,
    keep_option,
    work_dir_option,
)
from oncebench.commands.shared.postgres import postgres_option
from oncebench.commands.shared.refusals import refuse
from oncebench.delivery.contract import Support
from oncebench.errors import ExitCode, UserError
from oncebench.experiments.batches import WARM_ROUNDS
from oncebench.home import HOME
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.lab import Lab, open_lab
from oncebench.processes import child as process
from oncebench.record.json_lines import read_lines
from oncebench.report.results import default_work_dir
from oncebench.report.tables.batches import table
from oncebench.run.interrupt import gently
from oncebench.scenario.cell import Cell
from oncebench.scenario.supports import all_supports, installed, require_sinks
from oncebench.servers.sink_servers import services
from oncebench.sinks.registry import SINKS, suite_sinks
from oncebench.sinks.suite import Place
from oncebench.workdir import delete_below, open_work_dir, refuse_used
from pipeline.config import PipelineConfig, write_config
from pipeline.rows import KEY, SCHEMA

POLL_S = 0.2
BATCHES_PER_LINE = 50  # a line of progress after so many batches
# Time limits: Spark's start, and ten times a batch of a table format (the slowest: it writes a log entry per batch).
START_S, BATCH_S = 120.0, 10.0


@dataclass(frozen=True)
class Arm:
    """One configuration that is measured: a sink with one guarantee and variant."""

    sink: str
    support: Support

    @property
    def name(self) -> str:
        return f"{self.sink}.{self.support.guarantee}.{self.support.variant}"


@click.command(cls=GroupedCommand)
@click.option(
    "--sink", "sinks", multiple=True, help="Sink to measure; repeat for several [default: every installed sink]."
)
@click.option(
    "--only",
    metavar="TEXT",
    help="Measure only configurations whose name has every word of TEXT: `kafka.exactly-once.two-phase`.",
)
@click.option("--rows", type=click.IntRange(1), default=1000, show_default=True, help="Rows per batch.")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Batches per configuration, after 20 warm-up rounds.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, MAX_PARTITIONS),
    default=2,
    show_default=True,
    help="Spark tasks per batch.",
)
@kafka_options()
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print each batch after the warm-up as one line of JSON instead of the table.",
)
@postgres_option
@work_dir_option
@keep_option
def batches(
    sinks: tuple[str, ...],
    only: str | None,
    rows: int,
    rounds: int,
    partitions: int,
    kafka: KafkaAccess | None,
    as_json: bool,
    work_dir: Path | None,
    keep: bool,
) -> None:
    """Measure the time that each protocol and sink adds to the same batches, in turns.

    The first 20 rounds are warm-up and are not counted. The times exclude source, state and Spark's own logs.
    Differences are within a round, relative to at-least-once of the same sink. Ratios of rows per second are relative
    to the sink as others ship it (native).

    \b
    Example:
      oncebench batches --sink kafka --rounds 50
    """
    arms = _arms(sinks, only)
    refuse([Cell(arm.sink, arm.support.guarantee, arm.support.variant) for arm in arms], kafka)
    with open_work_dir(work_dir or default_work_dir("batches")) as work, gently() as interrupted:
        refuse_used(work.path)
        with open_lab(work.path, kafka, {arm.sink for arm in arms}) as lab:
            (work.path / "plan.json").write_text(json.dumps({"rows": rows, "rounds": rounds}))
            for arm in arms:
                _write_arm(arm, arms, lab, work.path, partitions)
            _run(lab, work.path, (WARM_ROUNDS + rounds) * len(arms), interrupted.is_set)
        lines = [line for line in read_lines(work.path / "batches.jsonl").items if line["round"] >= 0]
        if not keep:
            for path in work.path.iterdir():
                if path.is_dir() and path.name in ("kafka", *services(), *(arm.name for arm in arms)):
                    delete_below(work.path, path)
    if as_json:
        for line in lines:
            click.echo(json.dumps(line))
    elif lines:
        click.echo(table(lines, rows), nl=False)
    if interrupted.is_set():
        click.echo(f"interrupted: {len(lines)} of {rounds * len(arms)} batches done after the warm-up", err=True)
        sys.exit(ExitCode.INTERRUPTED)


def _arms(sinks: Sequence[str], only: str | None) -> list[Arm]:
    require_sinks(sinks)
    wanted = sinks or installed()
    arms = [Arm(sink, support) for sink, support in all_supports() if sink in wanted]
    for sink in sinks:
        if sink not in {arm.sink for arm in arms}:
            raise UserError(f"sink {sink} is broken on purpose. Its cost is not compared", exit_code=ExitCode.USAGE)
    chosen = [arm for arm in arms if all(word in arm.name for word in (only or "").split())]
    if not chosen:
        raise UserError(
            f"no sink, guarantee and variant has all words of {only!r}; see `oncebench list`", exit_code=ExitCode.USAGE
        )
    return chosen


def _write_arm(arm: Arm, arms: Sequence[Arm], lab: Lab, folder: Path, partitions: int) -> None:
    own = folder / arm.name
    own.mkdir()
    sink_id = f"ob-{time.time_ns():x}"
    kafka = lab.kafka.access
    target: dict[str, Any] = suite_sinks()[arm.sink].provide(
        Place(sink_id, own, partitions, kafka, lambda name: lab.kafka.create_topic(name, partitions), SCHEMA, KEY)
    )
    config = PipelineConfig(
        **kafka.as_json(),
        input_topic=f"{sink_id}.in",
        output=target,
        quarantine_topic=lab.kafka.create_topic(f"{sink_id}.quarantine", partitions),
        sink=arm.sink,
        guarantee=arm.support.guarantee,
        variant=arm.support.variant,
        sink_id=sink_id,
        checkpoint=own / "checkpoint",
        record=own,
        partitions=partitions,
        **lab.spark(SINKS[each.sink] for each in arms),
    )
    write_config(config, folder / f"arm-{arm.name}.json")


def _run(lab: Lab, folder: Path, wanted: int, interrupted: Callable[[], bool]) -> None:
    command = [sys.executable, "-m", "oncebench.experiments.batches", str(folder)]
    log = folder / "logs" / "batches.log"
    limit_s = START_S + BATCH_S * wanted
    with process.start("the batches", command, log, cwd=HOME, env=lab.environment()) as child:
        deadline = time.monotonic() + limit_s
        reported = 0
        while child.alive and not interrupted():
            if time.monotonic() > deadline:
                raise UserError(f"the batches took longer than {limit_s:.0f} s. See {log}")
            done = len(read_lines(folder / "batches.jsonl").items)
            if done >= reported + BATCHES_PER_LINE:
                reported = done
                click.echo(f"{time.strftime('%H:%M:%S')}  {done} of {wanted} batches", err=True)
            time.sleep(POLL_S)
    if not interrupted() and child.returncode != 0:
        lines = [line for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
        raise UserError(f"the batches stopped: {(lines or ['no message'])[-1]}. See {log}")
