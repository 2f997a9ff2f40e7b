"""The sinks of `certify/` as black boxes.

The sink of this package passes a scenario that pyiceberg's retries fail.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from iceberg_tables import Tables
from oncebench_iceberg.catalogs.local import LocalPlace

from oncebench.certify.in_test import Certify

sys.path.append(str(Path(__file__).parents[2] / "certify"))

import iceberg_sinks

# The driver is paused while tasks write, and continues after its successor has committed the batch.
SCENARIO = ["zombie-amid-call"]


def test_the_reader_returns_each_copy_of_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEBENCH_OUTPUT", str(tmp_path))
    assert iceberg_sinks.read_by_pyiceberg() == []
    tables = Tables(LocalPlace(tmp_path / "warehouse", iceberg_sinks.TABLE))
    tables.make()
    tables.append_by_other("a", "b")
    tables.append_by_other("a")
    found = sorted((row["key"], row["n"]) for row in iceberg_sinks.read_by_pyiceberg())
    assert found == [("a", 0), ("a", 0), ("b", 1)]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_sink_is_exactly_once_as_a_black_box(certify: Certify) -> None:
    certify(iceberg_sinks.exactly_once, reader=iceberg_sinks.read_by_pyiceberg, scenarios=SCENARIO)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_checked_append_of_pyiceberg_doubles_a_batch(certify: Certify) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"zombie-amid-call: \d+ extra copies"):
        certify(iceberg_sinks.checked_append, reader=iceberg_sinks.read_by_pyiceberg, scenarios=SCENARIO)
