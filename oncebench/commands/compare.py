"""`oncebench compare`: runs a profile of cells and prints one table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from oncebench.commands.scenario_files.series import open_scenarios
from oncebench.commands.shared.failed_runs import FailedRuns
from oncebench.commands.shared.interruption import progress_message, suppress_interruption
from oncebench.commands.shared.options import (
    GroupedCommand,
    base_cell,
    cell_options,
    load_options,
    publish_option,
)
from oncebench.commands.shared.postgres import postgres_option
from oncebench.commands.shared.refusals import refuse
from oncebench.commands.shared.workspace import workspace_options
from oncebench.commands.shared.writable import new_results
from oncebench.errors import ExitCode, Interrupted, UserError
from oncebench.experiments.series import at_least_s, run_series
from oncebench.experiments.workspace import Workspace
from oncebench.measure import exit_code
from oncebench.report.results import Results, stamp
from oncebench.report.schema import Report
from oncebench.report.tables import comparison
from oncebench.scenario.cell import Cell
from oncebench.scenario.profiles import PROFILES, Profile, by_profile
from oncebench.scenario.rounds import in_rounds
from oncebench.scenario.sweeps import SWEEPS

FEW_RUNS = 3  # no estimate of the duration for so few runs
# Printed last, because make reports only "Error 1".
_MEANING: Mapping[int, str] = {
    ExitCode.ERROR: "a run is unknown or vacuous (reasons below the first table), or a sink that is broken on purpose "
    "did not show its anomaly",
    ExitCode.BROKEN: "a guarantee was broken",
}


@click.command(cls=GroupedCommand)
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...", type=click.Path(path_type=Path))
@click.option(
    "--profile",
    type=click.Choice(sorted(PROFILES)),
    default="quick",
    show_default=True,
    help="Set of cells to run; see above.",
)
@click.option(
    "--sink",
    "sinks",
    multiple=True,
    help="Sink whose cells run; repeat for several [default: kafka; standard, broken and full: every sink].",
)
@click.option(
    "--only",
    metavar="TEXT",
    help="Run only cells whose title has every word of TEXT. A title is `kafka exactly-once two-phase, healthy`, or "
    "with a fault such as `after-commit:kill` instead of healthy. In a sweep the value follows: `rate 1,000`.",
)
@click.option(
    "--sweep", type=click.Choice(sorted(SWEEPS)), help="Vary one setting over several values; healthy cells only."
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    help=f"Rounds over the healthy cells [default: {by_profile(attrgetter('repeat'))}; with scenarios 1].",
)
@load_options(rate=by_profile(attrgetter("rate")), duration=by_profile(attrgetter("duration_s")))
@cell_options(warmup=by_profile(attrgetter("warmup_s")))
@publish_option
@postgres_option
@workspace_options
@click.pass_context
def compare(
    context: click.Context,
    /,
    scenarios: tuple[Path, ...],
    profile: str,
    sinks: tuple[str, ...],
    only: str | None,
    sweep: str | None,
    repeat: int | None,
    publish: bool,
    workspace: Workspace,
    **options: Any,
) -> None:
    """Run a profile of cells one after the other and print one table.

    A cell is one run: sink, guarantee, variant, faults and load. `oncebench list --profile NAME` prints a profile's
    cells as commands.

    SCENARIO are files of `oncebench run --save`, whose cells run instead of a profile. An option on the command line
    overrides every file.

    \b
    Examples:
      oncebench compare
      oncebench compare mine.toml theirs.toml --repeat 6
      oncebench compare --profile cost --sink postgres --repeat 6
      oncebench compare --profile cost --sweep rate

    \b
    Profiles:
      quick       every guarantee, healthy and killed once at the point that
                  separates the guarantees
      standard    every guarantee, healthy and killed twice in one run; then
                  all of `broken`
      broken      protocols with one deliberate defect; exit code 0 if each
                  shows its documented anomaly
      failpoints  every guarantee, healthy and killed at every failpoint in
                  one run
      double      exactly-once only, killed in a batch and again in its replay
      cost        at-least-once and exactly-once, healthy, at 10,000 events/s;
                  use --repeat
      price       at-least-once and exactly-once in every variant, flat out,
                  in ten rounds: time and CPU per event
      recovery    at-least-once and exactly-once, killed at the same point,
                  in ten rounds
      full        the published comparison: standard at 10,000 events/s,
                  with six rounds of the healthy cells
    """
    chosen_profile = PROFILES[profile]
    if scenarios:
        series = context.with_resource(open_scenarios(context, scenarios))
        cells = series.cells
        workspace = replace(workspace, kafka=series.kafka, start_timeout_s=series.start_timeout_s)
    else:
        cells = _of_profile(chosen_profile, options, sinks)
    name: Callable[[Cell], str] = attrgetter("title")
    brief: Callable[[Cell], str] = attrgetter("brief")
    if sweep is not None:
        cells = list(SWEEPS[sweep].of([cell for cell in cells if not cell.faulted]))
        name = brief = SWEEPS[sweep].name
        if not cells:
            where = "the scenarios have" if scenarios else f"profile {profile} has"
            raise UserError(f"{where} no healthy cell, and a sweep runs healthy cells only", exit_code=ExitCode.USAGE)
    cells = _select(cells, name, only)
    refuse(cells, workspace.kafka)
    rounds = in_rounds(cells, repeat or (1 if scenarios else chosen_profile.repeat))
    results = new_results(f"{'scenarios' if scenarios else profile}-{stamp()}", publish)
    reports: list[Report] = []
    failed_runs = FailedRuns(workspace.kafka)
    if len(rounds) > FEW_RUNS:
        click.echo(f"{len(rounds)} runs, about {at_least_s(rounds) / 60:.0f} min", err=True)
    try:
        with suppress_interruption():
            reports.extend(run_series(rounds, results, workspace, failed_runs, brief))
    finally:  # print what was measured, also if a later cell or the clean-up failed
        if reports:
            _print(reports, results)
    if len(reports) + len(failed_runs.lines) < len(rounds):
        if not reports:
            raise Interrupted("interrupted before the first cell was done. Nothing was written")
        click.echo(progress_message(len(reports), len(rounds)), err=True)
        sys.exit(ExitCode.INTERRUPTED)
    if not reports:
        raise failed_runs.errors[-1]
    failed_runs.repeat()
    worst = exit_code(reports)
    if worst in _MEANING:
        click.echo(f"exit code {worst}: {_MEANING[worst]}", err=True)
    sys.exit(ExitCode.ERROR if failed_runs.lines and worst == ExitCode.KEPT else worst)


def _of_profile(profile: Profile, options: dict[str, Any], sinks: tuple[str, ...]) -> list[Cell]:
    """Returns the cells of a profile, with its own load where no option gives another."""
    given = {name for name in options if _source(name) is not ParameterSource.DEFAULT}
    if "warmup_s" not in given:
        options["warmup_s"] = profile.warmup_s
    if "rate" not in given:
        options["rate"] = str(profile.rate)
    if not given & {"duration", "sessions"}:
        flat_out = options["rate"] == "max"
        options |= {"sessions": profile.sessions} if flat_out else {"duration": profile.duration_s}
    return profile.select_cells(base_cell(**options), sinks)


def _source(name: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(name)


def _print(reports: list[Report], results: Results) -> None:
    written, comma = results.write_tables(reports)
    click.echo(comparison.text(reports), nl=False)
    click.echo(f"\nreports {results.runs}\ntables  {written}  {comma}", err=True)
    _print_commands(reports)


def _select(cells: list[Cell], name: Callable[[Cell], str], only: str | None) -> list[Cell]:
    selected = [cell for cell in cells if all(word in name(cell) for word in (only or "").split())]
    if not selected:
        raise UserError(
            f"no cell's title has all words of {only!r}. A title is such as {name(cells[0])!r}",
            exit_code=ExitCode.USAGE,
        )
    return selected


def _print_commands(reports: list[Report]) -> None:
    click.echo("\nCommands that repeat each run:", err=True)
    for report in reports:
        click.echo(f"  {report['reproduce']}", err=True)
