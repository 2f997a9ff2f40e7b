"""`oncebench table`: tables from reports."""

from __future__ import annotations

from pathlib import Path

import click

from oncebench.commands.options import existing
from oncebench.errors import UserError
from oncebench.reports import tables
from oncebench.reports.report import read_reports
from oncebench.reports.results import LOCAL, PUBLISHED


@click.command(short_help="Tables from stored reports.")
@click.argument("stored", nargs=-1, type=click.Path(path_type=Path))
@click.option("--csv", "as_csv", is_flag=True, help="CSV with plain numbers instead of Markdown.")
def table(stored: tuple[Path, ...], as_csv: bool) -> None:
    """Print one table of reports; repeats of a cell are put together.

    STORED are files of reports or results folders [default: your newest comparison, else the published one].
    """
    places = stored or _newest()
    reports = [report for place in [existing(place) for place in places] for report in read_reports(place)]
    click.echo(tables.as_csv(reports) if as_csv else tables.markdown(reports), nl=False)


def _newest() -> tuple[Path, ...]:
    for folder in (LOCAL, PUBLISHED):
        found = sorted((folder / "runs").glob("*.jsonl"), key=lambda file: file.stat().st_mtime)
        if found:
            return (found[-1],)
    raise UserError("no results yet; `oncebench compare` makes some")
