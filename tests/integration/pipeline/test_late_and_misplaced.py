"""Outages, and starts that must be refused.

The tests show what a pipeline does when it is late or misplaced.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from oncebench.delivery import digest
from oncebench.errors import UserError
from oncebench.record.json_lines import read_lines
from tests.pipelines import Fixture, every_row, position, session
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def hits(fixture: Fixture, record: str = "record") -> int:
    return len(read_lines(fixture.folder / record / "hits.jsonl").items)


@pytest.mark.slow  # each waits for the time-out of a transaction
@pytest.mark.parametrize(("on_lost", "kept"), [("rewrite", True), ("drop", False)])
def test_an_outage_beyond_the_transaction_timeout_is_rewritten_or_dropped_as_asked(
    fixture: Fixture, on_lost: str, kept: bool
) -> None:
    fixture.send([*session("o-1"), *session("o-22")])
    config = fixture.config(
        "exactly-once", "two-phase", "after-decision:stop:14@batch=0", transaction_timeout_ms=10_000, on_lost=on_lost
    )
    with fixture.pipeline(config) as pipeline:
        pipeline.start()
        wait_for("the batch to be done", lambda: position(config.record) == fixture.input_ends(), [pipeline])
        fixture.send(session("o-333"))
        wait_for("the next batch", lambda: position(config.record) == fixture.input_ends(), [pipeline])
        pipeline.stop()
    assert hits(fixture) == 1
    assert pipeline.restarts == (1 if kept else 0)
    assert fixture.visible() == every_row("o-333", *(["o-1", "o-22"] if kept else []))
    dropped = [line["dropped"] for line in read_lines(config.record / "progress.jsonl").items if line["kind"] == "sink"]
    assert any(dropped) is not kept


def refusal(fixture: Fixture, **changes: Any) -> str:
    config = fixture.config(changes.pop("guarantee", "exactly-once"), changes.pop("variant", "two-phase"), **changes)
    with fixture.pipeline(config) as pipeline, pytest.raises(UserError) as refused:
        pipeline.start()
        wait_for("the refusal", lambda: False, [pipeline])
    return str(refused.value)


@pytest.mark.slow
def test_a_start_that_does_not_fit_the_checkpoint_or_the_sink_is_refused_with_what_to_do(fixture: Fixture) -> None:
    fixture.send(session("r-1"))
    config = fixture.config("exactly-once", "two-phase")
    with fixture.pipeline(config) as pipeline:
        pipeline.start()
        wait_for("the first batch", lambda: position(config.record) == fixture.input_ends(), [pipeline])
        pipeline.stop()
    assert "made with sink_id" in refusal(fixture, sink_id="another")
    assert "made with partitions 2, and this start asks for 3" in refusal(fixture, partitions=3)
    assert "made with variant 'two-phase'" in refusal(fixture, variant="idempotent")
    assert "transaction.max.timeout.ms" in refusal(fixture, transaction_timeout_ms=10_000_000)
    kept = fixture.folder / "kept"
    (fixture.folder / "checkpoint").rename(kept)
    assert "the sink holds batch 0" in refusal(fixture)
    shutil.rmtree(fixture.folder / "checkpoint", ignore_errors=True)
    shutil.copytree(kept, fixture.folder / "checkpoint")
    shutil.rmtree(fixture.folder / "checkpoint" / "journal")
    assert "no journal" in refusal(fixture)
    assert fixture.visible() == every_row("r-1")


def other_digest(text: str) -> str:
    found = digest.from_text(text)
    assert found is not None, "it is stored in the form of this version"
    return digest.to_text(found ^ 1)


@pytest.mark.slow
def test_a_replay_that_makes_other_rows_stops_the_query(fixture: Fixture) -> None:
    fixture.send(session("n-1"))
    config = fixture.config("exactly-once", "two-phase", "after-decision@batch=0")
    with fixture.pipeline(config) as pipeline:
        pipeline.start()
        wait_for("the kill", lambda: hits(fixture) == 1)
        assert pipeline.child is not None
        assert pipeline.child.wait(30)
        entry = fixture.folder / "checkpoint" / "journal" / "decision-000000000.0.json"
        decision = json.loads(entry.read_text())
        changed = [{**part, "digest": other_digest(part["digest"])} for part in decision["partitions"]]
        entry.write_text(json.dumps({**decision, "partitions": changed}))
        pipeline.start()
        wait_for("it to stop", lambda: pipeline.child is not None and not pipeline.child.alive)
        assert "NondeterministicReplay" in pipeline.child.log.read_text()
    assert fixture.visible() == every_row("n-1"), "what was decided, once"
