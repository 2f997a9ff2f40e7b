"""`deliver` copies a query's rejected records, and writes its rows.

The sink is one whose tasks write.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from oncebench.delivery.contract import AT_MOST_ONCE, EXACTLY_ONCE
from oncebench.delivery.journal import Journal, open_journal
from oncebench.jobs import FilesSink, deliver, query
from oncebench.lab.lab import Lab
from tests.integration.jobs.rejecting import BAD, GOOD, Rejecting

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.mark.parametrize(
    ("guarantee", "claimed"),
    [pytest.param(EXACTLY_ONCE, False, marks=pytest.mark.slow), (AT_MOST_ONCE, True)],
    ids=["written", "lost"],
)
def test_rejected_records_are_copied_also_where_the_rows_are_lost(
    lab: Lab, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarantee: str, claimed: bool
) -> None:
    journals: list[Journal] = []

    def opened(*given: Any) -> Journal:
        journals.append(open_journal(*given))
        return journals[-1]

    monkeypatch.setattr(query, "open_journal", opened)
    job = Rejecting(lab, spark, tmp_path)
    sink = FilesSink(str(tmp_path / "out"), sink_id=tmp_path.name, form="jsonl")

    def start() -> DataStreamWriter:
        return deliver(
            job.rows(), sink, guarantee=guarantee, checkpoint=tmp_path / "checkpoint", quarantine=job.quarantine
        )

    writer = start()
    if claimed:  # the first driver dies before it writes the batch
        assert journals[0].claim(0)
        writer = start()
    writer.trigger(availableNow=True).start().awaitTermination()
    found = spark.read.schema("key STRING, value STRING").json(str(tmp_path / "out")).collect()
    assert Counter(row.value for row in found) == Counter(() if claimed else GOOD)
    assert job.copies() == Counter(BAD)
