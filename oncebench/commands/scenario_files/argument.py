"""The argument with which a command takes scenario files.

Their values stand in for options that are not given.

Promise: an option on the command line, or its environment variable, overrides the file. An option that may be repeated
replaces the file's list. `--sessions` overrides `duration`, and the other way round; so do `--master` and `cluster`.
`--records` overrides both lengths.
Another sink or guarantee begins with its own default variant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from oncebench.commands.scenario_files.form import KEYS, read_form
from oncebench.commands.scenario_files.lines import LINES
from oncebench.scenario.cell import Cell

# Settings that one run cannot both have: the setting of a file, its default, and the options that make it void.
_VOID: Sequence[tuple[str, Any, Sequence[str]]] = (
    ("duration", None, ("sessions", "records")),
    ("sessions", None, ("duration", "records")),
    ("variant", None, ("sink", "guarantee")),
    ("master", Cell.master, ("workers",)),
    ("workers", Cell.workers, ("master",)),
)
_OVER_THE_FILE = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def options_by_key(command: click.Command) -> dict[str, click.Option]:
    """Returns the options of a command that a file may hold, by their keys.

    Their order is the order of the file.
    """
    options = {each.opts[0].removeprefix("--"): each for each in command.params if isinstance(each, click.Option)}
    return {key: options[key] for key in KEYS if key in options}


def read_scenario(context: click.Context, _argument: click.Parameter, path: Path | None) -> Path | None:
    """Reads the file of the argument, and makes its values the defaults of the options.

    Raises:
        UserError: the file is refused, or an option refuses a value (exit code 2).
    """
    if path is None:
        return None
    values, lines = read_form(path)
    if "duration" in values and "sessions" in values:
        raise lines.refusal("sessions", "duration and sessions give the length of the load twice. Remove one")
    context.meta[LINES] = lines
    options = options_by_key(context.command)
    for key, value in values.items():
        try:
            options[key].process_value(context, value)
        except click.BadParameter as error:
            raise lines.refusal(key, f"{key} = {value!r}: {error.message.rstrip('.')}. Correct the value") from None
    context.default_map = {str(options[key].name): value for key, value in values.items()}
    return path


def settled(context: click.Context) -> dict[str, Any]:
    """Returns the option values. A file setting that a given option replaces has its default."""
    values = dict(context.params)
    if context.meta.get(LINES) is None:
        return values
    for void, default, others in _VOID:
        if from_file(context, void) and any(over_file(context, other) for other in others):
            values[void] = default
    return values


def from_file(context: click.Context, name: str) -> bool:
    """Whether the value of an option comes from a scenario file."""
    return context.get_parameter_source(name) is ParameterSource.DEFAULT_MAP


def over_file(context: click.Context, name: str) -> bool:
    """Whether an option was given beside the file."""
    return context.get_parameter_source(name) in _OVER_THE_FILE


def words_over_files(context: click.Context, command: click.Command, hidden: Mapping[str, str]) -> list[str]:
    """Returns the words that give another command the options that were given to this one.

    Args:
        command: the other command, which reads the files.
        hidden: the values of options that the context does not hold, by name.
    """
    words: list[str] = []
    for option in options_by_key(command).values():
        name = str(option.name)
        if not over_file(context, name) or name == "sinks":
            continue
        value = {**context.params, **hidden}[name]
        for each in value if option.multiple else (value,):
            words += [option.opts[0], "=".join(each) if isinstance(each, tuple) else str(each)]
    return words
