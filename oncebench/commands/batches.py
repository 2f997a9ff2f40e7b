"""`oncebench batches`: measures what each guarantee adds to a batch, in one Spark session."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from loadgen.session import EVENTS_PER_SESSION
from oncebench.commands.shared.kafka import kafka_options
from oncebench.commands.shared.options import (
    MAX_PARTITIONS,
    MAX_SEED,
    GroupedCommand,
    keep_option,
    publish_option,
    work_dir_option,
)
from oncebench.commands.shared.postgres import postgres_option
from oncebench.commands.shared.refusals import refuse
from oncebench.commands.shared.writable import refuse_unwritable_results
from oncebench.errors import ExitCode, UserError
from oncebench.experiments.batch_input import LEDGER, bytes_needed
from oncebench.experiments.run_batches import Arm, Plan, run, servers_of
from oncebench.experiments.whole_batches import fewest_events
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.lab import open_lab
from oncebench.record.json_lines import read_lines
from oncebench.report.environment import environment
from oncebench.report.results import LOCAL, PUBLISHED, default_work_dir, stamp
from oncebench.report.tables import batches as tables
from oncebench.report.tables.batch_series import BatchSeries, read_series
from oncebench.run.interrupt import gently
from oncebench.scenario.cell import Cell
from oncebench.scenario.supports import all_supports, installed, require_sinks
from oncebench.servers.sink_servers import services
from oncebench.workdir import delete_below, open_work_dir, refuse_used, require_free

# Folders of the work dir that only --keep keeps, besides those of servers and arms.
BULKY = ("kafka", "checkpoint", LEDGER)
ROWS = 1000  # as many as 5,000 events make


@click.command(cls=GroupedCommand)
@click.option(
    "--sink", "sinks", multiple=True, help="Sink to measure; repeat for several [default: every installed sink]."
)
@click.option(
    "--only",
    metavar="TEXT",
    help="Measure only configurations whose name has every word of TEXT: `kafka.exactly-once.two-phase`.",
)
@click.option("--rows", type=click.IntRange(1), default=ROWS, show_default=True, help="Rows per batch.")
@click.option(
    "--events",
    type=click.IntRange(EVENTS_PER_SESSION),
    help="Events per batch, instead of --rows: each batch goes through the whole pipeline, from Kafka to the sink.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Batches per configuration, after a warm-up of 20 rounds (with --events: 6).",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, MAX_PARTITIONS),
    default=2,
    show_default=True,
    help="Spark tasks per batch.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, MAX_SEED),
    default=1,
    show_default=True,
    help="Seed of the random order of each round. Give a second series another one.",
)
@kafka_options()
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print each batch after the warm-up as one line of JSON instead of the table.",
)
@click.option(
    "--from",
    "stored",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="SERIES",
    help="Print the table of this stored series, and run nothing. With two series, also print whether they agree.",
)
@postgres_option
@publish_option
@work_dir_option
@keep_option
def batches(
    sinks: tuple[str, ...],
    only: str | None,
    rows: int,
    events: int | None,
    rounds: int,
    partitions: int,
    seed: int,
    kafka: KafkaAccess | None,
    as_json: bool,
    stored: tuple[Path, ...],
    publish: bool,
    work_dir: Path | None,
    keep: bool,
) -> None:
    """Measure the time that each guarantee and sink adds to equal batches, in turns.

    All batches run in one process, so a difference between two guarantees shows in far fewer batches than runs of
    their own would need. A round has one batch per configuration, in a random order. A batch is compared with the
    at-least-once batch of its round and sink. The first rounds are warm-up and do not count. The rows are not judged.

    With --events, time and CPU are those of the whole pipeline. The events are sent before it starts. Without
    --events, the time excludes source, state and Spark's own logs, and rows per second are also compared with the sink
    that Spark or Delta ships (native).

    \b
    Examples:
      oncebench batches --sink kafka --rounds 50
      oncebench batches --sink kafka --events 50000 --rounds 40
    """
    if stored:
        _print_stored(stored, as_json)
        return
    if events is not None and click.get_current_context().get_parameter_source("rows") is not ParameterSource.DEFAULT:
        raise UserError("give --rows or --events, not both", exit_code=ExitCode.USAGE)
    if events is not None and events < (fewest := fewest_events(partitions)):
        raise UserError(
            f"--events {events} is too few for {partitions} partitions: Spark divides a batch among them and rounds, "
            f"so batches would not have equal sizes. Give --events {fewest} or more, or fewer --partitions",
            exit_code=ExitCode.USAGE,
        )
    arms, plan = _arms(sinks, only), Plan(rows, events, rounds, partitions, seed)
    refuse([Cell(arm.sink, arm.support.guarantee, arm.support.variant) for arm in arms], kafka)
    results = PUBLISHED if publish else LOCAL
    refuse_unwritable_results(results)
    with open_work_dir(work_dir or default_work_dir("batches")) as work, gently() as interrupted:
        refuse_used(work.path)
        require_free(work.path, bytes_needed(plan.batches(len(arms)) * (events or 0), own_kafka=kafka is None))
        with open_lab(work.path, kafka, {arm.sink for arm in arms}) as lab:
            run(lab, work.path, arms, plan, interrupted.is_set)
            where = {**environment(), **servers_of(lab)}
        lines = [line for line in read_lines(work.path / "batches.jsonl").items if line["round"] >= 0]
        about = {"series": f"batches-{stamp()}", "command": _command(sinks, only, plan), "environment": where,
                 "partitions": partitions, **plan.size}  # fmt: skip
        if lines:
            path = BatchSeries(about, lines).write(results)
            click.echo(f"series: {path}", err=True)
        if not keep:
            for path in work.path.iterdir():
                if path.is_dir() and path.name in (*BULKY, *services(), *(arm.name for arm in arms)):
                    delete_below(work.path, path)
    if as_json:
        for line in lines:
            click.echo(json.dumps(line))
    elif lines:
        click.echo(tables.text(BatchSeries(about, lines)), nl=False)
    if interrupted.is_set():
        click.echo(f"interrupted: {len(lines)} of {rounds * len(arms)} batches done after the warm-up", err=True)
        sys.exit(ExitCode.INTERRUPTED)


def _print_stored(stored: Sequence[Path], as_json: bool) -> None:
    context = click.get_current_context()
    for option in (each for each in context.command.params if each.name not in ("stored", "as_json")):
        if context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE:
            raise UserError(f"{option.opts[0]} has no effect with --from. Leave it out", exit_code=ExitCode.USAGE)
    for path in stored:
        if not path.exists():
            raise UserError(f"{path} does not exist. Give a file of results/local/batches/", exit_code=ExitCode.USAGE)
    series = [read_series(path) for path in stored]
    if as_json:
        for line in (line for each in series for line in each.lines):
            click.echo(json.dumps(line))
        return
    compared = tables.agreements(series)
    click.echo("\n".join(filter(None, (tables.markdown(series), compared))), nl=False)
    if len(series) > 1 and not compared:
        same = len({str(each.about["series"]) for each in series}) == 1
        why = "no two of these files have equal batches of one configuration, machine and servers"
        why = "these files have the same series" if same else why
        click.echo(f"not compared: {why}", err=True)


def _command(sinks: Sequence[str], only: str | None, plan: Plan) -> str:
    """The command line that measures the same configurations with servers of its own."""
    words = ["oncebench", "batches", *(word for sink in sinks for word in ("--sink", sink))]
    words += [] if only is None else ["--only", only]
    numbers = {**plan.size, "rounds": plan.rounds, "partitions": plan.partitions, "seed": plan.seed}
    return shlex.join([*words, *(word for name, number in numbers.items() for word in (f"--{name}", str(number)))])


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
