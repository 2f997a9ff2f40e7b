"""The schema of a stored cell has every field of a cell, so no new field makes a run unreadable."""

from __future__ import annotations

from dataclasses import fields

from oncebench.record import schema
from oncebench.scenario.cell import Cell


def test_a_stored_cell_has_every_field_of_a_cell() -> None:
    stored = schema.StoredCell.__annotations__.keys()
    assert {field.name for field in fields(Cell)} - stored == set()
