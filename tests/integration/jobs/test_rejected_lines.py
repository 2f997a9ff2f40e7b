"""The lines for rejected records on the page of one's own job work.

They give `deliver` the column that it wants.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from oncebench.delivery.batch import check_columns
from oncebench.lab.lab import Lab
from tests import ROOT
from tests.spark_sessions import sinkless, spark_session

pytestmark = [pytest.mark.integration, pytest.mark.spark]

RECORDS = [
    (b"a", b'{"order_id": "a", "cents": 5}', 0, 0),
    (None, b"no JSON", 1, 7),
    (b"b", b'{"order_id": "b", "cents": 0}', 0, 1),
    (b"c", None, 0, 2),
]


def test_the_page_rejects_what_is_no_order(lab: Lab, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "your_own_job.md").read_text()
    (lines,) = re.findall(r"```python\n([^`]*quarantine=bad.*?)```", page, re.DOTALL)
    delivered: dict[str, Any] = {}
    with spark_session(sinkless(lab, tmp_path / "spark")) as spark:
        orders = spark.createDataFrame(RECORDS, "key binary, value binary, partition int, offset long")
        names = {"orders": orders, "sink": None}
        exec(lines, {**names, "deliver": lambda rows, _sink, **more: delivered.update(more, rows=rows)})
        rows = delivered["rows"]
        check_columns(rows.schema)
        found = {row["value"]: row["quarantine"] for row in rows.collect()}
    for key, value, partition, offset in RECORDS[1:]:
        assert tuple(found[value]) == ("no order", partition, offset, key, value)
    assert found[RECORDS[0][1]] is None
    assert (delivered["quarantine"].topic, delivered["quarantine"].source_topic) == ("orders-bad", "orders")
