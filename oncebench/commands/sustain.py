"""`oncebench sustain`: the highest rate that each guarantee keeps up with, and what they cost at one that all do."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from oncebench.commands.interrupted import done_of, interruption_told
from oncebench.commands.options import keep_option, postgres_option, refuse_idle_postgres, work_dir_option
from oncebench.commands.series import Run, Trouble, open_series
from oncebench.delivery.errors import PipelineError
from oncebench.errors import BROKEN, ERROR, INTERRUPTED, USAGE, UserError
from oncebench.experiments.rate_search import Found, of_three, search
from oncebench.report.comparisons import sustained
from oncebench.report.comparisons.paired import FEWEST_ROUNDS
from oncebench.report.results import LOCAL, PUBLISHED, Results, default_work_dir, stamp
from oncebench.report.schema import Report
from oncebench.report.tables import cost_table
from oncebench.scenario.cell import Cell, all_supports, require_sinks
from oncebench.scenario.profiles import PROFILES
from oncebench.scenario.rounds import in_rounds

# Of the slowest guarantee's rate: latencies are compared where none of them is near its limit (Apache Solr Benchmark
# and OpenMessaging take 70 to 80 %).
COMPARED_AT = 0.75
# No rate beyond these is tried: below, a batch has a session or two; above, the generator needs a core of its own.
LOWEST, HIGHEST = 100.0, 100_000.0
# As of what is published, and for its reason: before, the JVM still lowers latency, which would hide that it rises.
WARMUP_S = PROFILES["full"].warmup_s
# After it nine seconds and rows in six of them, or nothing can be told.
SHORTEST_S = WARMUP_S + 9.0


@click.command(short_help="The highest rate that each guarantee keeps up with.")
@click.option("--sink", "sinks", multiple=True, help="Whose guarantees; may be given several times [default: kafka].")
@click.option("--only", metavar="TEXT", help="Of these, the ones whose title has every word of TEXT.")
@click.option(
    "--start",
    type=click.FloatRange(LOWEST, HIGHEST),
    default=2000.0,
    show_default=True,
    metavar="EV/S",
    help="The first rate that is tried.",
)
@click.option(
    "--probe",
    "probe_s",
    type=click.FloatRange(SHORTEST_S),
    default=24.0,
    show_default=True,
    metavar="S",
    help="How long each rate is tried, with 6 s of warm-up.",
)
@click.option(
    "--precision",
    type=click.FloatRange(0.01, 1.0),
    default=0.1,
    show_default=True,
    help="How near to the limit is near enough: 0.1 is 10 %.",
)
@click.option(
    "--repeat",
    type=click.IntRange(0),
    default=FEWEST_ROUNDS,
    show_default=True,
    help="Rounds at 75 % of the rate of the slowest of each sink; 0: none.",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the first load.")
@click.option("--bootstrap-servers", metavar="HOST:PORT,..", help="Your own Kafka instead of one of ours.")
@click.option("--publish", is_flag=True, help="Write to results/ (what the repository publishes), not results/local/.")
@postgres_option
@work_dir_option
@keep_option
def sustain(
    sinks: tuple[str, ...],
    only: str | None,
    start: float,
    probe_s: float,
    precision: float,
    repeat: int,
    seed: int,
    bootstrap_servers: str | None,
    publish: bool,
    work_dir: Path | None,
    keep: bool,
) -> None:
    """Search the highest rate that each guarantee of a sink keeps up with, then compare all at 75 % of the lowest.

    A rate is kept up with if the lag does not grow by 1 % of the load for sure (by two standard errors), latency does
    not rise by a quarter, and every promise is kept; where it is not, it is tried twice more, and two of three decide.
    Prints the rates, and for each sink what its guarantees cost at a rate that all of them keep up with. A guarantee of
    which a probe tells nothing is left out of that, and the exit code is then 1.
    """
    wanted = sinks or ("kafka",)
    require_sinks(wanted)
    cells = [Cell(sink, support.guarantee, support.variant, seed=seed, warmup_s=WARMUP_S)
             for sink, support in all_supports() if sink in wanted]  # fmt: skip
    cells = [cell for cell in cells if all(word in cell.title for word in (only or "").split())]
    if not cells:
        raise UserError(f"nothing has all of {only!r}; see `oncebench list`", exit_code=USAGE)
    refuse_idle_postgres(cell.sink for cell in cells)
    results = Results(PUBLISHED if publish else LOCAL, f"sustain-{stamp()}")
    largest = [_at(cell, min(HIGHEST, 4 * start), probe_s) for cell in cells]
    place = work_dir or default_work_dir("sustain")
    found: dict[Cell, Found] = {}
    probes: list[Report] = []
    compared_at: dict[str, float] = {}
    reports: list[Report] = []
    untold, trouble = list[str](), Trouble()
    try:
        with open_series(largest, results, bootstrap_servers, place, keep) as (run, cut):
            for cell in cells:
                try:
                    keeps_up = _Probes(run, cut, cell, probe_s, probes).keeps_up
                    found[cell] = search(of_three(keeps_up), start, LOWEST, HIGHEST, precision)
                    click.echo(f"{cell.title}: {_told(found[cell])}", err=True)
                except (UserError, PipelineError, OSError) as error:
                    if getattr(error, "exit_code", None) == INTERRUPTED:
                        raise
                    untold.append(f"{cell.title}: {error}")
                    click.echo(untold[-1], err=True)
            if repeat:
                compared_at = _compared_at(found)
                compared = [_at(cell, compared_at[cell.sink], probe_s) for cell in found if cell.sink in compared_at]
                _rounds(run, cut, in_rounds(compared, repeat), reports, trouble)
    finally:  # what was measured is shown, whatever came later
        click.echo(sustained.markdown(probes), nl=False)
        for sink, rate in compared_at.items():
            if mine := [report for report in reports if report["cell"]["sink"] == sink]:
                click.echo(f"\n{sink} at {rate:,.0f} events/s:\n\n{cost_table.markdown(mine)}", nl=False)
        if results.runs.exists():
            click.echo(f"\nreports {results.runs}", err=True)
    click.echo("\n".join(untold), nl=bool(untold), err=True)
    trouble.tell_again()
    if any(report["verdict"] == "broken" for report in (*probes, *reports)):
        sys.exit(BROKEN)
    if untold or trouble.lines:
        sys.exit(ERROR)


def _compared_at(found: Mapping[Cell, Found]) -> dict[str, float]:
    """By sink the rate at which its guarantees are compared; says of which sinks none are."""
    slowest: dict[str, Cell] = {}
    for cell in found:
        slowest[cell.sink] = min(slowest.get(cell.sink, cell), cell, key=lambda each: found[each].kept)
    for sink, cell in slowest.items():
        if not found[cell].kept:
            click.echo(f"{sink}: costs are not compared, for {cell.guarantee} {cell.variant} keeps up with no rate "
                       "that was tried", err=True)  # fmt: skip
    return {sink: round(COMPARED_AT * found[cell].kept) for sink, cell in slowest.items() if found[cell].kept}


def _at(cell: Cell, rate: float, lasts_s: float) -> Cell:
    return replace(cell, rate=rate, sessions=max(1, round(rate * lasts_s / 100)))


@dataclass(frozen=True)
class _Probes:
    """Tries rates of one cell; the report of each is added to `reports`."""

    run: Run
    cut: Any
    cell: Cell
    probe_s: float
    reports: list[Report]

    def keeps_up(self, rate: float) -> bool:
        """Tries a rate (events per second) once.

        Raises:
            UserError: it could not be told, or was interrupted.
        """
        cell = _at(self.cell, round(rate), self.probe_s)
        title = f"{cell.sink} {cell.guarantee} {cell.variant} at {rate:,.0f} events/s"
        report = self.run(cell, title, True)
        if self.cut.is_set():
            raise UserError(f"interrupted while the rate of {cell.title} was searched", exit_code=INTERRUPTED)
        self.reports.append(report)
        reasons = list(sustained.why_not(report))
        if reasons == [sustained.TOO_SHORT]:
            raise UserError(f"a probe of {self.probe_s:g} s is too short to tell whether {rate:,.0f} events/s can be "
                            "kept up: batches take too long for it; give a longer --probe")  # fmt: skip
        click.echo(f"{title}: {'; '.join(reasons) or 'kept up'}", err=True)
        return not reasons


def _rounds(run: Run, cut: Any, cells: Sequence[Cell], reports: list[Report], trouble: Trouble) -> None:
    """Adds the reports as they come, so that they are there after an interruption too."""
    with interruption_told():
        for number, cell in enumerate(cells, 1):
            try:
                report = run(cell, f"{number}/{len(cells)} {cell.brief}", False)
            except (UserError, PipelineError, OSError) as error:
                if getattr(error, "exit_code", None) == INTERRUPTED:
                    raise
                trouble(cell, error)
                continue
            reports += [] if report["interrupted"] else [report]
            if cut.is_set():
                break
    if len(reports) + len(trouble.lines) < len(cells):
        raise UserError(done_of(len(reports), len(cells)), exit_code=INTERRUPTED)


def _told(found: Found) -> str:
    return f"keeps up with {found.kept:,.0f} events/s" + (f", not with {found.lost:,.0f}" if found.lost else "")
