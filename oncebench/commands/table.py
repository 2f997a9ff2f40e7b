"""`oncebench table`: tables from reports, and the page that publishes all of them."""

from __future__ import annotations

from pathlib import Path

import click

from oncebench.commands.options import existing
from oncebench.errors import USAGE, UserError
from oncebench.publish.stored import take_in
from oncebench.publish.write import publish
from oncebench.reports import tables
from oncebench.reports.report import read_reports
from oncebench.reports.results import LOCAL, PUBLISHED


@click.command(short_help="Tables from stored reports; with --publish the results page.")
@click.argument("stored", nargs=-1, type=click.Path(path_type=Path))
@click.option("--csv", "as_csv", is_flag=True, help="CSV with plain numbers instead of Markdown.")
@click.option(
    "--publish",
    "published",
    is_flag=True,
    help="Write results/index.html and results/tables/ from all reports in results/runs/, of which STORED become some.",
)
def table(stored: tuple[Path, ...], as_csv: bool, published: bool) -> None:
    """Print one table of reports; repeats of a cell are put together.

    STORED are files of reports or results folders [default: your newest comparison, else the published one].
    """
    if published and as_csv:
        raise UserError("--csv is of no use with --publish, which writes Markdown and CSV both", exit_code=USAGE)
    if published:
        for taken in take_in([existing(place) for place in stored], PUBLISHED):
            click.echo(f"taken in: {taken}", err=True)
        click.echo("\n".join(map(str, publish(PUBLISHED))))
        return
    places = stored or _newest()
    reports = [report for place in [existing(place) for place in places] for report in read_reports(place)]
    click.echo(tables.as_csv(reports) if as_csv else tables.markdown(reports), nl=False)


def _newest() -> tuple[Path, ...]:
    for folder in (LOCAL, PUBLISHED):
        found = sorted((folder / "runs").glob("*.jsonl"), key=lambda file: file.stat().st_mtime)
        if found:
            return (found[-1],)
    raise UserError("no results yet; `oncebench compare` makes some")
