"""The option for the user's own PostgreSQL.

The module imports nothing of the suite, and psycopg only when the option is given.
"""

from __future__ import annotations

import os

import click
from click.core import ParameterSource

from oncebench.errors import ExitCode, UserError

VARIABLE = "ONCEBENCH_POSTGRES"  # of oncebench.sinks.postgres.connection


def _use_postgres(context: click.Context, _option: click.Parameter, dsn: str | None) -> None:
    """Sets the user's server for this process and its children while the command runs."""
    if dsn is None:
        return
    from oncebench.sinks.postgres.connection import secrets  # noqa: PLC0415  needs the extra postgres

    try:
        secret = secrets(dsn)
    except ValueError as error:
        raise UserError(f"--postgres: {error}", exit_code=ExitCode.USAGE) from None
    if secret:
        raise UserError(
            "--postgres contains a password, which every user of this machine could read in the list of processes. "
            f"Use PGPASSWORD, the file that PGPASSFILE names, or put the whole DSN in {VARIABLE}",
            exit_code=ExitCode.USAGE,
        )
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = dsn
    context.call_on_close(lambda: _restore(before))


def given_postgres(context: click.Context) -> str | None:
    """Returns the user's server that the option of a command names.

    Returns None if the option was not given.
    """
    source = context.get_parameter_source("postgres")
    return None if source in (None, ParameterSource.DEFAULT) else os.environ.get(VARIABLE)


def _restore(before: str | None) -> None:
    os.environ.pop(VARIABLE, None)
    if before is not None:
        os.environ[VARIABLE] = before


postgres_option = click.option(
    "--postgres", metavar="DSN", expose_value=False, callback=_use_postgres,
    help="Your own PostgreSQL, without a password in the DSN; without the option, a server is started.",
)  # fmt: skip
own_postgres_option = click.option(
    "--postgres", metavar="DSN", expose_value=False, callback=_use_postgres,
    help=f"Your own PostgreSQL, without a password in the DSN [default: the variable {VARIABLE}].",
)  # fmt: skip
