"""`oncebench run`: runs one cell and judges it."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click

from oncebench.commands.scenario_files.argument import read_scenario, settled
from oncebench.commands.scenario_files.lines import refused_by_file
from oncebench.commands.scenario_files.saved import refuse_as_new_file
from oncebench.commands.scenario_files.saved import save as save_scenario
from oncebench.commands.shared.checkpoint import checkpoint_option
from oncebench.commands.shared.kafka import KAFKA_PARAMETERS
from oncebench.commands.shared.options import (
    GroupedCommand,
    base_cell,
    cell_options,
    guarantee_option,
    load_options,
    outage_option,
    random_kills_option,
    sink_option,
    skew_option,
    workload_option,
)
from oncebench.commands.shared.postgres import given_postgres, postgres_option
from oncebench.commands.shared.records import records_options, with_records
from oncebench.commands.shared.refusals import refuse
from oncebench.commands.shared.workspace import WORKSPACE_PARAMETERS, workspace_options
from oncebench.commands.shared.writable import new_results, refuse_unwritable, write_whole
from oncebench.delivery.failpoints import FORM
from oncebench.errors import ExitCode
from oncebench.experiments.workspace import Workspace, run_one
from oncebench.faults.catalogue import checked_fault
from oncebench.kafka_access.access import KafkaAccess
from oncebench.measure import exit_code
from oncebench.report.report import FILE
from oncebench.report.results import Results, stamp
from oncebench.report.schema import Report
from oncebench.report.summary import summary
from oncebench.scenario.cell import Cell
from oncebench.scenario.supports import support_of
from oncebench.scenario.workloads import WORKLOADS

# Commands in reports of earlier versions have `--delivery`. They still run.
EARLIER_NAMES = {"delivery": "guarantee"}


@click.command(
    cls=GroupedCommand,
    context_settings={"token_normalize_func": lambda name: EARLIER_NAMES.get(name, name)},
)
@click.argument("scenario", required=False, type=click.Path(path_type=Path), is_eager=True, callback=read_scenario)
@sink_option
@guarantee_option
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
@workspace_options
@click.pass_context
def run(
    context: click.Context,
    /,
    workspace: Workspace,
    save: Path | None,
    json_path: str | None,
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
    cell = asked_cell(context, workspace.kafka)
    if save is not None:
        save_scenario(save, context, cell, given_postgres(context))
        click.echo(f"{cell.title}\nRun it with: {shlex.join(['oncebench', 'run', str(save)])}")
        return
    results = new_results(f"run-{stamp()}")
    report = run_one(cell, workspace)
    finish(report, results, workspace.folder, json_path)


def finish(report: Report, results: Results, folder: Path, json_path: str | None) -> NoReturn:
    """Stores and prints a run, and ends the command with the exit code of the run.

    Also writes the report of --json.

    Args:
        results: where every report of the command is stored.
        folder: the work dir of the run.
    """
    results.add(report)
    click.echo(f"reports {results.runs}", err=True)
    if json_path == "-":
        click.echo(json.dumps(report, indent=1))
    else:
        click.echo(summary(report, folder))
        if json_path:
            instead = f"instead of --json take the same report from {folder / FILE}"
            write_whole(Path(json_path), json.dumps(report, indent=1), instead)
    sys.exit(ExitCode.INTERRUPTED if report["interrupted"] else exit_code([report]))


# Options that are no part of a cell.
_OTHER = ("scenario", "save", "json_path", *WORKSPACE_PARAMETERS, *KAFKA_PARAMETERS)


def asked_cell(context: click.Context, kafka: KafkaAccess | None) -> Cell:
    """Returns the cell that the options of this command make, after all checks.

    Raises:
        UserError: the options do not fit together, or make no possible cell (exit code 2).
    """
    options = {name: value for name, value in settled(context).items() if name not in _OTHER}
    sink, guarantee, variant, faults = (options.pop(name) for name in ("sink", "guarantee", "variant", "faults"))
    with context.scope(cleanup=False), refused_by_file(context):
        support = support_of(sink, guarantee, variant)
        cell = replace(
            base_cell(**with_records(options)),
            sink=sink,
            guarantee=guarantee,
            variant=support.variant,
            faults=tuple(map(checked_fault, faults)),
        )
        refuse([cell], kafka)
    return cell


def require_writable(json_path: str | None) -> None:
    """Checks that the report can be written, before a run that may take minutes.

    Raises:
        UserError: the report cannot be written (exit code 2).
    """
    path = None if json_path in (None, "-") else Path(str(json_path))
    refuse_unwritable("--json", path, ", or print the report with --json -")
