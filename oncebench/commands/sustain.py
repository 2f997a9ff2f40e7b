"""`oncebench sustain`: finds the highest rate that each guarantee sustains."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from loadgen.session import EVENTS_PER_SESSION
from oncebench.commands.shared.failed_runs import FailedRuns
from oncebench.commands.shared.interruption import progress_message, suppress_interruption
from oncebench.commands.shared.kafka import kafka_options
from oncebench.commands.shared.options import (
    MAX_FIRST_SEED,
    GroupedCommand,
    publish_option,
)
from oncebench.commands.shared.postgres import postgres_option
from oncebench.commands.shared.refusals import refuse
from oncebench.commands.shared.workspace import workspace_options
from oncebench.commands.shared.writable import new_results
from oncebench.delivery.errors import PipelineError
from oncebench.errors import ExitCode, Interrupted, UserError
from oncebench.experiments.rate_search import Found, NoAnswer, fewest_rates, of_three, search
from oncebench.experiments.series import Run, at_least_s, open_series
from oncebench.experiments.workspace import Workspace
from oncebench.measure import exit_code
from oncebench.report.comparisons import sustained
from oncebench.report.comparisons.paired import FEWEST_ROUNDS
from oncebench.report.results import stamp
from oncebench.report.schema import Report
from oncebench.report.tables import cost_table
from oncebench.scenario.cell import Cell
from oncebench.scenario.profiles import PROFILES
from oncebench.scenario.rounds import in_rounds
from oncebench.scenario.supports import all_supports, require_sinks

# Latencies are compared at this share of the slowest guarantee's rate, where no guarantee is near its limit. Apache
# Solr Benchmark and OpenMessaging use 70 to 80 %.
COMPARED_AT = 0.75
# Events per second that are tried. Below, a batch has one or two sessions; above, the generator needs its own core.
LOWEST, HIGHEST = 100.0, 100_000.0
# The warm-up of the published series. During it the JIT compiler lowers latency, which would hide a rise.
WARMUP_S = PROFILES["full"].warmup_s
# A late generator is mostly other load of the machine, which passes. So does a step of the clock.
TRIES = 3
# A verdict on a rate needs nine seconds after the warm-up, with rows in six of them.
SHORTEST_S = WARMUP_S + 9.0


@click.command(cls=GroupedCommand)
@click.option(
    "--sink", "sinks", multiple=True, help="Sink whose guarantees are tried; repeat for several [default: kafka]."
)
@click.option(
    "--only", metavar="TEXT", help="Try only configurations whose title contains every word of TEXT: `exactly-once`."
)
@click.option(
    "--start",
    type=click.FloatRange(LOWEST, HIGHEST),
    default=2000.0,
    show_default=True,
    metavar="EV/S",
    help="First rate to try, in events per second.",
)
@click.option(
    "--probe",
    "probe_s",
    type=click.FloatRange(SHORTEST_S),
    default=24.0,
    show_default=True,
    metavar="S",
    help="Seconds of load at each rate, including 6 s of warm-up.",
)
@click.option(
    "--precision",
    type=click.FloatRange(0.01, 1.0),
    default=0.1,
    show_default=True,
    help="Stop when the limit is known to this relative precision: 0.1 is 10 %.",
)
@click.option(
    "--repeat",
    type=click.IntRange(0),
    default=FEWEST_ROUNDS,
    show_default=True,
    help="Rounds that compare costs at 75 % of the slowest guarantee's rate, per sink; 0: no comparison.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, MAX_FIRST_SEED),
    default=1,
    show_default=True,
    help="Seed of the first load.",
)
@kafka_options()
@publish_option
@postgres_option
@workspace_options
def sustain(
    sinks: tuple[str, ...],
    only: str | None,
    start: float,
    probe_s: float,
    precision: float,
    repeat: int,
    seed: int,
    publish: bool,
    workspace: Workspace,
) -> None:
    """Find the highest rate that each guarantee sustains, then compare their costs.

    A rate is sustained if three conditions hold. Consumer lag grows by less than 1 % of the load (at two standard
    errors). Latency rises by less than a quarter. Every guarantee is kept. A rate that fails is tried twice more, and
    the majority decides. A probe has no answer if the generator does not reach its rate, or if its verdict is unknown,
    for example because the machine's clock was set. After three such probes the search ends below that rate.

    The command prints the rates. For each sink it also prints the costs of its guarantees at three
    quarters of the lowest rate. A guarantee without a result is left out, and the exit code is then 1.

    \b
    Example:
      oncebench sustain --sink postgres --only exactly-once
    """
    wanted = sinks or ("kafka",)
    require_sinks(wanted)
    cells = [Cell(sink, support.guarantee, support.variant, seed=seed, warmup_s=WARMUP_S)
             for sink, support in all_supports() if sink in wanted]  # fmt: skip
    cells = [cell for cell in cells if all(word in cell.title for word in (only or "").split())]
    if not cells:
        raise UserError(f"no configuration has all words of {only!r}; see `oncebench list`", exit_code=ExitCode.USAGE)
    largest = [_at_rate(cell, min(HIGHEST, 4 * start), probe_s) for cell in cells]
    refuse(largest, workspace.kafka)
    results = new_results(f"sustain-{stamp()}", publish)
    click.echo(_estimate(cells, start, probe_s, precision, repeat), err=True)
    found: dict[Cell, Found] = {}
    probes: list[Report] = []
    compared_at: dict[str, float] = {}
    reports: list[Report] = []
    unfinished, failed_runs = list[str](), FailedRuns(workspace.kafka)
    try:
        with open_series(largest, results, workspace) as (run, interrupted):
            for cell in cells:
                try:
                    keeps_up = _Probes(run, interrupted, cell, probe_s, probes).keeps_up
                    limit = search(of_three(keeps_up), start, LOWEST, HIGHEST, precision)
                    if limit.unanswered and not limit.kept:
                        raise UserError(f"{limit.unanswered}. Run it again on an idle machine, or give a lower --start")
                    found[cell] = limit
                    click.echo(f"{cell.title}: {_describe(limit)}", err=True)
                except Interrupted:
                    raise
                except (UserError, PipelineError, OSError) as error:
                    unfinished.append(f"{cell.title}: {error}")
                    click.echo(unfinished[-1], err=True)
            if repeat:
                compared_at = _comparison_rates(found)
                compared = [
                    _at_rate(cell, compared_at[cell.sink], probe_s) for cell in found if cell.sink in compared_at
                ]
                _rounds(run, interrupted, in_rounds(compared, repeat), reports, failed_runs)
    finally:  # print what was measured, also after an error
        click.echo(sustained.markdown(probes), nl=False)
        for sink, rate in compared_at.items():
            if mine := [report for report in reports if report["cell"]["sink"] == sink]:
                click.echo(f"\n{sink} at {rate:,.0f} events/s:\n\n{cost_table.markdown(mine)}", nl=False)
        if results.runs.exists():
            click.echo(f"\nreports {results.runs}", err=True)
    click.echo("\n".join(unfinished), nl=bool(unfinished), err=True)
    failed_runs.repeat()
    if any(report["verdict"] == "broken" for report in (*probes, *reports)):
        sys.exit(ExitCode.BROKEN)
    if unfinished or failed_runs.lines or exit_code(reports) != ExitCode.KEPT:
        sys.exit(ExitCode.ERROR)


def _estimate(cells: Sequence[Cell], start: float, probe_s: float, precision: float, repeat: int) -> str:
    rates = fewest_rates(precision)
    runs = [_at_rate(cell, start, probe_s) for cell in cells for _ in range(rates + repeat)]
    searches = f"{len(cells)} search{'' if len(cells) == 1 else 'es'} of usually {rates} rates or more"
    rounds = f", then {repeat} round{'' if repeat == 1 else 's'}" if repeat else ""
    return f"{searches}{rounds}: {at_least_s(runs) / 60:.0f} min or more"


def _comparison_rates(found: Mapping[Cell, Found]) -> dict[str, float]:
    """The rate at which each sink's guarantees are compared; prints sinks without one."""
    slowest: dict[str, Cell] = {}
    for cell in found:
        slowest[cell.sink] = min(slowest.get(cell.sink, cell), cell, key=lambda each: found[each].kept)
    for sink, cell in slowest.items():
        if not found[cell].kept:
            click.echo(f"{sink}: costs are not compared, because {cell.guarantee} {cell.variant} sustains no rate "
                       "that was tried", err=True)  # fmt: skip
    return {sink: round(COMPARED_AT * found[cell].kept) for sink, cell in slowest.items() if found[cell].kept}


def _at_rate(cell: Cell, rate: float, lasts_s: float) -> Cell:
    return replace(cell, rate=rate, sessions=max(1, round(rate * lasts_s / EVENTS_PER_SESSION)))


@dataclass(frozen=True)
class _Probes:
    """Tries rates of one cell, and adds each report to `reports`."""

    run: Run
    interrupted: Any
    cell: Cell
    probe_s: float
    reports: list[Report]

    def keeps_up(self, rate: float) -> bool:
        """Tries a rate (events per second) once, or up to TRIES times while the probe has no answer.

        Raises:
            NoAnswer: no probe had an answer (`sustained.unanswered`).
            UserError: the probe has no result, or was interrupted.
        """
        for _ in range(TRIES):
            report = self._probe(rate)
            why = sustained.unanswered(report)
            if why is None:
                return not any(True for _ in sustained.why_not(report))
            if why == sustained.TOO_SHORT:
                raise UserError(f"a probe of {self.probe_s:g} s is too short for {rate:,.0f} events/s, because "
                                "batches take too long. Give a longer --probe")  # fmt: skip
        raise NoAnswer(why)

    def _probe(self, rate: float) -> Report:
        cell = _at_rate(self.cell, round(rate), self.probe_s)
        title = f"{cell.sink} {cell.guarantee} {cell.variant} at {rate:,.0f} events/s"
        report = self.run(cell, title, True)
        if self.interrupted.is_set():
            raise Interrupted(f"interrupted during the search for the rate of {cell.title}")
        self.reports.append(report)
        answer = sustained.unanswered(report) or "; ".join(sustained.why_not(report)) or "sustained"
        click.echo(f"{title}: {answer}", err=True)
        return report


def _rounds(run: Run, interrupted: Any, cells: Sequence[Cell], reports: list[Report], failed_runs: FailedRuns) -> None:
    """Runs the rounds and adds each report at once, so that an interruption loses none."""
    with suppress_interruption():
        for number, cell in enumerate(cells, 1):
            try:
                report = run(cell, f"{number}/{len(cells)} {cell.brief}", False)
            except Interrupted:
                raise
            except (UserError, PipelineError, OSError) as error:
                failed_runs(cell, error)
                continue
            reports += [] if report["interrupted"] else [report]
            if interrupted.is_set():
                break
    if len(reports) + len(failed_runs.lines) < len(cells):
        raise Interrupted(progress_message(len(reports), len(cells)))


def _describe(found: Found) -> str:
    limit = f"sustains {found.kept:,.0f} events/s" + (f" but not {found.lost:,.0f}" if found.lost else "")
    return f"{limit}; {found.unanswered}" if found.unanswered else limit
