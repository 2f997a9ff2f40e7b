"""`oncebench audit`: judge a stored run again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from oncebench.errors import USAGE, UserError
from oncebench.measure import exit_code, judge_again
from oncebench.reports.report import read_reports
from oncebench.reports.summary import summary


@click.command()
@click.argument("stored", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the reports as JSON lines.")
def audit(stored: Path, as_json: bool) -> None:
    """Judge a run folder anew from what it recorded, or show the verdicts of a file of reports.

    STORED is a run's work dir, a report.json, or a runs/*.jsonl file.
    """
    if not stored.exists():
        raise UserError(f"{stored} does not exist; give a run's work dir or a file of reports", exit_code=USAGE)
    reports = [judge_again(stored)] if stored.is_dir() else read_reports(stored)
    files = stored if stored.is_dir() else None
    for report in reports:
        click.echo(json.dumps(report, default=str) if as_json else summary(report, files) + "\n")
    sys.exit(exit_code(reports))
