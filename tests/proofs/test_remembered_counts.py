"""Remembered counts of the SQL auditor: equal files are counted once, other files are counted."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest

from oncebench.audit.sql import count
from oncebench.audit.sql.files import Files
from tests import ROOT
from tests.proofs.both_auditors import files_of
from tests.unit.audit.audit_world import make_record, make_world


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Files]:
    """The files that were really counted since the counts are remembered."""
    monkeypatch.syspath_prepend(ROOT / "proofs" / "mutants")
    done: list[Files] = []
    real = count.count
    monkeypatch.setattr(count, "count", lambda con, files: done.append(files) or real(con, files))
    monkeypatch.setattr(count, "connection", count.connection)
    importlib.import_module("remembered_counts").remember_counts()
    return done


def counts(files: Files) -> dict[str, int]:
    with count.connection() as con:
        return count.count(con, files)


def test_equal_files_are_counted_once(counted: list[Files]) -> None:
    world = make_world(2)
    first, again = (counts(files_of(make_record(world))) for _ in range(2))
    assert (first, len(counted)) == (again, 1)


def test_any_other_file_or_field_is_counted(counted: list[Files]) -> None:
    files = files_of(make_record(make_world(2)))
    others = [
        replace(files, planned=files.planned + 1),
        replace(files, drained=False),
        replace(files, final=files.final.slice(1)),
        replace(files, log_whole=not files.log_whole),
    ]
    found = [counts(each) for each in (files, *others)]
    assert len(counted) == 5
    assert [found[0]["rows.lost"], found[3]["rows.lost"]] == [0, 1]
