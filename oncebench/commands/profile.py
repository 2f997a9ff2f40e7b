"""`oncebench profile`: shows where the time and the CPU of a batch go."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from loadgen.session import EVENTS_PER_SESSION
from oncebench.commands.shared.options import (
    GroupedCommand,
    base_cell,
    cell_options,
    guarantee_option,
    load_options,
    sink_option,
)
from oncebench.commands.shared.postgres import postgres_option
from oncebench.commands.shared.refusals import refuse
from oncebench.commands.shared.workspace import workspace_options
from oncebench.downloads.java import find_java
from oncebench.errors import ExitCode, UserError
from oncebench.experiments.workspace import Workspace, run_one
from oncebench.measure import exit_code
from oncebench.profiling.profilers import Profilers, Tools
from oncebench.profiling.result import describe, write_pages
from oncebench.report.comparisons.sustained import backlog_in_latency
from oncebench.scenario.cell import Cell
from oncebench.scenario.supports import support_of

# Seconds by which the load outlasts the samples. The profilers start one after the other, and py-spy writes its file.
MARGIN_S = 6.0
SHORTEST_S, LONGEST_S = 1, 600  # a longer profile only makes larger files
FOLDER = "profile"  # in the work dir


@click.command(cls=GroupedCommand)
@sink_option
@guarantee_option
@click.option(
    "--variant", help="Protocol that keeps the guarantee; see `oncebench list` [default: the sink's default]."
)
@click.option(
    "--for",
    "seconds",
    type=click.IntRange(SHORTEST_S, LONGEST_S),
    default=10,
    show_default=True,
    metavar="S",
    help="Seconds that the profilers sample, from the end of the warm-up on.",
)
@load_options(duration="--warmup plus --for plus 6")
@cell_options()
@postgres_option
@workspace_options
def profile(
    sink: str,
    guarantee: str,
    variant: str | None,
    seconds: int,
    workspace: Workspace,
    **options: Any,
) -> None:
    """Show where the time and the CPU of a batch go, in one healthy run.

    Runs a cell as `oncebench run` does. After the warm-up, async-profiler samples the JVM, and py-spy the Python
    processes. Prints the time of a batch and its CPU time by part. Writes flame graphs to profile/ in the work dir.

    Profilers take CPU time themselves: do not compare these times with those of other runs. Install py-spy with
    pip install '.[profile]' in your clone. To attach, run as root, or allow this user to trace its own processes.

    \b
    Example:
      oncebench profile --sink kafka --guarantee exactly-once --rate 3000
    """
    cell = _cell(sink, guarantee, variant, seconds, options)
    refuse([cell], workspace.kafka)
    tools = Tools.find()
    place = workspace.folder.resolve()
    with Profilers(tools, place / FOLDER, seconds) as profilers:
        report = run_one(cell, workspace, profilers)
    click.echo(f"{cell.title}: {report['verdict']}. Files: {place}", err=True)
    if report["interrupted"]:
        sys.exit(ExitCode.INTERRUPTED)
    samples = profilers.samples()
    click.echo(f"{cell.title}, {report['verdict']}\n{describe(place, samples)}")
    if backlog_in_latency(report):
        click.echo("The pipeline fell behind its load, so batches grew. Give a lower --rate for steady batches.")
    write_pages(place / FOLDER, samples, tools.jvm, find_java())
    click.echo(f"flame graphs and stacks: {place / FOLDER}")
    sys.exit(exit_code([report]))


def _cell(sink: str, guarantee: str, variant: str | None, seconds: int, options: dict[str, Any]) -> Cell:
    """Returns the cell, with a load that outlasts the profilers.

    Raises:
        UserError: the load is too short, or the profilers could not see the pipeline's processes (exit code 2).
    """
    support = support_of(sink, guarantee, variant)
    if options["rate"] == "max":
        raise UserError("--rate max has no steady batches to profile. Give events per second", exit_code=ExitCode.USAGE)
    least_s = options["warmup_s"] + seconds + MARGIN_S
    if options["duration"] is None and options["sessions"] is None:
        options = {**options, "duration": least_s}
    cell = replace(base_cell(**options), sink=sink, guarantee=guarantee, variant=support.variant)
    if not cell.master.startswith("local[") or cell.workers:
        raise UserError(
            f"{cell.spark_text}: only a pipeline in one JVM can be profiled. Give local[2], for example",
            exit_code=ExitCode.USAGE,
        )
    one_session_s = EVENTS_PER_SESSION / float(cell.rate)  # a load has whole sessions
    if cell.load_s < least_s - one_session_s:
        raise UserError(
            f"a load of {cell.load_s:.0f} s is too short: --warmup and --for take {least_s - MARGIN_S:.0f} s, and the "
            f"profilers {MARGIN_S:.0f} s to start and end. Give a longer --duration, or leave it out",
            exit_code=ExitCode.USAGE,
        )
    return cell
