"""`oncebench certify`: finds the guarantee that a function of the user keeps as a sink."""

from __future__ import annotations

import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from oncebench.certify.certificate import certificate
from oncebench.certify.evidence import command, name_of, result
from oncebench.certify.junit import junit
from oncebench.certify.kept import STRENGTH, Outcome, keeps, proven, strongest
from oncebench.certify.runs import check, run_all, run_prices
from oncebench.commands.shared.options import (
    MAX_SEED,
    GroupedCommand,
    keep_option,
    start_timeout_option,
    work_dir_option,
)
from oncebench.delivery.errors import PipelineError
from oncebench.disk_errors import disk_errors
from oncebench.errors import ExitCode, UserError
from oncebench.report.results import LOCAL, Results, default_work_dir, stamp


@click.command(cls=GroupedCommand)
@click.argument("function", metavar="[MODULE:FUNCTION]", default="")
@click.option(
    "--format",
    "spark_format",
    default="",
    metavar="NAME",
    help="A streaming sink of Spark, such as parquet, instead of a function.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of --format; repeat for several. $ONCEBENCH_OUTPUT in it is a new folder for each run.",
)
@click.option(
    "--reader",
    required=True,
    metavar="MODULE:FUNCTION",
    help="Function without parameters that returns the rows that a reader of the sink is shown, as dicts.",
)
@click.option(
    "--setup",
    default="",
    metavar="MODULE:FUNCTION",
    help="Function without parameters that empties the output, with all memory of earlier batches. It is called "
    "before each run.",
)
@click.option(
    "--require",
    type=click.Choice(STRENGTH),
    help="Exit with 3 if the sink breaks this guarantee [default: exit with 0 whatever it keeps].",
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Run only this scenario; repeat for several [default: all].",
)
@click.option(
    "--spark",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Spark setting that the function needs, such as spark.jars=driver.jar; repeat for several.",
)
@click.option(
    "--beside",
    default="",
    metavar="MODULE:FUNCTION",
    help="Also measure the price of the function beside this one, which writes at-least-once where the same "
    "reader reads: five rounds of both without faults, about eight minutes more.",
)
@click.option("--seed", type=click.IntRange(0, MAX_SEED), default=1, show_default=True, help="Seed of the load.")
@click.option(
    "--certificate",
    "certificate_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the certificate to this Markdown file.",
)
@click.option(
    "--junit",
    "junit_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write JUnit XML to this file. A scenario fails if it breaks --require, or exactly-once.",
)
@click.option(
    "--results",
    "results_folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    default=LOCAL,
    show_default=True,
    help="Folder for the reports, the certificate and JUnit XML.",
)
@work_dir_option
@keep_option
@start_timeout_option
def certify(
    function: str,
    spark_format: str,
    options: tuple[str, ...],
    reader: str,
    setup: str,
    require: str | None,
    only: tuple[str, ...],
    settings: tuple[str, ...],
    beside: str,
    seed: int,
    certificate_path: Path | None,
    junit_path: Path | None,
    results_folder: Path,
    work_dir: Path | None,
    keep: bool,
    start_timeout_s: float,
) -> None:
    """Find the guarantee that your own foreachBatch function keeps.

    FUNCTION takes (df, batch_id) and writes the rows. The command runs it in a real Spark job with a real Kafka. It
    kills and stops the job at every point that is visible from outside, reads the sink, and audits the rows. A full
    run takes about ten minutes.

    \b
    Example:
      oncebench certify my_module:write_batch --reader my_module:read_rows \\
        --setup my_module:empty --require exactly-once
    """  # fmt: skip
    if bool(function) == bool(spark_format):
        raise UserError("give MODULE:FUNCTION or --format, and not both", exit_code=ExitCode.USAGE)
    if beside and spark_format:
        raise UserError("--beside compares functions, so it does not go with --format", exit_code=ExitCode.USAGE)
    given = {
        "write": function, "format": spark_format, "options": _settings("--option", options), "read": reader,
        "setup": setup, "cwd": str(Path.cwd()), "spark": _settings("--spark", settings),
    }  # fmt: skip
    for path in (certificate_path, junit_path):
        if path is not None and not path.parent.is_dir():
            raise UserError(f"{path}: there is no folder {path.parent}. Create it", exit_code=ExitCode.USAGE)
    check(given)
    if beside:
        check({**given, "write": beside})
    results = Results(results_folder, f"certify-{stamp()}")
    outcomes: list[Outcome] = []
    place = work_dir or default_work_dir("certify")
    for outcome in run_all(given, only, seed, results, place, keep, start_timeout_s):
        outcomes.append(outcome)
        click.echo(f"{outcome.scenario.name}: {result(outcome)}")
        if outcome.broken(STRENGTH[0]):
            click.echo(f"  {command(given, outcome.scenario, seed)}")
    prices: list[str] = []
    if beside:
        more = place.with_name(f"{place.name}-price")
        try:
            prices = [each.text for each in run_prices(given, beside, seed, results, more, keep, start_timeout_s)]
        except (UserError, PipelineError, OSError) as error:
            if getattr(error, "exit_code", 1) == ExitCode.INTERRUPTED:
                raise
            prices = [f"not measured: {error}"]
        click.echo("".join(f"price {each}\n" for each in prices), nl=False)
    page = certificate(given, outcomes, seed, _made(), prices, beside)
    xml = junit(given, outcomes, require or STRENGTH[0], seed)
    written = results.write_text(".md", page), results.write_text(".xml", xml)
    for path, text in ((certificate_path, page), (junit_path, xml)):
        if path is not None:
            with disk_errors(path):
                path.write_text(text, "utf-8")
    what = "tested so far, it keeps" if only else "keeps"
    click.echo(f"\n{name_of(given)} {what}: {strongest(outcomes)}{'' if proven(outcomes) else ' (not proven)'}")
    click.echo(f"certificate {written[0]}\nJUnit       {written[1]}\nreports     {results.runs}", err=True)
    sys.exit(_exit_code(outcomes, require))


def _exit_code(outcomes: list[Outcome], require: str | None) -> int:
    if require is not None and not keeps(outcomes, require):
        return ExitCode.BROKEN
    return ExitCode.KEPT if proven(outcomes) else ExitCode.ERROR


def _settings(option: str, given: tuple[str, ...]) -> dict[str, Any]:
    for each in given:
        if "=" not in each.strip("="):
            raise UserError(f"{option} {each}: give KEY=VALUE", exit_code=ExitCode.USAGE)
    return dict(each.split("=", maxsplit=1) for each in given)


def _made() -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in ("oncebench", "pyspark"))
    return f"Made on {time.strftime('%Y-%m-%d')} with {versions}, Python {platform.python_version()}."
