"""`oncebench audit`: judge a stored run again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from oncebench.commands.options import existing
from oncebench.errors import ExitCode, UserError
from oncebench.measure import exit_code, judge_again
from oncebench.report.report import read_reports
from oncebench.report.summary import summary


@click.command(short_help="Judge a stored run again.")
@click.argument("stored", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the reports as JSON lines.")
def audit(stored: Path, as_json: bool) -> None:
    """Judge a run folder anew from what it recorded, or show the verdicts of a file of reports.

    STORED is a run's work folder (with --keep or without; those of a comparison are in its cells/001 and so on), a
    report.json, or a runs/*.jsonl file.
    """
    is_folder = existing(stored).is_dir()
    reports = [judge_again(_run_folder(stored))] if is_folder else read_reports(stored)
    files = stored if is_folder else None
    for report in reports:
        click.echo(json.dumps(report, default=str) if as_json else summary(report, files) + "\n")
    sys.exit(exit_code(reports))


def _run_folder(stored: Path) -> Path:
    """A folder that may be a run's; of those that are none, says what they are."""
    if (stored / "cell.json").exists():
        return stored
    cells = sorted(path.name for path in (stored / "cells").glob("*") if path.is_dir())
    wrong = None
    if cells:
        first = stored / "cells" / cells[0]
        wrong = f"is a comparison's folder: its runs are in cells/{cells[0]} to {cells[-1]}; judge one, {first} say"
    elif (stored / "load.jsonl").exists():
        wrong = "is a load's folder: nothing was delivered, so there is nothing to judge"
    elif (stored / "plan.json").exists():
        wrong = "is the folder of `oncebench batches`: it holds times, and nothing to judge"
    if wrong:
        raise UserError(f"{stored} {wrong}", exit_code=ExitCode.USAGE)
    return stored
