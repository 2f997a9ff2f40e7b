"""`oncebench run`: runs one cell and judges it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from oncebench.commands.scenario_files.argument import read_scenario, settled
from oncebench.commands.scenario_files.lines import refused_by_file
from oncebench.commands.scenario_files.saved import refuse_as_new_file
from oncebench.commands.scenario_files.saved import save as save_scenario
from oncebench.commands.shared.checkpoint import check_checkpoint, checkpoint_option
from oncebench.commands.shared.options import (
    GroupedCommand,
    base_cell,
    cell_options,
    keep_option,
    load_options,
    outage_option,
    random_kills_option,
    refuse_idle_brokers,
    refuse_idle_on_lost,
    refuse_idle_outage,
    refuse_idle_servers,
    skew_option,
    start_timeout_option,
    work_dir_option,
    workload_option,
)
from oncebench.commands.shared.postgres import given_postgres, postgres_option
from oncebench.commands.shared.records import records_options, with_records
from oncebench.commands.shared.writable import refuse_unwritable, refuse_unwritable_results, write_whole
from oncebench.delivery.failpoints import FORM
from oncebench.errors import ExitCode
from oncebench.experiments.series import bytes_needed
from oncebench.kafka_access.access import KafkaAccess
from oncebench.lab.broker import isolates
from oncebench.lab.disk import prepare_disks
from oncebench.lab.engine import SPARK, Engine
from oncebench.lab.lab import START_TIMEOUT_S, Lab, open_lab
from oncebench.live.view import view
from oncebench.measure import BULKY, exit_code, measure
from oncebench.report.report import FILE
from oncebench.report.results import LOCAL, Results, default_work_dir, stamp
from oncebench.report.schema import Report
from oncebench.report.summary import summary
from oncebench.run.cell import During
from oncebench.run.interrupt import gently
from oncebench.scenario.cell import Cell
from oncebench.scenario.fault_check import checked_fault, require_possible
from oncebench.scenario.supports import support_of
from oncebench.scenario.workloads import WORKLOADS
from oncebench.servers.sink_servers import ours
from oncebench.workdir import delete_below, open_work_dir, refuse_used, require_free

# Commands in reports of earlier versions have `--delivery`. They still run.
EARLIER_NAMES = {"delivery": "guarantee"}


@click.command(
    cls=GroupedCommand,
    context_settings={"token_normalize_func": lambda name: EARLIER_NAMES.get(name, name)},
)
@click.argument("scenario", required=False, type=click.Path(path_type=Path), is_eager=True, callback=read_scenario)
@click.option("--sink", required=True, help="Sink that the pipeline writes to; see `oncebench list`.")
@click.option("--guarantee", required=True, help="Delivery guarantee: at-most-once, at-least-once or exactly-once.")
@click.option(
    "--variant", help="Protocol that keeps the guarantee; see `oncebench list` [default: the sink's default]."
)
@load_options()
@cell_options()
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar=FORM,
    help="Fault at a failpoint, such as after-commit:kill. Several faults act once each, in the given order. "
    "`oncebench list` has all points and faults.",
)
@random_kills_option
@outage_option
@workload_option(WORKLOADS)
@skew_option
@records_options
@checkpoint_option
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write these settings to a new scenario file, and run nothing.",
)
@click.option(
    "--json",
    "json_path",
    metavar="PATH",
    help="Also write the report to this file as JSON; - prints it instead of the summary.",
)
@postgres_option
@work_dir_option
@keep_option
@start_timeout_option
@click.pass_context
def run(
    context: click.Context,
    /,
    kafka: KafkaAccess | None,
    save: Path | None,
    json_path: str | None,
    work_dir: Path | None,
    keep: bool,
    start_timeout_s: float,
    **_options: Any,
) -> None:
    """Run one cell (a sink under one guarantee, healthy or with faults) and judge it.

    Prints a summary, or the report as JSON with --json -. The report is also in the work dir.

    SCENARIO is a file of options that --save has written: one `option = value` per line. An option on the command line
    overrides the file; an option that can be repeated replaces the file's whole list.

    \b
    Examples:
      oncebench run --sink kafka --guarantee exactly-once \\
        --fault after-commit:kill
      oncebench run scenario.toml --seed 2
    """
    require_writable(json_path)
    if save is not None:
        refuse_as_new_file(save)
    cell = asked_cell(context, kafka)
    if save is not None:
        save_scenario(save, context, cell, given_postgres(context))
        click.echo(f"{cell.title}\nRun it with: {shlex.join(['oncebench', 'run', str(save)])}")
        return
    place = work_dir or default_work_dir("run")
    refuse_unwritable_results("the results in", LOCAL, "Correct this, or run the command in another folder")
    report = run_one(cell, place, kafka, keep, start_timeout_s=start_timeout_s)
    Results(LOCAL, f"run-{stamp()}").add(report)
    if json_path == "-":
        click.echo(json.dumps(report, indent=1))
    else:
        click.echo(summary(report, place))
        if json_path:
            instead = f"instead of --json take the same report from {place / FILE}"
            write_whole(Path(json_path), json.dumps(report, indent=1), instead)
    sys.exit(ExitCode.INTERRUPTED if report["interrupted"] else exit_code([report]))


# Options that are no part of a cell.
_OTHER = ("scenario", "save", "json_path", "work_dir", "keep", "start_timeout_s", "bootstrap_servers", "kafka_conf",
          "kafka_set")  # fmt: skip


def asked_cell(context: click.Context, kafka: KafkaAccess | None) -> Cell:
    """Returns the cell that the options of this command make, after all checks.

    Raises:
        UserError: the options do not fit together, or make no possible cell (exit code 2).
    """
    options = {name: value for name, value in settled(context).items() if name not in _OTHER}
    sink, guarantee, variant, faults = (options.pop(name) for name in ("sink", "guarantee", "variant", "faults"))
    with context.scope(cleanup=False), refused_by_file(context):
        support = support_of(sink, guarantee, variant)
        refuse_idle_servers([sink])
        cell = replace(
            base_cell(**with_records(options)),
            sink=sink,
            guarantee=guarantee,
            variant=support.variant,
            faults=tuple(map(checked_fault, faults)),
        )
        refuse_idle_on_lost([cell])
        refuse_idle_brokers([cell], kafka)
        refuse_idle_outage(cell)
        check_checkpoint(cell)
        require_possible([cell], ours(kafka))
    return cell


def require_writable(json_path: str | None) -> None:
    """Checks that the report can be written, before a run that may take minutes.

    Raises:
        UserError: the report cannot be written (exit code 2).
    """
    path = None if json_path in (None, "-") else Path(str(json_path))
    refuse_unwritable("--json", path, ", or print the report with --json -")


def _spark(_lab: Lab) -> Engine:
    return SPARK


def run_one(
    cell: Cell,
    place: Path,
    kafka: KafkaAccess | None,
    keep: bool,
    engine: Callable[[Lab], Engine] = _spark,
    during: During | None = None,
    start_timeout_s: float = START_TIMEOUT_S,
) -> Report:
    """Runs a cell in a work dir, with servers of its own, and returns its report.

    Args:
        during: called with the pipeline while it is measured, see `oncebench.run.cell.run_cell`.
        start_timeout_s: see `Lab`.
    """
    prepare_disks([cell])
    with open_work_dir(place) as work, gently() as interrupted:
        refuse_used(work.path)
        require_free(work.path, bytes_needed([cell]))
        lab_of = open_lab(work.path, kafka, [cell.sink], start_timeout_s, cell.brokers, isolates(cell))
        with lab_of as lab, view(cell.brief) as show:
            report = measure(cell, lab, work.path, show, interrupted, engine(lab), during)
        if not keep:
            for name in BULKY:
                delete_below(work.path, work.path / name)
    return report
