"""`oncebench faults`: the fault matrix, one verdict for each fault and each way to keep each guarantee."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from oncebench.commands.interrupted import Remembering, done_of, interruption_told, to_go_on
from oncebench.commands.options import (
    MAX_SEED,
    keep_option,
    open_sessions_option,
    postgres_option,
    refuse_idle_postgres,
    work_dir_option,
)
from oncebench.commands.series import Trouble, run_series
from oncebench.errors import BROKEN, ERROR, INTERRUPTED, KEPT, USAGE, UserError
from oncebench.report.report import numbered
from oncebench.report.results import LOCAL, PUBLISHED, Results, default_work_dir, stamp
from oncebench.report.schema import Report
from oncebench.report.tables import fault_matrix, fault_text
from oncebench.scenario.cell import Cell, require_sinks
from oncebench.scenario.fault_matrix import FAMILIES, Row, cells, left_out, rows, seeds_for
from oncebench.servers.sink_servers import ours

# Batches are limited by events, so the rate only says how long the load lasts; slow enough that batches stay in step.
RATE = 300.0
# Seconds by the clock that a fault took, with its share of a run's start, when three shares ran side by side on two
# cores (docs/faults.md; random kills: 1,190 of them, 26 s each in its share): how fast that machine got through faults.
FAULT_S, DELTA_FAULT_S, RANDOM_KILL_S = 14.0, 31.0, 9.0


class _Share(click.ParamType[tuple[int, int]]):
    """`K/N`: the K-th of N equal shares."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        share, _, shares = str(value).partition("/")
        if not (share.isdecimal() and shares.isdecimal() and 1 <= int(share) <= int(shares)):
            self.fail(f"{value!r} is no share: say 1/2 for the first half", param, ctx)
        return int(share), int(shares)


@click.command(cls=Remembering, short_help="The fault matrix: each fault on each guarantee, with a verdict for each.")
@click.option("--sink", "sinks", multiple=True, help="Whose rows; may be given several times [default: every sink].")
@click.option("--only", metavar="TEXT", help="Of these, the rows that have every word of TEXT: `exactly-once`, say.")
@click.option("--family", "families", multiple=True, type=click.Choice(FAMILIES), help="Which faults [default: all].")
@click.option("--seeds", type=click.IntRange(1, 1000), default=3, show_default=True, help="Of an exactly-once chain.")
@click.option("--seed", type=click.IntRange(0, MAX_SEED - 1000), default=1, show_default=True, help="The first.")
@open_sessions_option
@click.option(
    "--resume",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="REPORTS",
    help="A file of reports of an earlier try: what is in it is not run again. What is run is added to it (with "
    "several files: to the first; with --share: to a file of the share's own).",
)
@click.option(
    "--share",
    type=_Share(),
    default="1/1",
    metavar="K/N",
    help="Only the K-th of N equal shares of all runs, the same ones whenever it is started: several at once where "
    "there are the cores, then the same command without --share and with a --resume for each of their files.",
)
@click.option("--bootstrap-servers", metavar="HOST:PORT,..", help="Your own Kafka, which no fault will break.")
@click.option("--publish", is_flag=True, help="Write to results/ (what the repository publishes), not results/local/.")
@postgres_option
@work_dir_option
@keep_option
def faults(
    sinks: tuple[str, ...],
    only: str | None,
    families: tuple[str, ...],
    seeds: int,
    seed: int,
    open_sessions: int,
    resume: tuple[Path, ...],
    share: tuple[int, int],
    bootstrap_servers: str | None,
    publish: bool,
    work_dir: Path | None,
    keep: bool,
) -> None:
    """Run every fault that can be done to every sink, guarantee and variant, and judge each.

    Faults are chained: one run meets those of a family one after the other, each in a batch of its own. Exactly-once
    is run with several seeds, the others once. Prints two tables for each family, of verdicts and of
    recovery, and writes reports, tables and JUnit XML.

    Everything takes most of a day, `--sink files-jsonl --only two-phase --family kills` some minutes; how long, the
    command says at its start.
    """
    require_sinks(sinks)
    if publish and resume:
        raise UserError(
            "--publish begins a new series, --resume goes on with one: give one of them (`oncebench table --publish "
            "FILE` publishes what is there)",
            exit_code=USAGE,
        )
    chosen = [row for row in rows(sinks) if all(word in _title(row) for word in (only or "").split())]
    base = Cell("", "", "", rate=RATE, seed=seed, open_sessions=open_sessions)
    named, started = [*dict.fromkeys(families or FAMILIES)], ours(bootstrap_servers)
    todo = cells(chosen, named, base, seeds_for(seeds), started)
    no_point, not_here = left_out(chosen, named, started)
    if not todo:
        why = f"none of these faults can be done: {'; '.join(not_here or no_point)}"
        raise UserError(why if chosen else "no row of the matrix has all that; see `oncebench list`", exit_code=USAGE)
    refuse_idle_postgres(row.sink for row in chosen)
    for file in resume:
        if file.suffix != ".jsonl":
            raise UserError(f"--resume {file}: give the file of reports (.jsonl) of an earlier try", exit_code=USAGE)
    for why, what in not_here.items():
        click.echo(f"left out: {', '.join(what)} ({why})", err=True)
    name = f"faults-{stamp()}" if share[1] == 1 else f"faults-{stamp()}-{share[0]}"
    goes_on = resume and share[1] == 1
    results = Results.of(resume[0]) if goes_on else Results(PUBLISHED if publish else LOCAL, name)
    reports = _done(resume)
    # An option that an older report does not know of stood at its default.
    done = [Cell("", "", "").as_json() | report["config"] for report in reports]
    left = [cell for cell in todo[share[0] - 1 :: share[1]] if cell.as_json() not in done]
    click.echo(f"{len(todo)} runs, of which {len(left)} are left here{_long(left, share[1])}", err=True)
    click.echo(f"reports {results.runs}", err=True)
    trouble = Trouble()
    before = len(reports)
    try:
        if left:
            place = work_dir or default_work_dir("faults")
            with interruption_told():
                reports.extend(run_series(left, results, bootstrap_servers, place, keep, trouble))
    finally:
        found = fault_matrix.cells_of(reports)
        if found:
            _show(reports, found, results, _stored(resume, results))
    trouble.tell_again()
    if len(reports) - before + len(trouble.lines) < len(left):
        click.echo(_interrupted(len(reports) - before, len(left), _stored(resume, results)), err=True)
        sys.exit(INTERRUPTED)
    words = {cell.outcome for cell in found} or {"vacuous"}
    sys.exit(BROKEN if "broken" in words else ERROR if trouble.lines or words & {"unknown", "vacuous"} else KEPT)


def _long(left: Sequence[Cell], shares: int) -> str:
    """How many faults these runs have and how long that took elsewhere; of a share: if the others run beside it."""
    if not left:
        return ""
    minutes = shares * sum(map(_seconds, left)) / 60
    told = f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"
    how = f"all {shares} shares side by side" if shares > 1 else "three shares side by side, longer without --share"
    faults = sum(len(cell.faults) + cell.random_kills for cell in left)
    return f": {faults:,} faults, about {told} on two cores with {how}"


def _seconds(cell: Cell) -> float:
    if cell.sink == "delta":
        return DELTA_FAULT_S * (len(cell.faults) + cell.random_kills)
    return FAULT_S * len(cell.faults) + RANDOM_KILL_S * cell.random_kills


def _interrupted(done: int, of: int, stored: Sequence[Path]) -> str:
    told = done_of(done, of)
    if not stored:
        return f"{told}, and nothing is stored: there is nothing to go on with"
    return f"{told}; go on with `{to_go_on(click.get_current_context(), stored)}`"


def _stored(resume: Sequence[Path], results: Results) -> list[Path]:
    """The files that hold what was run so far, here and in earlier tries."""
    return list(dict.fromkeys([*resume, *([results.runs] if results.runs.exists() else [])]))


def _done(files: Sequence[Path]) -> list[Report]:
    """The reports of earlier tries, each run once, also where files have it both; without interrupted ones. A file
    without a report is no mistake: the disk was full when the first was to be written."""
    found: dict[str, Report] = {}
    for file in files:
        for _, report in numbered(file):
            if "config" not in report:
                raise UserError(
                    f"--resume {file}: run {report['run']} does not tell its configuration, it is too old; take it out",
                    exit_code=USAGE,
                )
            if not report.get("interrupted"):
                found[report["run"]] = report
    return list(found.values())


def _show(
    reports: list[Report], found: list[fault_matrix.MatrixCell], results: Results, stored: Sequence[Path]
) -> None:
    text = fault_text.markdown(reports, found)
    click.echo(text)
    click.echo(fault_matrix.counted(reports, found))
    for cell in found:
        if cell.outcome not in ("kept", "limit"):
            click.echo(f"{' '.join(cell.row)} {cell.fault}: {cell.text} {cell.details}\n  {cell.reproduce}", err=True)
    written = results.write_text(".md", text), results.write_text(".xml", fault_matrix.junit(found))
    click.echo("\nreports {}\ntables  {}  {}".format("  ".join(map(str, stored)), *written), err=True)


def _title(row: Row) -> str:
    return f"{row.sink} {row.support.guarantee} {row.support.variant}"
