"""Runs a command line of this project as the program of this process.

Promise: data goes to stdout; progress and messages go to stderr. A mistake of the user gives one line and an exit code,
without a traceback and without secrets. A reader of either stream may stop reading: the rest is dropped and the exit
code stays the same.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import NoReturn

import click

from oncebench.delivery.errors import PipelineError
from oncebench.disk_errors import disk_errors
from oncebench.errors import ExitCode, UserError
from oncebench.live.streams import outlive_readers
from oncebench.redaction import redacted
from oncebench.sinks.extras import how_to_install


def run_program(name: str, command: click.Command) -> NoReturn:
    """Runs the command with the arguments of this process; `name` begins its messages."""
    outlive_readers()
    logging.basicConfig(format="%(message)s")  # to stderr: slow first-time steps, and steps that failed
    logging.getLogger("oncebench").setLevel(logging.INFO)
    logging.getLogger("kafka").setLevel(logging.ERROR)  # it warns about each delay of 0.1 s on a busy machine
    try:
        with disk_errors(Path.cwd()):  # a last resort; the error names the file that it concerns
            sys.exit(command.main(standalone_mode=False))
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        how = how_to_install(error)
        if how is None:
            raise
        click.echo(f"{name}: this command cannot run here: {how}", err=True)
        sys.exit(ExitCode.USAGE)
    except (UserError, PipelineError) as error:
        click.echo(f"{name}: {redacted(str(error))}", err=True)
        sys.exit(getattr(error, "exit_code", ExitCode.ERROR))
