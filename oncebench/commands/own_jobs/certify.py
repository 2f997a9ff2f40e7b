"""`oncebench certify`: finds the guarantee that a user's own sink keeps."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import Any

import click

from oncebench.certify.certificate import answer, certificate
from oncebench.certify.evidence import name_of, result
from oncebench.certify.junit import junit
from oncebench.certify.kept import STRENGTH, Outcome, keeps, proven
from oncebench.certify.request import Request
from oncebench.certify.runs import RunSettings, check, run_all, run_prices
from oncebench.commands.shared.options import MAX_FIRST_SEED, GroupedCommand, start_timeout
from oncebench.commands.shared.spark import check_setting
from oncebench.commands.shared.utf8 import refuse_other_bytes
from oncebench.commands.shared.workspace import workspace_options
from oncebench.commands.shared.writable import (
    refuse_unwritable,
    refuse_unwritable_results,
    remove_older,
    write_whole,
)
from oncebench.delivery.errors import PipelineError
from oncebench.errors import ExitCode, Interrupted, UserError
from oncebench.experiments.workspace import Workspace
from oncebench.redaction import has_secret, is_secret_setting, redacted, stands_for_secret
from oncebench.report.results import LOCAL, Results, stamp
from oncebench.sinks.black_box.target import FOLDER, KAFKA, RUN

# Each run sets these variables itself.
_SET_BY_RUN = (FOLDER, RUN, KAFKA)


@click.command(cls=GroupedCommand)
@click.argument("function", metavar="[MODULE:FUNCTION]", default="")
@click.option(
    "--format",
    "spark_format",
    default="",
    metavar="NAME",
    help="Name of a streaming sink of Spark, such as parquet, to test instead of a function.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the sink of --format; repeat for several. $NAME in a value stands for that environment variable, "
    "and $$ for a dollar sign. $ONCEBENCH_OUTPUT is a folder that is new in each run.",
)
@click.option(
    "--reader",
    required=True,
    metavar="MODULE:FUNCTION",
    help="Function without parameters that returns the rows that a reader of the sink sees, as dicts.",
)
@click.option(
    "--setup",
    default="",
    metavar="MODULE:FUNCTION",
    help="Function without parameters that empties the sink, and deletes what the sink remembers of earlier batches. "
    "The command calls it before each run.",
)
@click.option(
    "--require",
    type=click.Choice(STRENGTH),
    help="Guarantee that the sink must keep: the exit code is 3 if a scenario breaks it [default: a broken guarantee "
    "does not change the exit code].",
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Name of a scenario to run, such as kill-after-call; repeat for several [default: all scenarios].",
)
@click.option(
    "--spark",
    "spark_settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Spark setting that the function needs, such as spark.jars=driver.jar; repeat for several.",
)
@click.option(
    "--beside",
    default="",
    metavar="MODULE:FUNCTION",
    help="Also compare the time and CPU of the sink with those of this function: a plain at-least-once function that "
    "writes where --reader reads. Both run six times without faults, which takes about ten minutes more.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, MAX_FIRST_SEED),
    default=1,
    show_default=True,
    help="Seed of the load and of the random kills.",
)
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
    help="Also write JUnit XML to this file. A scenario counts as failed if it breaks the guarantee of --require "
    "[default: exactly-once], and as an error if it has no answer.",
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
@partial(
    workspace_options,
    start=start_timeout("A function may also take as long to load, and so may a call of --reader or --setup."),
)
def certify(
    function: str,
    spark_format: str,
    options: tuple[str, ...],
    reader: str,
    setup: str,
    require: str | None,
    only: tuple[str, ...],
    spark_settings: tuple[str, ...],
    beside: str,
    seed: int,
    certificate_path: Path | None,
    junit_path: Path | None,
    results_folder: Path,
    workspace: Workspace,
) -> None:
    """Find the guarantee that your own foreachBatch function keeps.

    FUNCTION takes (df, batch_id) and writes the rows. The command imports MODULE from the current folder or from an
    installed package. It runs the function in a real Spark job with a real Kafka, and kills and pauses the job at every
    point that is visible from outside. Then it reads the sink and audits the rows. A full run takes 9 to 17 minutes.

    \b
    Example:
      oncebench certify my_module:write_batch --reader my_module:read_rows \\
        --setup my_module:empty --require exactly-once
    """  # fmt: skip
    given: dict[str, Any] = {"write": function, "format": spark_format, "read": reader, "setup": setup}
    request, outcomes = Request(given, seed, require, beside), list[Outcome]()
    _replace_older(certificate_path, junit_path)
    with _error_as_junit(junit_path, request, outcomes):
        _check(given, options, spark_settings, beside)
        refuse_unwritable_results(results_folder, "--results", "Give another folder")
        check(given, workspace.start_timeout_s)
        if beside:
            check({**given, "write": beside}, workspace.start_timeout_s)
        results = Results(results_folder, f"certify-{stamp()}")
        settings = RunSettings(request, results, workspace)
        for outcome in run_all(settings, only):
            outcomes.append(outcome)
            click.echo(f"{outcome.scenario.name}: {redacted(result(outcome))}")
            if outcome.broken(STRENGTH[0]):
                click.echo(f"  {request.command(outcome.scenario)}")
        prices, interrupted = _prices(settings) if beside else ([], False)
        for price in prices:
            click.echo(f"price: {redacted(price)}")
        # Before the files, because a disk may refuse them.
        click.echo(f"\n{name_of(given)} {answer(outcomes, bool(only))}")
        page, xml = certificate(request, outcomes, _made(), prices), junit(request, outcomes)
        written = results.write_text(".md", page), results.write_text(".xml", xml)
        for path, text, kept in ((certificate_path, page, written[0]), (junit_path, xml, written[1])):
            if path is not None:
                write_whole(path, text, f"take the same text from {kept}")
    click.echo(f"certificate {written[0]}\nJUnit XML   {written[1]}\nreports     {results.runs}", err=True)
    sys.exit(ExitCode.INTERRUPTED if interrupted else _exit_code(outcomes, require))


def _replace_older(certificate_path: Path | None, junit_path: Path | None) -> None:
    """Checks that both files can be written, and removes those of an earlier run.

    Raises:
        UserError: a file cannot be written, or both are one file (exit code 2).
    """
    if certificate_path is not None and certificate_path == junit_path:
        raise UserError(f"--certificate and --junit both name {junit_path}. Give two files", exit_code=ExitCode.USAGE)
    refuse_unwritable("--certificate", certificate_path)
    refuse_unwritable("--junit", junit_path)
    remove_older(certificate_path)
    remove_older(junit_path)


@contextmanager
def _error_as_junit(path: Path | None, request: Request, outcomes: Sequence[Outcome]) -> Iterator[None]:
    """Writes an error that ends the command to the file of --junit.

    The error comes after the scenarios that have ended.
    """
    try:
        yield
    except BaseException as error:  # also a Ctrl-C
        if path is not None:
            text = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__
            with suppress(UserError):  # the disk refuses the file; the first error is the one to print
                write_whole(path, junit(request, outcomes, text), "")
        raise


def _check(given: dict[str, Any], options: tuple[str, ...], spark_settings: tuple[str, ...], beside: str) -> None:
    """Checks the options, and adds their values to `given`.

    Raises:
        UserError: an option cannot be used (exit code 2).
    """
    function, spark_format = given["write"], given["format"]
    if bool(function) == bool(spark_format):
        raise UserError(
            "give one sink to test: either MODULE:FUNCTION or --format NAME, not both", exit_code=ExitCode.USAGE
        )
    if beside and spark_format:
        raise UserError(
            "--beside compares two functions, and --format tests no function. Leave out one of these options",
            exit_code=ExitCode.USAGE,
        )
    if options and function:
        raise UserError(
            "--option has no effect on a function. It is an option of the sink of --format: leave it out",
            exit_code=ExitCode.USAGE,
        )
    given["spark"], given["options"] = _pairs("--spark", spark_settings), _pairs("--option", options)
    for name, value in given["spark"].items():
        check_setting("--spark", name, value)
    for name, value in given["options"].items():
        _refuse_open_secret(name, value)
        _refuse_unset_variable(name, value)
    given["cwd"] = _here()


def _here() -> str:
    """Returns the current folder, whose path the processes of a run get as text.

    Raises:
        UserError: the path is not UTF-8 (exit code 2).
    """
    folder = Path.cwd()
    refuse_other_bytes(str(folder), "the path of this folder")
    return str(folder)


def _prices(settings: RunSettings) -> tuple[list[str], bool]:
    """Returns a line per figure, and whether Ctrl-C came.

    A failure and Ctrl-C become a line, so that the certificate is written all the same.
    """
    folder = settings.workspace.folder
    apart = replace(settings.workspace, folder=folder.with_name(f"{folder.name}-price"))
    try:
        return [each.text for each in run_prices(replace(settings, workspace=apart))], False
    except KeyboardInterrupt:  # the second Ctrl-C
        return ["not measured: interrupted"], True
    except (UserError, PipelineError, OSError) as error:
        return [f"not measured: {error}"], isinstance(error, Interrupted)


def _exit_code(outcomes: list[Outcome], require: str | None) -> int:
    if require is not None and not keeps(outcomes, require):
        return ExitCode.BROKEN
    return ExitCode.KEPT if proven(outcomes, require) else ExitCode.ERROR


def _refuse_open_secret(name: str, value: str) -> None:
    """Refuses an option of a sink whose value has a secret: the certificate shows the command.

    Raises:
        UserError: the value is or has a secret, and no environment variable stands for it (exit code 2).
    """
    whole = is_secret_setting(name, value) and not stands_for_secret(value)
    if whole or has_secret(value):
        instead = "$MY_SECRET" if whole else redacted(value, "$MY_SECRET", {})
        raise UserError(
            f"--option {name}: a command line and the certificate would show the secret. Store it in an environment "
            f"variable, and give the variable's name: --option '{name}={instead}'",
            exit_code=ExitCode.USAGE,
        )


def _refuse_unset_variable(name: str, value: str) -> None:
    """Refuses an option of a sink that names a variable which does not exist.

    Raises:
        UserError: a variable is not set, and no run sets it (exit code 2).
    """
    for variable in Template(value).get_identifiers():
        if variable not in os.environ and variable not in _SET_BY_RUN:
            raise UserError(
                f"--option {name}: the environment variable {variable} is not set. Set it, or write $${variable} if "
                f"the sink needs the text ${variable}",
                exit_code=ExitCode.USAGE,
            )


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, Any]:
    for text in texts:
        if "=" not in text.strip("="):
            raise UserError(
                f"{option} {text}: this is not KEY=VALUE. Give a key, an equals sign and a value",
                exit_code=ExitCode.USAGE,
            )
    pairs = [text.split("=", maxsplit=1) for text in texts]
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            raise UserError(f"{option} {key}=.. is given {count} times. Give each key once", exit_code=ExitCode.USAGE)
    return dict(pairs)


def _made() -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in ("oncebench", "pyspark"))
    return f"Made on {time.strftime('%Y-%m-%d')} with {versions}, Python {platform.python_version()}."
