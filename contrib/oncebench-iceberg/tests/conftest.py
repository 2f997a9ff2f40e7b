"""Fixtures of the Iceberg sink's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from iceberg_tables import Tables
from oncebench_iceberg.catalogs.local import LocalPlace


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """A warehouse with an empty table."""
    made = Tables(LocalPlace(tmp_path / "warehouse", "shop.orders"))
    made.make()
    return made
