"""`oncebench table`: tables from reports, and the page that publishes all of them."""

from __future__ import annotations

from pathlib import Path

import click

from oncebench.commands.options import existing
from oncebench.errors import USAGE, UserError
from oncebench.report.comparisons import comparison, repeatability
from oncebench.report.comparisons.paired import FEWEST_ROUNDS
from oncebench.report.report import read_reports
from oncebench.report.results import LOCAL, PUBLISHED
from oncebench.report.schema import Report
from oncebench.report.tables import table as tables
from oncebench.site.stored import take_in
from oncebench.site.write import publish

_UNDO = (
    f"these stand in git: `git checkout {PUBLISHED} && git clean -f {PUBLISHED}` brings back the published ones (and "
    f"deletes what else is new in {PUBLISHED}/, except {LOCAL}/)"
)


@click.command(short_help="Tables from stored reports; with --publish the results page.")
@click.argument("stored", nargs=-1, type=click.Path(path_type=Path))
@click.option("--csv", "as_csv", is_flag=True, help="The first table alone, as CSV with plain numbers.")
@click.option(
    "--publish",
    "published",
    is_flag=True,
    help="Write results/index.html and results/tables/ from all reports in results/runs/, of which STORED become some.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="REPORTS",
    help="Instead: whether another series of the same cells says the same, ratio by ratio, and the noise floor.",
)
def table(stored: tuple[Path, ...], as_csv: bool, published: bool, against: Path | None) -> None:
    """Print what reports say: a table of all cells, repeats of one together, then what can be compared of them.

    STORED are files of reports or results folders [default: your newest comparison, else the published one].
    """
    if against is not None and (published or as_csv):
        raise UserError("--against prints a comparison: neither --csv nor --publish goes with it", exit_code=USAGE)
    if published and as_csv:
        raise UserError("--csv is of no use with --publish, which writes Markdown and CSV both", exit_code=USAGE)
    if published:
        for taken in take_in([existing(place) for place in stored], PUBLISHED):
            click.echo(f"taken in: {taken}", err=True)
        click.echo("\n".join(map(str, publish(PUBLISHED))))
        if Path(".git").exists():
            click.echo(_UNDO, err=True)
        return
    places = stored or _newest()
    read = [report for place in [existing(place) for place in places] for report in read_reports(place)]
    reports = list({report.get("run", id(report)): report for report in read}.values())  # each run once
    if against is not None:
        click.echo(_compared(reports, read_reports(existing(against))), nl=False)
        return
    click.echo(tables.as_csv(reports) if as_csv else comparison.text(reports), nl=False)


def _compared(reports: list[Report], others: list[Report]) -> str:
    found = list(repeatability.repeated_ratios(reports, others))
    if not found:
        raise UserError(
            f"nothing to compare: no healthy cell beside at-least-once is in both, on one and the same machine, "
            f"with {FEWEST_ROUNDS} rounds in each",
            exit_code=USAGE,
        )
    floor = repeatability.noise_markdown(reports)
    what = "each cell beside itself: a round as a ratio to the one before it, where the median of these lies"
    beside = f"\n{what} (bootstrap):\n\n{floor}" if floor else ""
    return repeatability.repeated_markdown(found) + beside


def _newest() -> tuple[Path, ...]:
    for folder in (LOCAL, PUBLISHED):
        found = sorted((folder / "runs").glob("*.jsonl"), key=lambda file: file.stat().st_mtime)
        if found:
            return (found[-1],)
    raise UserError("no results yet; `oncebench compare` makes some")
