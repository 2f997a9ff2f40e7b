"""Runs a command line of this project as the program of this process.

Promise: data goes to stdout; progress and messages go to stderr. A mistake of the user gives one line and an exit code,
without a traceback and without secrets. Ctrl-C, SIGTERM and SIGHUP give exit code 130. A reader of either stream may
stop reading: the rest is dropped and the exit code stays the same.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from oncebench.delivery.errors import PipelineError
from oncebench.disk_errors import disk_errors
from oncebench.errors import ExitCode, UserError
from oncebench.home import HOME
from oncebench.live.streams import outlive_readers
from oncebench.redaction import redacted
from oncebench.sinks.extras import how_to_install

# The packages of this project that a command imports, besides the one of this file.
_PACKAGES = ("pipeline", "loadgen")


def run_program(name: str, command: click.Command) -> NoReturn:
    """Runs the command with the arguments of this process; `name` begins its messages."""
    outlive_readers()
    _end_orderly()
    logging.basicConfig(format="%(message)s")  # to stderr: slow first-time steps, and steps that failed
    logging.getLogger("oncebench").setLevel(logging.INFO)
    logging.getLogger("kafka").setLevel(logging.ERROR)  # it warns about each delay of 0.1 s on a busy machine
    _fix_import_folders()
    try:
        _refuse_foreign_packages()
        with disk_errors(Path.cwd()):  # a last resort; the error names the file that it concerns
            sys.exit(command.main(standalone_mode=False))
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ImportError as error:
        why = _taken_name() or _how_to_install(error)
        if why is None:
            raise
        click.echo(f"{name}: {why}", err=True)
        sys.exit(ExitCode.USAGE)
    except (UserError, PipelineError) as error:
        click.echo(f"{name}: {redacted(str(error))}", err=True)
        sys.exit(getattr(error, "exit_code", ExitCode.ERROR))


def _end_orderly() -> None:
    """Makes SIGTERM and SIGHUP end the command as Ctrl-C does.

    Its processes and temporary files are then removed. With `nohup`, and where a handler is installed, nothing changes.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)


def _fix_import_folders() -> None:
    """Makes the folders of PYTHONPATH absolute.

    The suite starts processes in other folders, where a relative path would name another folder.
    """
    if folders := os.environ.get("PYTHONPATH"):
        absolute = (str(Path(each).absolute()) if each else "" for each in folders.split(os.pathsep))
        os.environ["PYTHONPATH"] = os.pathsep.join(absolute)


def _refuse_foreign_packages() -> None:
    """Refuses a user's packages with names of ours before a command imports them.

    The import would run the user's code.

    Raises:
        UserError: Python finds another package first (exit code 2).
    """
    for package in _PACKAGES:
        found = find_spec(package)
        if found is not None and found.origin and Path(found.origin).resolve() != HOME / package / "__init__.py":
            raise UserError(
                _taken_name()
                or f"{Path(found.origin).parent} has the name of oncebench's package {package}, and is imported in "
                "its place. Rename it, or run the command in an environment without it",
                exit_code=ExitCode.USAGE,
            )


def _taken_name() -> str | None:
    """Returns which module in a folder of PYTHONPATH hides another module; None: there is none."""
    # Only a failure needs this module, which loads the metadata of all packages.
    from oncebench.sinks.black_box.names import UserMistake, folders_of_path, refuse_taken_names  # noqa: PLC0415

    try:
        refuse_taken_names(*folders_of_path())
    except UserMistake as mistake:
        return str(mistake)
    return None


def _how_to_install(error: ImportError) -> str | None:
    how = how_to_install(error) if isinstance(error, ModuleNotFoundError) else None
    return None if how is None else f"this command cannot run here: {how}"
