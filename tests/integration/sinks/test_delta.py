"""What loses or doubles batches of a Delta table in silence elsewhere: a lost checkpoint, a reused id."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import closing
from typing import Any

import pytest

from oncebench.errors import UserError
from oncebench.sinks.reader import Rows
from oncebench.sinks.registry import suite_sinks
from pipeline.config import PipelineConfig
from pipeline.rows import KEY
from tests.pipelines import Fixture, every_row, position, session, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def config(fixture: Fixture, *faults: str, **changes: Any) -> PipelineConfig:
    return fixture.config(
        "exactly-once",
        "idempotent",
        *faults,
        sink="delta",
        output={"output": str(fixture.folder / "table")},
        **changes,
    )


def visible(fixture: Fixture) -> Counter[tuple[str, int]]:
    seen: list[Rows] = []
    target = {"output": str(fixture.folder / "table"), "key": KEY}
    with closing(suite_sinks()["delta"].read(target)) as reader:
        assert reader.read_to_end(seen.append, settle_s=0, idle_s=0).complete
    values = (json.loads(value or b"{}") for rows in seen for value in rows.value)
    return Counter((row["session_key"], row["j"]) for row in values)


def refusal(fixture: Fixture, asked: PipelineConfig) -> str:
    with fixture.pipeline(asked) as pipeline, pytest.raises(UserError) as refused:
        pipeline.start()
        wait_for("the refusal", lambda: False, [pipeline])
    return str(refused.value)


def test_a_lost_checkpoint_and_a_reused_sink_id_are_refused_and_lose_nothing(fixture: Fixture) -> None:
    fixture.send([*session("d-1"), *session("d-22")])
    first = config(fixture)
    with fixture.pipeline(first) as pipeline:
        pipeline.start()
        wait_for("the first batch", lambda: position(first.record) == fixture.input_ends(), [pipeline])
        second = config(fixture, checkpoint=fixture.folder / "second", record=fixture.folder / "second-record")
        assert "two pipelines share the sink_id" in refusal(fixture, second)
        fixture.send(session("d-333"))
        wait_for("the next batch", lambda: position(first.record) == fixture.input_ends(), [pipeline])
        pipeline.stop()
    shutil.rmtree(first.checkpoint)
    said = refusal(fixture, config(fixture, record=fixture.folder / "lost-record"))
    assert "the checkpoint is new" in said
    assert "take a new sink_id" in said
    assert visible(fixture) == every_row("d-1", "d-22", "d-333")
