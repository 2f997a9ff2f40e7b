"""`oncebench doctor`: checks what this machine has and lacks."""

from __future__ import annotations

import sys

import click

from oncebench.errors import ExitCode
from oncebench.lab.provision import provision
from oncebench.report.results import LOCAL
from oncebench.servers.doctor import checks


@click.command()
@click.option("--fetch", is_flag=True, help="Download missing jars and a missing JDK first.")
def doctor(fetch: bool) -> None:
    """Check what this machine has, and print what to do where something is missing.

    Checks Python, Java, jars, cache, ports, memory, cores, open files, temporary folder, disk and fsync. Exit code 5 if
    something is missing.
    """
    if fetch:
        provision()
    found = checks(LOCAL)
    width = max(len(check.name) for check in found)
    for check in found:
        if not fetch or not check.ok:
            click.echo(f"{'ok ' if check.ok else 'NO '} {check.name.ljust(width)}  {check.detail}")
        if not check.ok:
            click.echo(f"    {' ' * width}  {check.advice}")
    if fetch and all(check.ok for check in found):
        click.echo("oncebench is set up: nothing is missing on this machine")
    sys.exit(ExitCode.KEPT if all(check.ok for check in found) else ExitCode.ENVIRONMENT)
