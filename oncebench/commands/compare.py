"""`oncebench compare`: a profile of cells, one table."""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from oncebench.commands.interrupted import done_of, interruption_told
from oncebench.commands.options import (
    base_cell,
    cell_options,
    keep_option,
    load_options,
    postgres_option,
    refuse_idle_on_lost,
    refuse_idle_postgres,
    work_dir_option,
)
from oncebench.commands.series import Trouble, at_least_s, run_series
from oncebench.errors import ERROR, INTERRUPTED, KEPT, USAGE, UserError
from oncebench.measure import exit_code
from oncebench.report.comparisons import comparison
from oncebench.report.results import LOCAL, PUBLISHED, Results, default_work_dir, stamp
from oncebench.report.schema import Report
from oncebench.scenario.cell import Cell
from oncebench.scenario.profiles import PROFILES, by_profile
from oncebench.scenario.rounds import in_rounds
from oncebench.scenario.sweeps import SWEEPS

FEW_RUNS = 3  # of which nobody needs to be told how long they take


@click.command(short_help="Run a profile of cells; one table.")
@click.option("--profile", type=click.Choice(sorted(PROFILES)), default="quick", show_default=True, help="Which cells.")
@click.option(
    "--sink",
    "sinks",
    multiple=True,
    help="Whose cells; may be given several times [default: kafka; standard and broken: every sink].",
)
@click.option(
    "--only",
    metavar="TEXT",
    help="Of these, the cells whose title has every word of TEXT. A title: `kafka exactly-once two-phase, healthy`, or "
    "with `after-commit:kill` in the place of healthy; in a sweep its value follows: `trigger 5s`, `rate 1,000`.",
)
@click.option(
    "--sweep", type=click.Choice(sorted(SWEEPS)), help="Each healthy cell at several values of one thing; no others."
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    help=f"Rounds over all healthy cells [default: {by_profile(attrgetter('repeat'))}].",
)
@load_options(rate=by_profile(attrgetter("rate")), duration=by_profile(attrgetter("duration_s")))
@cell_options(warmup=by_profile(attrgetter("warmup_s")))
@click.option("--publish", is_flag=True, help="Write to results/ (what the repository publishes), not results/local/.")
@postgres_option
@work_dir_option
@keep_option
def compare(
    profile: str,
    sinks: tuple[str, ...],
    only: str | None,
    sweep: str | None,
    repeat: int | None,
    bootstrap_servers: str | None,
    publish: bool,
    work_dir: Path | None,
    keep: bool,
    **words: Any,
) -> None:
    """Run a profile of cells one after the other and print one table.

    Profiles, of the Kafka sink unless --sink names others (standard and broken: every sink):

    \b
    quick       every guarantee, healthy and killed where it tells most
    standard    the same, killed twice in a run; then all of `broken`
    broken      protocols with one detail left out: exit code 0 if each
                breaks its promise as it is there to show
    failpoints  every guarantee, healthy and killed at every failpoint, one
                after the other in one run
    double      exactly-once only: killed in a batch and again in its replay
    cost        at-least-once and exactly-once, healthy, for --repeat
    recovery    both killed at the same point, ten rounds of it
    full        standard with five rounds of the healthy cells: what is
                published
    """
    of = PROFILES[profile]
    named = {name for name in words if _source(name) is not ParameterSource.DEFAULT}
    if not named & {"duration", "sessions"}:
        words["duration"] = of.duration_s
    if "warmup_s" not in named:
        words["warmup_s"] = of.warmup_s
    if "rate" not in named:
        words["rate"] = str(of.rate)
    cells = of.chosen(base_cell(**words), sinks)
    called: Callable[[Cell], str] = attrgetter("title")
    shown: Callable[[Cell], str] = attrgetter("brief")
    if sweep is not None:
        cells = list(SWEEPS[sweep].of([cell for cell in cells if not cell.faulted]))
        called = shown = SWEEPS[sweep].name
        if not cells:
            raise UserError(f"profile {profile} has no healthy cell, and a sweep runs no others", exit_code=USAGE)
    cells = _chosen(cells, called, only)
    refuse_idle_postgres(cell.sink for cell in cells)
    refuse_idle_on_lost(cells)
    rounds = in_rounds(cells, repeat or of.repeat)
    results = Results(PUBLISHED if publish else LOCAL, f"{profile}-{stamp()}")
    reports: list[Report] = []
    trouble = Trouble()
    if len(rounds) > FEW_RUNS:
        click.echo(f"{len(rounds)} runs, {at_least_s(rounds) / 60:.0f} min at least", err=True)
    try:
        place = work_dir or default_work_dir("compare")
        with interruption_told():
            reports.extend(run_series(rounds, results, bootstrap_servers, place, keep, trouble, shown))
    finally:  # what was measured is shown, whatever came of a later cell or of cleaning up
        if reports:
            _show(reports, results)
    if len(reports) + len(trouble.lines) < len(rounds):
        if not reports:
            raise UserError("interrupted before the first cell was done; nothing was written", exit_code=INTERRUPTED)
        click.echo(done_of(len(reports), len(rounds)), err=True)
        sys.exit(INTERRUPTED)
    if not reports:
        raise trouble.errors[-1]
    trouble.tell_again()
    worst = exit_code(reports)
    sys.exit(ERROR if trouble.lines and worst == KEPT else worst)


def _source(name: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(name)


def _show(reports: list[Report], results: Results) -> None:
    written, comma = results.write_tables(reports)
    click.echo(comparison.text(reports), nl=False)
    click.echo(f"\nreports {results.runs}\ntables  {written}  {comma}", err=True)
    say_how_to_replay(reports)


def _chosen(cells: list[Cell], called: Callable[[Cell], str], only: str | None) -> list[Cell]:
    chosen = [cell for cell in cells if all(word in called(cell) for word in (only or "").split())]
    if not chosen:
        raise UserError(f"no cell's title has all of {only!r}; see `oncebench list --profile`", exit_code=USAGE)
    return chosen


def say_how_to_replay(reports: list[Report]) -> None:
    click.echo("\nEach row can be replayed:", err=True)
    for report in reports:
        click.echo(f"  {report['reproduce']}", err=True)
