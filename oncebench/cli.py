"""The command line: one file per command in `oncebench/commands`.

Promise: data goes to stdout, progress and messages to stderr; a user's mistake gives one line and an exit code, never
a traceback. Exit codes: 0 promise kept, 1 error, 2 usage, 3 promise broken, 4 threshold missed, 5 environment
missing, 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from oncebench.commands.audit import audit
from oncebench.commands.batches import batches
from oncebench.commands.compare import compare
from oncebench.commands.doctor import doctor
from oncebench.commands.list import list_cells
from oncebench.commands.load import load
from oncebench.commands.run import run
from oncebench.commands.table import table
from oncebench.errors import ERROR, INTERRUPTED, UserError
from oncebench.run.workdir import disk_errors
from pipeline.errors import PipelineError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "ONCEBENCH"})
@click.version_option(package_name="oncebench")
def cli() -> None:
    """What does a delivery guarantee cost, and what does it buy?

    One Kafka-to-sink pipeline under at-most-once, at-least-once and exactly-once: measured, killed and audited.
    Every option can also be given as an environment variable: ONCEBENCH_RUN_RATE=5000 and so on.
    """


for command in (run, compare, batches, load, audit, table, list_cells, doctor):
    cli.add_command(command)


def main() -> None:
    """The entry point of the console script."""
    try:
        with disk_errors(Path.cwd()):  # where nothing better is known; the error names its own file
            cli.main(standalone_mode=False)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.Abort:
        sys.exit(INTERRUPTED)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UserError as error:
        click.echo(f"oncebench: {error}", err=True)
        sys.exit(error.exit_code)
    except PipelineError as error:
        click.echo(f"oncebench: {error}", err=True)
        sys.exit(ERROR)
