"""Each batch writes the state in the configured form."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import CHANGELOG, SNAPSHOTS, PipelineConfig
from pipeline.spark.session import settings


@pytest.mark.parametrize(("state_store", "changelog"), [(CHANGELOG, "true"), (SNAPSHOTS, "false")])
def test_spark_writes_the_state_as_configured(tmp_path: Path, state_store: str, changelog: str) -> None:
    config = PipelineConfig(
        "localhost:1", "in", {"output": "out"}, "bad", "kafka", "exactly-once", "two-phase", "id", tmp_path, tmp_path,
        state_store=state_store,
    )  # fmt: skip
    told = settings(config)
    assert told["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] == changelog
