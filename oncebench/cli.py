"""The command line: one file per command in `oncebench/commands`.

See `oncebench.program` for how a command ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from copy import copy
from importlib import import_module

import click

from oncebench.commands.shared.utf8 import refuse_other_bytes
from oncebench.errors import ExitCode, UserError, did_you_mean
from oncebench.program import run_program

# The sections of `oncebench --help`: title, folder below `oncebench/commands`, and the commands with their lines. The
# module of a command has the same name.
SECTIONS = (
    ("Measure a guarantee, and break a run", "", {
        "run": "Run one cell and judge it.",
        "compare": "Run a profile of cells and print one table.",
        "faults": "Run the fault matrix: one verdict per fault and guarantee.",
        "sustain": "Find the highest rate that each guarantee sustains.",
        "plan": "Plan cores, partitions and time-outs for a rate.",
        "batches": "Measure the time that each protocol adds to a batch.",
        "profile": "Show where the time and the CPU of a batch go.",
        "bench": "Track costs and guarantees over commits with asv.",
        "load": "Run the load generator alone, against any Kafka.",
        "list": "List sinks, guarantees, variants, faults and profiles.",
        "doctor": "Check what this machine has and what it lacks.",
    }),
    ("Stored runs", "stored_runs", {
        "table": "Print tables from stored reports, or publish the results page.",
        "audit": "Judge a stored run again.",
    }),
    ("A job of your own", "own_jobs", {
        "certify": "Find the guarantee that a sink of your own keeps.",
        "acls": "Print the commands that grant a Kafka user its rights.",
        "requeue": "Send rejected records back from the quarantine topic.",
        "transactions": "List, commit or abort what a dead job left open.",
    }),
)  # fmt: skip
# The folder of each command.
COMMANDS = {name: folder for _, folder, lines in SECTIONS for name in lines}


class Commands(click.Group):
    """Imports a command when it is used: together they import Spark and take 0.7 s."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuses arguments that are not UTF-8, for every command."""
        for argument in args:
            refuse_other_bytes(argument, "an argument of this command")
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All names, the most used first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name; None: there is none."""
        if cmd_name not in COMMANDS:
            return None
        module = ".".join(filter(None, ("oncebench.commands", COMMANDS[cmd_name], cmd_name)))
        defined = vars(import_module(module)).values()
        return next(each for each in defined if isinstance(each, click.Command) and each.name == cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command, and gives each of its options an environment variable.

        Raises:
            UserError: a variable begins as those of the command, and no option has it (exit code 2).
        """
        name, command, rest = super().resolve_command(ctx, args)
        if name is None or command is None:
            return name, command, rest
        own = copy(command)
        own.params = [_with_variable(name, param) for param in command.params]
        if not ctx.resilient_parsing and not {"-h", "--help"} & set(rest):  # shell completion parses, too
            _refuse_unknown(name, (str(param.envvar) for param in own.params))
        return name, own, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Writes the names and lines without importing a command."""
        for title, _, lines in SECTIONS:
            with formatter.section(title):
                formatter.write_dl(list(lines.items()))


def _with_variable(command: str, param: click.Parameter) -> click.Parameter:
    """Returns the option with the environment variable that has its name, as the user types it."""
    if not isinstance(param, click.Option):
        return param
    found = copy(param)
    found.envvar = _prefix(command) + param.opts[0].removeprefix("--").replace("-", "_").upper()
    return found


def _prefix(command: str) -> str:
    return f"ONCEBENCH_{command.upper()}_"


def _refuse_unknown(command: str, known: Iterable[str]) -> None:
    """Refuses a variable that would have no effect, such as a misspelled one.

    The suite's own variables pass: none of them begins with the name of a command and an underscore, except those that
    `oncebench bench` sets for asv.
    """
    names = set(known)
    for variable in sorted(os.environ):
        if variable.startswith(_prefix(command)) and variable not in names:
            raise UserError(
                f"the environment variable {variable} is no option of `oncebench {command}`"
                f"{did_you_mean(variable, names)}. Correct its name, or unset it",
                exit_code=ExitCode.USAGE,
            )


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="oncebench")
def cli() -> None:
    """Measure what a delivery guarantee costs, and test what it protects from.

    One Kafka-to-sink pipeline runs under at-most-once, at-least-once and exactly-once. It is measured, killed and
    audited. Start with `oncebench doctor`, then `oncebench compare`.

    \b
    Words:
      cell     one run: sink, guarantee, variant, faults, load and settings
      profile  a named set of cells
      round    one pass over the same cells; rounds are interleaved
      sweep    the same cells at several values of one setting
      chain    several faults in one run, each in a batch of its own (`faults`)

    \b
    Exit codes:
      0    every guarantee was kept, and every deliberately broken sink
           failed in the documented way
      1    an error, or a verdict of unknown or vacuous
      2    the command line was wrong
      3    a guarantee was broken
      5    this machine lacks something; see `oncebench doctor`
      130  interrupted

    Every option can also be an environment variable: ONCEBENCH_RUN_RECORD_BYTES=500 is `oncebench run --record-bytes
    500`. A flag takes 1. A variable whose name no option of the command has is refused.
    """


def main() -> None:
    """The entry point of the console script."""
    run_program("oncebench", cli)
