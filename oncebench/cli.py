"""The command line: one file per command in `oncebench/commands`.

Promise: data goes to stdout, progress and messages to stderr; a user's mistake gives one line and an exit code, never
a traceback. The exit codes stand in the help, their constants in `oncebench.errors`. Whoever reads stdout may stop
reading: what is left is dropped, and the exit code stays what it is.
"""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oncebench.commands.audit import audit
from oncebench.commands.batches import batches
from oncebench.commands.bench import bench
from oncebench.commands.compare import compare
from oncebench.commands.doctor import doctor
from oncebench.commands.faults import faults
from oncebench.commands.list import list_cells
from oncebench.commands.load import load
from oncebench.commands.run import run
from oncebench.commands.sustain import sustain
from oncebench.commands.table import table
from oncebench.delivery.errors import PipelineError
from oncebench.errors import ExitCode, UserError
from oncebench.run.workdir import disk_errors

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@click.group(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "ONCEBENCH"})
@click.version_option(package_name="oncebench")
def cli() -> None:
    """What does a delivery guarantee cost, and what does it buy?

    One Kafka-to-sink pipeline under at-most-once, at-least-once and exactly-once: measured, killed and audited.
    Every option can also be given as an environment variable: ONCEBENCH_RUN_RATE=5000 and so on.

    \b
    Exit codes:
      0    every promise was kept (and what is broken on purpose broke as
           it is there to show)
      1    an error, or a run that cannot tell (unknown, vacuous)
      2    usage: the command line was wrong
      3    a promise was broken
      5    the environment lacks something; `oncebench doctor` tells what
      130  interrupted
    """


for command in (run, compare, sustain, faults, bench, batches, load, audit, table, list_cells, doctor):
    cli.add_command(command)


class _Stdout(io.FileIO):
    """Stdout, whose reader may have gone (`oncebench list | head -1`)."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


def main() -> None:
    """The entry point of the console script."""
    logging.basicConfig(format="%(message)s")  # to stderr: what takes long the first time, and what could not be made
    logging.getLogger("oncebench").setLevel(logging.INFO)
    logging.getLogger("kafka").setLevel(logging.ERROR)  # it warns of every 0.1 s that a busy machine keeps it waiting
    if sys.stdout is not None:
        raw = io.BufferedWriter(_Stdout(sys.stdout.fileno(), "w", closefd=False))
        encoding, errors, line = sys.stdout.encoding, sys.stdout.errors, sys.stdout.isatty()
        sys.stdout = io.TextIOWrapper(raw, encoding=encoding, errors=errors, line_buffering=line)
    try:
        with disk_errors(Path.cwd()):  # where nothing better is known; the error names its own file
            cli.main(standalone_mode=False)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.Abort:
        sys.exit(ExitCode.INTERRUPTED)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UserError as error:
        click.echo(f"oncebench: {error}", err=True)
        sys.exit(error.exit_code)
    except PipelineError as error:
        click.echo(f"oncebench: {error}", err=True)
        sys.exit(ExitCode.ERROR)
