"""`oncebench run`: one cell."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

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
from oncebench.delivery.failpoints import FORM
from oncebench.errors import INTERRUPTED, USAGE, UserError
from oncebench.lab.disk import prepare_disks
from oncebench.lab.lab import open_lab
from oncebench.live.view import view
from oncebench.measure import BULKY, exit_code, measure
from oncebench.report.results import LOCAL, Results, default_work_dir, stamp
from oncebench.report.schema import Report
from oncebench.report.summary import summary
from oncebench.run.interrupt import gently
from oncebench.run.workdir import delete_below, open_work_dir, refuse_used, require_free
from oncebench.scenario.cell import Cell, checked_fault, require_possible, support_of
from oncebench.servers.sink_servers import ours

# A run's own files: topic data twice (broker and record), state and logs; measured at about 300 bytes an event that is
# not padded. What it is padded with stands in the topic and in the record, and nowhere else.
BYTES_PER_EVENT = 1000
PADDED_TIMES = 2
BASE_BYTES = 200_000_000


# Reports of earlier versions print commands with `--delivery`: they can be pasted still.
_EARLIER = {"delivery": "guarantee"}


@click.command(
    short_help="Run one cell: a sink under a guarantee, healthy or killed.",
    context_settings={"token_normalize_func": lambda name: _EARLIER.get(name, name)},
)
@click.option("--sink", required=True, help="Where rows go; see `oncebench list`.")
@click.option("--guarantee", required=True, help="at-most-once, at-least-once or exactly-once.")
@click.option("--variant", help="How the guarantee is kept [default: the sink's default].")
@load_options()
@cell_options()
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar=FORM,
    help="May be given several times; each acts once, in this order. Points and nemeses: `oncebench list`.",
)
@click.option(
    "--random-kills",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="SIGKILLs at random times, drawn from --seed.",
)
@click.option("--json", "json_path", metavar="PATH", help="Write the report there as well; - for stdout.")
@postgres_option
@work_dir_option
@keep_option
def run(
    sink: str,
    guarantee: str,
    variant: str | None,
    faults: tuple[str, ...],
    bootstrap_servers: str | None,
    json_path: str | None,
    work_dir: Path | None,
    keep: bool,
    **words: Any,
) -> None:
    """Run one sink under one guarantee, healthy or broken on purpose, and judge it.

    The report is printed as a summary, or as JSON with --json -; it is also kept in the work dir.
    """
    support = support_of(sink, guarantee, variant)
    require_writable(json_path)
    refuse_idle_postgres([sink])
    cell = replace(
        base_cell(**words),
        sink=sink,
        guarantee=guarantee,
        variant=support.variant,
        faults=tuple(map(checked_fault, faults)),
    )
    refuse_idle_on_lost([cell])
    require_possible([cell], ours(bootstrap_servers))
    place = work_dir or default_work_dir("run")
    report = run_one(cell, place, bootstrap_servers, keep)
    Results(LOCAL, f"run-{stamp()}").add(report)
    if json_path == "-":
        click.echo(json.dumps(report, indent=1))
    else:
        click.echo(summary(report, place))
        if json_path:
            Path(json_path).write_text(json.dumps(report, indent=1), "utf-8")
    sys.exit(INTERRUPTED if report["interrupted"] else exit_code([report]))


def require_writable(json_path: str | None) -> None:
    """Looks whether a report can be written there, before a run that may take minutes.

    Raises:
        UserError: it can't (exit code 2).
    """
    if json_path in (None, "-"):
        return
    path = Path(str(json_path))
    trouble = None
    if path.is_dir():
        trouble = "it is a folder; name a file in it"
    elif not path.parent.is_dir():
        trouble = f"there is no folder {path.parent}; make it first"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        trouble = "it can't be written; choose another place"
    if trouble:
        raise UserError(f"--json {path}: {trouble}, or print the report with --json -", exit_code=USAGE)


def bytes_needed(cells: Sequence[Cell]) -> int:
    """How much room the work dir of some runs takes."""
    return BASE_BYTES + sum(
        (cell.sessions * 100 + cell.open_sessions) * (BYTES_PER_EVENT + PADDED_TIMES * cell.record_bytes)
        for cell in cells
    )


def run_one(cell: Cell, place: Path, bootstrap_servers: str | None, keep: bool) -> Report:
    """Runs a cell with a lab of its own in a work dir."""
    prepare_disks([cell])
    with open_work_dir(place) as work, gently() as interrupted:
        refuse_used(work.path)
        require_free(work.path, bytes_needed([cell]))
        with open_lab(work.path, bootstrap_servers, [cell.sink]) as lab, view(cell.brief) as show:
            report = measure(cell, lab, work.path, show, interrupted)
        if not keep:
            for name in BULKY:
                delete_below(work.path, work.path / name)
    return report
