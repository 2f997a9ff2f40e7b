"""Loads the SQL files of this folder."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

_NAME = "-- name: "


@cache
def statements(name: str) -> str:
    """Returns the statements of the file `name`.sql."""
    return files(__package__).joinpath(f"{name}.sql").read_text("utf-8")


def queries(name: str) -> dict[str, str]:
    """Returns the queries of the file `name`.sql; each follows a line `-- name: NAME`."""
    _, *parts = statements(name).split(_NAME)
    return dict(part.split("\n", 1) for part in parts)
