"""The options that replay a user's own file of JSON lines, and what they mean for a cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from loadgen.config import MAX_PASSES, MAX_SESSIONS
from loadgen.errors import ConfigError
from loadgen.replay.file import RecordFile
from loadgen.session import EVENTS_PER_SESSION
from oncebench.errors import ExitCode, UserError
from pipeline.config import RECORDS, SESSIONS

F = TypeVar("F", bound=Callable[..., Any])


def records_options(command: F) -> F:
    """Adds --records, --key and --passes to a command."""
    for option in (
        click.option("--records", type=click.Path(), default="", metavar="FILE",
                     help="Send the lines of this file instead of sessions: one JSON object on each line."),
        click.option("--key", "records_key", default="", metavar="FIELD",
                     help="Field of the records of --records that is their key in Kafka [default: no key]."),
        click.option("--passes", type=click.IntRange(1, MAX_PASSES), default=1, metavar="N", show_default=True,
                     help="How often the file of --records is sent."),
    )[::-1]:  # fmt: skip
        command = option(command)
    return command


def with_records(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a cell.

    With --records, the file gives the workload and the length of the load.

    It reads the whole file, so a line that is no record is found before anything starts.

    Raises:
        UserError: the options do not fit together, or the file has no records (exit code 2).
    """
    if not options["records"]:
        for name, value in (("--key", options["records_key"]), ("--passes", options["passes"] > 1)):
            if value:
                raise UserError(f"{name} has no effect without --records FILE", exit_code=ExitCode.USAGE)
        return dict(options)
    if options["workload"] != RECORDS and not (options["workload"] == SESSIONS and _is_default("workload")):
        raise UserError(
            f"--records FILE is a workload of its own. Leave out --workload {options['workload']}",
            exit_code=ExitCode.USAGE,
        )
    for name in ("duration", "sessions"):
        if options[name] is not None:
            raise UserError(
                f"--records FILE gives the length of the load. Leave out --{name}, or send the file several times "
                "with --passes",
                exit_code=ExitCode.USAGE,
            )
    try:
        events = RecordFile(Path(options["records"]), options["records_key"]).count() * options["passes"]
    except ConfigError as error:
        raise UserError(f"--records: {error}", exit_code=ExitCode.USAGE) from None
    if events > MAX_SESSIONS * EVENTS_PER_SESSION:
        raise UserError(
            f"{events:,} records are more than a load can have ({MAX_SESSIONS * EVENTS_PER_SESSION:,})",
            exit_code=ExitCode.USAGE,
        )
    return {**options, "workload": RECORDS, "sessions": math.ceil(events / EVENTS_PER_SESSION)}


def _is_default(name: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is None or context.get_parameter_source(name) in (None, ParameterSource.DEFAULT)
