"""Runs every engine under every guarantee, and prints one table: `python -m peers.headline`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from oncebench.audit.verdict import Verdict
from oncebench.commands.shared.failed_runs import FailedRuns
from oncebench.commands.shared.options import MAX_SEED, keep_option, work_dir_option
from oncebench.commands.shared.writable import new_results
from oncebench.errors import ExitCode, UserError
from oncebench.experiments.series import at_least_s, run_series
from oncebench.experiments.workspace import Workspace
from oncebench.measure import exit_code
from oncebench.program import run_program
from oncebench.report.report import reports_with_lines
from oncebench.report.results import default_work_dir, stamp
from oncebench.report.schema import Report
from oncebench.report.tables.engines import SERIES, by_place, is_of_series, is_of_spark, lines, markdown
from peers.headline.plan import ROWS, Row, cells, engine_of, program_of

MOST_ROUNDS = 100


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", metavar="TEXT", default="",
              help="Take only rows whose name has every word of TEXT: `Flink exactly-once`.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1, MOST_ROUNDS), default=1, show_default=True,
              help="Number of passes over all rows; each figure is then a median.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, MAX_SEED - MOST_ROUNDS), default=1, show_default=True,
              help="Seed of the first round.")  # fmt: skip
@click.option("--from", "files", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True,
              metavar="REPORTS", help="Run nothing, and print the table of this file of reports; repeat for several.")  # fmt: skip  # noqa: E501
@work_dir_option
@keep_option
def main(only: str, rounds: int, seed: int, files: tuple[Path, ...], work_dir: Path | None, keep: bool) -> None:
    """Run every engine under every guarantee into Kafka, and print one table.

    Each row runs flat out, at a steady rate, and while it is killed. All rows get the same load, observer and auditors.
    A round takes about 45 min on two cores. Use the machine for nothing else meanwhile.

    \b
    Example:
      python -m peers.headline --only "Flink exactly-once"
    """
    rows = [row for row in ROWS if all(word in row.name for word in only.split())]
    if not rows:
        raise UserError(
            f"--only {only!r} matches no row. The rows are: {'; '.join(row.name for row in ROWS)}",
            exit_code=ExitCode.USAGE,
        )
    if files:
        _refuse_without_runs()
        stored = list(_stored(files))
        if not any(row.has(report) for row in rows for report in stored):
            where = ", ".join(map(str, files))
            raise UserError(f"no report in {where} is of these rows and of this command. Give a file {SERIES}*.jsonl")
        click.echo(_text(rows, stored))
        return
    planned = list(cells(rows, rounds, seed))
    results = new_results(f"{SERIES}{stamp()}")
    click.echo(f"{len(planned)} runs, at least {at_least_s(planned) / 60:.0f} min\nreports {results.runs}", err=True)
    failed = FailedRuns(program_of=program_of)
    reports: list[Report] = []
    workspace = Workspace(work_dir or default_work_dir("headline"), keep=keep, engine=engine_of)
    try:
        reports.extend(run_series(planned, results, workspace, failed))
    finally:
        if results.runs.exists():
            text = _text(rows, [report for _, report in reports_with_lines(results.runs)])
            click.echo(text)
            click.echo(f"table   {results.write_text('.md', text)}", err=True)
    failed.repeat()
    if failed.lines:
        sys.exit(ExitCode.ERROR)
    if len(reports) < len(planned):
        sys.exit(ExitCode.INTERRUPTED)
    sys.exit(code_of(reports))


def _refuse_without_runs() -> None:
    """Refuses options that only a run uses."""
    context = click.get_current_context()
    for option in (each for each in context.command.params if each.name not in ("files", "only")):
        if context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE:
            raise UserError(f"{option.opts[0]} has no effect with --from. Leave it out", exit_code=ExitCode.USAGE)


def _stored(files: Sequence[Path]) -> Iterator[Report]:
    """Yields the reports of headlines in these files.

    A run that is in several files, or in one file twice, counts once.
    """
    seen: set[str | int] = set()
    for report in (report for file in files for _, report in reports_with_lines(file) if is_of_series(report)):
        if (run := report.get("run", id(report))) not in seen:
            seen.add(run)
            yield report


def code_of(reports: Sequence[Report]) -> int:
    """Returns the exit code for all runs.

    A peer that breaks a guarantee is a result of the comparison. A peer without a verdict is none.
    """
    return exit_code([each for each in reports if is_of_spark(each) or each["verdict"] != Verdict.BROKEN])


def _text(rows: Sequence[Row], reports: Sequence[Report]) -> str:
    chosen = [report for row in rows for report in reports if row.has(report)]
    found = [line for reports in by_place(chosen).values() for line in lines(reports)]
    commands = "\n".join(dict.fromkeys(command for line in found for command in line.commands))
    return f"{markdown(chosen)}\nThe runs, each as one command:\n\n{commands}\n"


if __name__ == "__main__":
    run_program("peers.headline", main)
