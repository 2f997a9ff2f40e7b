"""What loses or doubles batches of a Delta table in silence elsewhere: a lost checkpoint, a reused id, a zombie."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import closing
from typing import Any

import pytest

from oncebench.errors import UserError
from oncebench.record.streams import read_lines
from pipeline.config import PipelineConfig
from pipeline.sinks.reading import Rows
from pipeline.sinks.registry import SINKS
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
    with closing(SINKS["delta"].read({"output": str(fixture.folder / "table")})) as reader:
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


def test_a_zombie_driver_that_goes_on_appends_nothing_twice_and_says_why_it_dies(fixture: Fixture) -> None:
    fixture.send(session("z-1"))
    # A stops itself in the middle of its second write; nobody continues it before B has committed the batch.
    a_config = config(fixture, "before-prepare:stop:90000@batch=1")
    b_config = config(fixture, record=fixture.folder / "second")
    with fixture.pipeline(a_config) as a, fixture.pipeline(b_config) as b:
        a.start()
        wait_for("A's first batch", lambda: position(a_config.record) == fixture.input_ends(), [a])
        fixture.send(session("z-22"))
        hits = fixture.folder / "record" / "hits.jsonl"
        wait_for("A to stop in its write", lambda: len(read_lines(hits).items) == 1, [a])
        b.start()
        wait_for("B to pass the batch", lambda: position(b_config.record) == fixture.input_ends(), [b])
        assert a.child is not None
        a.child.thaw()
        wait_for("A to die", lambda: a.child is not None and not a.child.alive, [b])
        words = a.child.log.read_text()
        b.stop()
    assert "another driver" in words, words[-2000:]
    assert "ConcurrentTransactionException" in words, "Delta itself refused the late commit"
    assert visible(fixture) == every_row("z-1", "z-22")
