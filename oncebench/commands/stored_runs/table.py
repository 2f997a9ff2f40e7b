"""`oncebench table`: prints tables from reports, or publishes the results page."""

from __future__ import annotations

from pathlib import Path

import click

from oncebench.commands.shared.options import existing_path
from oncebench.errors import ExitCode, UserError
from oncebench.report.comparisons import repeatability
from oncebench.report.report import read_reports
from oncebench.report.results import LOCAL, PUBLISHED
from oncebench.report.schema import Report
from oncebench.report.tables import comparison
from oncebench.report.tables import table as tables
from oncebench.site.stored import take_in
from oncebench.site.write import publish

_UNDO = (
    f"these files are in git: `git checkout {PUBLISHED} && git clean -f {PUBLISHED}` restores the published ones (and "
    f"deletes every other new file in {PUBLISHED}/, except in {LOCAL}/)"
)


@click.command()
@click.argument("stored", nargs=-1, type=click.Path(path_type=Path))
@click.option("--csv", "as_csv", is_flag=True, help="Print only the first table, as CSV with plain numbers.")
@click.option(
    "--publish",
    "published",
    is_flag=True,
    help="Copy STORED to results/runs/ (a series of several engines to results/engines/), then write "
    "results/index.html and results/tables/ from all reports there.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="REPORTS",
    help="Instead: print whether STORED repeats each ratio of this first series of the same cells, and the noise "
    "floor.",
)
def table(stored: tuple[Path, ...], as_csv: bool, published: bool, against: Path | None) -> None:
    """Print tables from stored reports: all cells, then their comparisons.

    Repeated runs of a cell are combined into one row.

    STORED are files of reports or results folders [default: your newest run or comparison, else the published results].

    \b
    Example:
      oncebench table results/local/runs/quick-20260101-120000.jsonl
    """
    if against is not None and (published or as_csv):
        raise UserError(
            "--against prints a comparison. Give neither --csv nor --publish with it", exit_code=ExitCode.USAGE
        )
    if published and as_csv:
        raise UserError(
            "--csv has no effect with --publish, which writes both Markdown and CSV", exit_code=ExitCode.USAGE
        )
    if published:
        copied = take_in([existing_path(place) for place in stored], PUBLISHED)
        for path in copied:
            click.echo(f"copied: {path}", err=True)
        made = publish(PUBLISHED)
        click.echo("\n".join(map(str, made.files)))
        if (copied or made.changed) and Path(".git").exists():
            click.echo(_UNDO, err=True)
        return
    places = stored or _newest()
    read = [report for place in [existing_path(place) for place in places] for report in read_reports(place)]
    reports = list({report.get("run", id(report)): report for report in read}.values())  # each run once
    if against is not None:
        click.echo(_compared(reports, read_reports(existing_path(against))), nl=False)
        return
    click.echo(tables.as_csv(reports) if as_csv else comparison.text(reports), nl=False)


def _compared(reports: list[Report], others: list[Report]) -> str:
    found = list(repeatability.repeated_ratios(reports, others))
    if not found:
        raise UserError(
            "nothing to compare. Both series need a common healthy cell other than at-least-once, on the same machine, "
            f"with {repeatability.FEWEST_ROUNDS} rounds in each",
            exit_code=ExitCode.USAGE,
        )
    floor = repeatability.noise_markdown(reports)
    heading = "noise floor: each round of a cell as a ratio to the round before, interval of the median:"
    return repeatability.repeated_markdown(found) + (f"\n{heading}\n\n{floor}" if floor else "")


def _newest() -> tuple[Path, ...]:
    for folder in (LOCAL, PUBLISHED):
        found = sorted((folder / "runs").glob("*.jsonl"), key=lambda file: file.stat().st_mtime)
        if found:
            return (found[-1],)
    raise UserError("no results yet. Run `oncebench compare` first")
