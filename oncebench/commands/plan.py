"""`oncebench plan`: computes cores, partitions, trigger and transaction time-out.

The command computes them from measured runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from oncebench.commands.shared.failed_runs import FailedRuns
from oncebench.commands.shared.interruption import progress_message, suppress_interruption
from oncebench.commands.shared.kafka import kafka_options
from oncebench.commands.shared.options import (
    MAX_OUTAGE_S,
    GroupedCommand,
    existing_path,
    finite,
    guarantee_option,
)
from oncebench.commands.shared.postgres import postgres_option
from oncebench.commands.shared.refusals import given, refuse
from oncebench.commands.shared.workspace import WORKSPACE_PARAMETERS, workspace_options
from oncebench.commands.shared.writable import new_results
from oncebench.errors import ExitCode, Interrupted, UserError
from oncebench.experiments.series import at_least_s, run_series
from oncebench.experiments.workspace import Workspace
from oncebench.kafka_access.access import KafkaAccess
from oncebench.planning.choice import choose, transaction_timeout_s
from oncebench.planning.held_out import errors
from oncebench.planning.model import are_enough, fit
from oncebench.planning.points import Point, points
from oncebench.planning.text import command_text, errors_text, plan_text
from oncebench.report.report import read_reports
from oncebench.report.results import LOCAL, stamp
from oncebench.scenario.cell import Cell
from oncebench.scenario.plan_cells import plan_cells
from oncebench.scenario.supports import is_two_phase, support_of

# Long enough to notice an outage and to repair a common one by hand.
USUAL_OUTAGE_S = 600.0
# Options that only a run uses, besides those for Kafka.
OF_RUNS = ("postgres", *WORKSPACE_PARAMETERS)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s)")


class _Duration(click.ParamType[float]):
    """A time such as `1s` or `500ms`; the value is in milliseconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = _DURATION.fullmatch(value)
        if found is None or not float(found[1]):
            self.fail(f"{value!r} is not a time. Write it as 500ms or 1s", param, ctx)
        return float(found[1]) * (1000 if found[2] == "s" else 1)


@click.command(cls=GroupedCommand)
@click.option(
    "--rate",
    type=click.FloatRange(min=1),
    callback=finite,
    required=True,
    metavar="EV/S",
    help="Events per second that the job must process.",
)
@guarantee_option
@click.option("--p99", "p99_ms", type=_Duration(), required=True, help="Highest p99 latency to visibility: 500ms, 1s.")
@click.option("--sink", default="kafka", show_default=True, help="Sink of the job.")
@click.option(
    "--variant", help="Protocol that keeps the guarantee; see `oncebench list` [default: the sink's default]."
)
@click.option(
    "--outage",
    "outage_s",
    type=click.FloatRange(0, MAX_OUTAGE_S),
    default=USUAL_OUTAGE_S,
    callback=finite,
    metavar="S",
    show_default=True,
    help="Seconds that the job may be down before Kafka aborts its prepared transactions.",
)
@click.option("--measure", is_flag=True, help="First run the cells that a plan needs, 11 runs in about 7 minutes.")
@click.option(
    "--from",
    "sources",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="REPORTS",
    help="File of measured runs; repeat for several [default: the newest file of --measure].",
)
@kafka_options()
@postgres_option
@workspace_options
def plan(
    rate: float,
    guarantee: str,
    p99_ms: float,
    sink: str,
    variant: str | None,
    outage_s: float,
    measure: bool,
    sources: tuple[Path, ...],
    workspace: Workspace,
) -> None:
    """Plan cores, partitions, trigger and transaction time-out for a rate and a latency.

    The plan is computed from runs on your machine: give --measure once, and later commands use its runs. It has the
    fewest cores that keep the p99, with at most 75 % of their time in use. A plan for more cores than measured assumes
    that tasks share nothing but the cores.

    With your own Kafka or PostgreSQL, the cores are for the pipeline alone.

    The second table is the error of the plan: each measured setting, predicted from the others.

    \b
    Examples:
      oncebench plan --rate 5000 --guarantee exactly-once --p99 1s --measure
      oncebench plan --rate 200000 --guarantee exactly-once --p99 1s
    """
    support = support_of(sink, guarantee, variant)
    if measure and sources:
        raise UserError("--measure makes runs and --from names some. Give one of them", exit_code=ExitCode.USAGE)
    if measure:
        cells = list(plan_cells(sink, guarantee, support.variant))
        refuse(cells, workspace.kafka)
        sources = (_measure(cells, workspace),)
    else:
        _refuse_options_of_runs(workspace.kafka)
    measured = _points(sources, sink, guarantee, support.variant, measure)
    costs = fit(measured)
    chosen = choose(costs, rate, p99_ms)
    two_phase = is_two_phase(Cell(sink, guarantee, support.variant))
    timeout_s = transaction_timeout_s(chosen, outage_s) if two_phase else None
    click.echo(plan_text(chosen, costs, timeout_s, outage_s))
    click.echo(errors_text(errors(measured), costs), nl=False)
    click.echo(f"\ntry it: {command_text(chosen, sink, guarantee, support.variant, timeout_s)}", err=True)


def _refuse_options_of_runs(kafka: KafkaAccess | None) -> None:
    options = click.get_current_context().command.params
    idle = [each.opts[0] for each in options if each.name in OF_RUNS and given(each.name)]
    for name in ["a Kafka", *idle] if kafka is not None else idle:
        raise UserError(f"{name} is used by --measure only. Add --measure", exit_code=ExitCode.USAGE)


def _measure(cells: Sequence[Cell], workspace: Workspace) -> Path:
    results = new_results(f"plan-{stamp()}")
    failed = FailedRuns(workspace.kafka)
    click.echo(f"{len(cells)} runs, about {at_least_s(cells) / 60:.0f} min", err=True)
    with suppress_interruption():
        done = sum(1 for _ in run_series(cells, results, workspace, failed))
    if done + len(failed.lines) < len(cells):
        raise Interrupted(progress_message(done, len(cells)))
    failed.repeat()
    if not done:
        raise failed.errors[-1]
    click.echo(f"reports {results.runs}", err=True)
    return results.runs


def _points(sources: Sequence[Path], sink: str, guarantee: str, variant: str, measured: bool) -> list[Point]:
    """Returns the measured points of these files.

    Without files, it uses the newest file that has enough points for a plan, or else the newest that has some.
    """
    if sources:
        reports = [report for source in sources for report in read_reports(existing_path(source))]
        found = points(reports, sink, guarantee, variant)
    else:
        newest = sorted((LOCAL / "runs").glob("plan-*.jsonl"), reverse=True)
        found = []
        for file in newest:
            in_file = points(read_reports(file), sink, guarantee, variant)
            found = found or in_file
            if are_enough(in_file):
                found = in_file
                break
    if not found:
        where = " or ".join(map(str, sources)) or f"{LOCAL / 'runs'}/plan-*.jsonl"
        todo = "`oncebench table` with this file has their verdicts" if measured else (
            "Add --measure, which runs the cells that a plan needs"
        )  # fmt: skip
        raise UserError(
            f"there is no healthy run of {sink} {guarantee} {variant} that kept up in {where}. {todo}",
            exit_code=ExitCode.ERROR if measured else ExitCode.USAGE,
        )
    return found
