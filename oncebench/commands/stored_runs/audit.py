"""`oncebench audit`: judges a stored run again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from oncebench.commands.shared.options import existing_path
from oncebench.errors import ExitCode, UserError
from oncebench.measure import exit_code, judge_again
from oncebench.report.report import read_reports
from oncebench.report.summary import summary


@click.command()
@click.argument("stored", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print each report as one line of JSON instead of a summary.")
def audit(stored: Path, as_json: bool) -> None:
    """Judge a stored run again from its record, or print the verdicts of stored reports.

    STORED is a run's work folder, a report.json, or a runs/*.jsonl file. The runs of a comparison are in its folders
    cells/001, cells/002 and so on. A folder can be judged whether the run had --keep or not.

    \b
    Example:
      oncebench audit results/local/work/run-20260101-120000-4242
    """
    is_folder = existing_path(stored).is_dir()
    reports = [judge_again(_run_folder(stored))] if is_folder else read_reports(stored)
    files = stored if is_folder else None
    for report in reports:
        click.echo(json.dumps(report, default=str) if as_json else summary(report, files) + "\n")
    sys.exit(exit_code(reports))


def _run_folder(stored: Path) -> Path:
    """The folder, after a check that it is a run's; an error names the kind of any other folder."""
    if (stored / "cell.json").exists():
        return stored
    cells = sorted(path.name for path in (stored / "cells").glob("*") if path.is_dir())
    wrong = None
    if cells:
        first = stored / "cells" / cells[0]
        wrong = f"is a comparison's folder. Its runs are in cells/{cells[0]} to {cells[-1]}. Give one, such as {first}"
    elif (stored / "load.jsonl").exists():
        wrong = "is the folder of `oncebench load`. Nothing was delivered, so there is nothing to judge"
    elif (stored / "plan.json").exists():
        wrong = "is the folder of `oncebench batches`. It has times, and nothing to judge"
    if wrong:
        raise UserError(f"{stored} {wrong}", exit_code=ExitCode.USAGE)
    return stored
