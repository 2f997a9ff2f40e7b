"""`oncebench faults`: runs the fault matrix, with one verdict per fault and guarantee."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from loadgen.session import EVENTS_PER_SESSION
from oncebench.commands.shared.checkpoint import checkpoint_option
from oncebench.commands.shared.failed_runs import FailedRuns
from oncebench.commands.shared.interruption import (
    ResumableCommand,
    progress_message,
    resume_command,
    suppress_interruption,
)
from oncebench.commands.shared.kafka import kafka_options
from oncebench.commands.shared.options import (
    MAX_FIRST_SEED,
    brokers_option,
    open_sessions_option,
    publish_option,
    replication_option,
    workload_option,
)
from oncebench.commands.shared.postgres import postgres_option
from oncebench.commands.shared.refusals import refuse
from oncebench.commands.shared.spark import cluster_option
from oncebench.commands.shared.workspace import workspace_options
from oncebench.commands.shared.writable import new_results, refuse_unwritable
from oncebench.errors import ExitCode, UserError
from oncebench.experiments.series import run_series
from oncebench.experiments.workspace import Workspace
from oncebench.report.report import reports_with_lines
from oncebench.report.results import Results, stamp
from oncebench.report.schema import Report
from oncebench.report.tables import fault_matrix, fault_text
from oncebench.scenario.cell import Cell
from oncebench.scenario.matrix.cells import Row, cells, left_out, rows, seeds_for
from oncebench.scenario.matrix.families import EVERYDAY, FAMILIES
from oncebench.scenario.supports import require_sinks
from oncebench.scenario.workloads import WORKLOADS
from oncebench.servers.sink_servers import ours
from oncebench.sinks.registry import suite_sinks

# Events per second. Batches are limited by events, so the rate decides only how long the load lasts. It is slow enough
# for batches to keep up with the load.
RATE = 300.0
# Seconds per fault, measured as `SuiteSink.fault_s`. A fault of one broker of three includes a failover and a start of
# a broker: 13 of them took 330 s in one share, beside other work.
REPLICA_FAULT_S = 25.0
# Ten faults of tasks and executors, in two runs on a cluster of two Spark workers, took 432 s beside some other work.
CLUSTER_FAULT_S = 43.0
SHARES = 3  # of those measurements
# The others need a file.
PLANNED = [name for name, each in WORKLOADS.items() if not each.replays]


class _Share(click.ParamType[tuple[int, int]]):
    """`K/N`: the K-th of N equal shares."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        share, _, shares = str(value).partition("/")
        if not (share.isdecimal() and shares.isdecimal() and 1 <= int(share) <= int(shares)):
            self.fail(f"{value!r} is not a share. Give 1/2 for the first half, for example", param, ctx)
        return int(share), int(shares)


@click.command(cls=ResumableCommand)
@click.option(
    "--sink", "sinks", multiple=True, help="Sink to test; repeat for several [default: every installed sink]."
)
@click.option(
    "--only",
    metavar="TEXT",
    help="Test only rows whose name has every word of TEXT: `kafka two-phase`.",
)
@click.option(
    "--family",
    "families",
    multiple=True,
    type=click.Choice(FAMILIES),
    help="Family of faults to run; repeat for several [default: all but leader-* and unclean-election].",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="How often each chain runs under exactly-once, each time with another seed.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, MAX_FIRST_SEED),
    default=1,
    show_default=True,
    help="Seed of a chain's first run; the next runs count up.",
)
@workload_option(PLANNED)
@open_sessions_option
@brokers_option
@replication_option
@cluster_option
@checkpoint_option
@click.option(
    "--resume",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="REPORTS",
    help="File of reports of an earlier, interrupted command. Runs in it are not repeated. New reports are added to "
    "this file, or to the first of several; with --share, to a new file per share.",
)
@click.option(
    "--share",
    type=_Share(),
    default="1/1",
    metavar="K/N",
    help="Run only the K-th of N equal shares of all runs. Shares never overlap, so they can run in parallel. At the "
    "end, run the command without --share, and with one --resume per file of reports.",
)
@kafka_options("Your own Kafka, without faults of the broker; without the option, a broker is started.")
@publish_option
@postgres_option
@workspace_options
def faults(
    sinks: tuple[str, ...],
    only: str | None,
    families: tuple[str, ...],
    seeds: int,
    seed: int,
    workload: str,
    open_sessions: int,
    brokers: int,
    replication: int | None,
    workers: int,
    checkpoint: str,
    resume: tuple[Path, ...],
    share: tuple[int, int],
    publish: bool,
    workspace: Workspace,
) -> None:
    """Run every possible fault on every sink, guarantee and variant, and judge each.

    Faults are chained: one run has all faults of a family, each in a batch of its own. Exactly-once runs with several
    seeds, the other guarantees run once. The command prints two tables per family, verdicts and recovery. It writes
    reports, tables and JUnit XML.

    The whole matrix takes a day or more; in three parallel shares, most of a day. The command prints an estimate first.
    The example takes some minutes. The families replicas, isolation, leader-* and unclean-election always run with
    three brokers.

    \b
    Example:
      oncebench faults --sink files-jsonl --only two-phase --family kills
    """
    require_sinks(sinks)
    if publish and resume:
        raise UserError(
            "--publish starts a new series, --resume continues one. Give one of them. `oncebench table --publish FILE` "
            "publishes stored reports",
            exit_code=ExitCode.USAGE,
        )
    chosen = [row for row in rows(sinks) if all(word in _title(row) for word in (only or "").split())]
    base = Cell(
        "", "", "", rate=RATE, seed=seed, workload=workload, open_sessions=open_sessions, brokers=brokers,
        replication=replication, workers=workers, checkpoint=checkpoint,
    )  # fmt: skip
    wanted, started = [*dict.fromkeys(families or EVERYDAY)], ours(workspace.kafka)
    planned = cells(chosen, wanted, base, seeds_for(seeds), started)
    no_point, not_here = left_out(chosen, wanted, base, started)
    if not planned:
        reasons = not_here or no_point or [f"{', '.join(wanted)} has no fault for this sink, guarantee and variant"]
        why = f"none of these faults is possible: {'; '.join(reasons)}"
        raise UserError(
            why if chosen else "no row of the matrix matches; see `oncebench list`", exit_code=ExitCode.USAGE
        )
    refuse(planned, workspace.kafka)
    for file in resume:
        if file.suffix != ".jsonl":
            raise UserError(f"--resume {file}: give a file of reports (.jsonl)", exit_code=ExitCode.USAGE)
    whole = share[1] == 1
    if resume and whole:
        refuse_unwritable("--resume", resume[0])
        results = Results.of(resume[0])
    else:
        results = new_results(f"faults-{stamp()}" if whole else f"faults-{stamp()}-{share[0]}", publish)
    for why, what in not_here.items():
        click.echo(f"left out: {', '.join(what)} ({why})", err=True)
    reports = _finished(resume)
    # A field that an older report lacks had its default value.
    done = [Cell("", "", "").as_json() | report["config"] for report in reports]
    remaining = [cell for cell in planned[share[0] - 1 :: share[1]] if cell.as_json() not in done]
    click.echo(f"{len(planned)} runs, {len(remaining)} of them to do here{_estimate(remaining, share[1])}", err=True)
    click.echo(f"reports {results.runs}", err=True)
    failed_runs = FailedRuns(workspace.kafka)
    before = len(reports)
    try:
        if remaining:
            with suppress_interruption():
                reports.extend(run_series(remaining, results, workspace, failed_runs))
    finally:
        found = fault_matrix.cells_of(reports)
        if found:
            _print(reports, found, results, _report_files(resume, results))
    failed_runs.repeat()
    if len(reports) - before + len(failed_runs.lines) < len(remaining):
        click.echo(_interrupted(len(reports) - before, len(remaining), _report_files(resume, results)), err=True)
        sys.exit(ExitCode.INTERRUPTED)
    outcomes = {cell.outcome for cell in found} or {"vacuous"}
    if "broken" in outcomes:
        sys.exit(ExitCode.BROKEN)
    if failed_runs.lines or outcomes & {"unknown", "vacuous"}:
        sys.exit(ExitCode.ERROR)


def _estimate(remaining: Sequence[Cell], shares: int) -> str:
    """The number of faults in these runs, and the expected time with parallel shares."""
    if not remaining:
        return ""
    minutes = shares * sum(map(_seconds, remaining)) / 60
    duration = f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"
    how = f"all {shares} shares in parallel" if shares > 1 else "three shares in parallel, longer without --share"
    faults = sum(len(cell.faults) + cell.random_kills for cell in remaining)
    return f": {faults:,} faults, about {duration} on two cores with {how}"


def _seconds(cell: Cell) -> float:
    if cell.max_events_per_batch is None:
        return cell.sessions * EVENTS_PER_SESSION / float(cell.rate) / SHARES
    if cell.workers:
        return CLUSTER_FAULT_S * (len(cell.faults) + cell.random_kills)
    if cell.brokers > 1:
        return REPLICA_FAULT_S * len(cell.faults)
    sink = suite_sinks()[cell.sink]
    return sink.fault_s * len(cell.faults) + sink.random_kill_s * cell.random_kills


def _interrupted(done: int, of: int, stored: Sequence[Path]) -> str:
    message = progress_message(done, of)
    if not stored:
        return f"{message}. Nothing is stored, so there is nothing to resume"
    return f"{message}. Resume with `{resume_command(click.get_current_context(), stored)}`"


def _report_files(resume: Sequence[Path], results: Results) -> list[Path]:
    """The files with all reports so far, of this and of earlier commands."""
    return list(dict.fromkeys([*resume, *([results.runs] if results.runs.exists() else [])]))


def _finished(files: Sequence[Path]) -> list[Report]:
    """The reports in these files, each run once, without interrupted runs.

    A file without a report is valid: the disk was full when its first report was to be written.
    """
    found: dict[str, Report] = {}
    for file in files:
        for _, report in reports_with_lines(file):
            if "config" not in report:
                raise UserError(
                    f"--resume {file}: run {report['run']} has no configuration, it is too old. Remove it",
                    exit_code=ExitCode.USAGE,
                )
            if not report.get("interrupted"):
                found[report["run"]] = report
    return list(found.values())


def _print(
    reports: list[Report], found: list[fault_matrix.MatrixCell], results: Results, stored: Sequence[Path]
) -> None:
    text = fault_text.markdown(reports, found)
    click.echo(text)
    click.echo(fault_matrix.counted(reports, found))
    for cell in found:
        if cell.outcome not in ("kept", "limit"):
            seen = f"{cell.outcome} ({cell.details})" if cell.details else cell.outcome
            click.echo(f"{' '.join(cell.row)} {cell.fault}: {seen}\n  {cell.reproduce}", err=True)
    table, junit = results.write_text(".md", text), results.write_text(".xml", fault_matrix.junit(found))
    click.echo(f"\nreports {'  '.join(map(str, stored))}\ntable   {table}\nJUnit   {junit}", err=True)


def _title(row: Row) -> str:
    return f"{row.sink} {row.support.guarantee} {row.support.variant}"
