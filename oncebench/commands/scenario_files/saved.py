"""Writes a scenario file.

Promise: `oncebench run FILE` runs the same cell as the options that were saved, also with other defaults later. So each
setting is written out, except one that has no effect on this cell. The file has no secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from oncebench.commands.scenario_files.argument import options_by_key, settled
from oncebench.commands.scenario_files.form import PATHS, secrets
from oncebench.commands.shared.options import DEFAULT_DURATION_S
from oncebench.commands.shared.writable import refuse_unwritable, write_whole
from oncebench.errors import ExitCode, UserError
from oncebench.scenario.cell import Cell
from oncebench.scenario.supports import is_two_phase

# The metavar of an option that is a quantity -> its unit.
_UNITS = {"MS": "ms", "S": "s", "EV/S": "events per s"}
# What a basic string of TOML must escape (https://toml.io/en/v1.0.0#string).
_ESCAPED = re.compile(r'[\x00-\x1f\x7f"\\]')


def refuse_as_new_file(path: Path) -> None:
    """Checks that a scenario file can be made.

    Raises:
        UserError: there is such a file already, or it cannot be written (exit code 2).
    """
    if path.exists():
        raise UserError(
            f"--save {path}: it is there already, and may have changes of your own. Give another name, or delete it",
            exit_code=ExitCode.USAGE,
        )
    refuse_unwritable("--save", path)


def save(path: Path, context: click.Context, cell: Cell, postgres: str | None) -> None:
    """Writes the options of a run to a file.

    Args:
        cell: the cell that these options make.
        postgres: the user's own PostgreSQL, if an option names it.

    Raises:
        UserError: a value has a secret (exit code 2).
        MissingEnvironment: the file cannot be written.
    """
    values = _values(path, context, cell, postgres)
    for _, why in secrets(values):
        raise UserError(f"--save {path}: {why}", exit_code=ExitCode.USAGE)
    options = options_by_key(context.command)
    lines = [
        f"# A scenario of oncebench {version('oncebench')}. Run it with `oncebench run FILE`.",
        "# Each key is an option without its dashes: see `oncebench run --help`.",
    ]
    for key, value in values.items():
        unit = _UNITS.get(options[key].metavar or "")
        lines.append(f"{key} = {_toml(value)}" + (f"  # {unit}" if unit else ""))
    write_whole(path, "\n".join(lines) + "\n", "give --save another file")


def _values(path: Path, context: click.Context, cell: Cell, postgres: str | None) -> dict[str, Any]:
    given = settled(context)
    found: dict[str, Any] = {}
    for key, option in options_by_key(context.command).items():
        found[key] = given.get(str(option.name))
    found |= {"variant": cell.variant, "fault": list(cell.faults), "rate": cell.rate, "postgres": postgres}
    if cell.records:
        found |= {"workload": cell.workload, "skew": None}
    else:
        found |= dict.fromkeys(("records", "key", "passes"))
        if given["sessions"] is None and given["duration"] is None:
            found["duration"] = DEFAULT_DURATION_S
    found["kafka-set"] = [f"{name}={value}" for name, value in given["kafka_set"]]
    for key in PATHS:
        if found[key]:
            found[key] = _beside(path, found[key])
    if not is_two_phase(cell):
        found["on-lost"] = None
    return {key: value for key, value in found.items() if value not in (None, [], (), "")}


def _beside(path: Path, file: str) -> str:
    """Returns the path with which the scenario file at `path` names another file.

    A relative path becomes relative to the folder of the scenario file. An absolute path stays the same.
    """
    return file if Path(file).is_absolute() else os.path.relpath(file, path.parent)


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return '"' + _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", value) + '"'
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
