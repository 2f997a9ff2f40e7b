"""Losses that an operator has accepted are counted by themselves, in both auditors alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oncebench.audit.agreement import compare, counts_of
from oncebench.audit.python.attribution import by_batch
from oncebench.audit.python.audit import audit
from oncebench.audit.python.model import expected_of
from oncebench.audit.sql import count
from oncebench.audit.verdict import judge
from oncebench.record import Record
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream
from oncebench.scenario.cell import Cell
from tests.proofs.both_auditors import files_of
from tests.unit.audit.audit_world import input_table, make_record, make_world

WORLD = make_world(4, 2)
CELL = Cell("kafka", "exactly-once", "two-phase")
# Batch 0 finishes sessions 0 and 1, batch 1 sessions 2 and 3.
BATCHES: tuple[dict[str, Any], ...] = (
    {"kind": "batch", "batch": 0, "t_us": 1, "start_offsets": {}, "end_offsets": {"0": 199, "1": 199}},
    {"kind": "sink", "batch": 0, "t_us": 1, "drained": False, "dropped": []},
    {"kind": "batch", "batch": 1, "t_us": 2, "start_offsets": {"0": 199, "1": 199},
     "end_offsets": {"0": 200, "1": 200}},
    {"kind": "sink", "batch": 1, "t_us": 2, "drained": False, "dropped": []},
)  # fmt: skip


def gap(text: str) -> dict[str, Any]:
    return {"kind": "gap", "t_us": 3, "text": text, "batch": None}


def counted(record: Record) -> dict[str, int]:
    """The codes that both auditors count."""
    findings = audit(record)
    with count.connection() as connection:
        by_sql = count.count(connection, files_of(record))
    assert compare(counts_of(findings), by_sql).reasons == ()
    return findings.counts()


def lost(*progress: dict[str, Any]) -> Record:
    """A run without the rows of sessions 2 and 3, and half of those of session 1."""
    rows = [*WORLD.of(0), *WORLD.of(1)[:10]]
    return make_record(WORLD, rows, progress=Lines(progress))


@pytest.mark.parametrize("text", ["output/0:0..1,output/1:0..1", "output/all:0..1", "output/1:0..1"])
def test_rows_of_named_batches_are_no_loss(text: str) -> None:
    assert counted(lost(*BATCHES)) == {"LOSS": 50, "TORN": 1, "LOSTC": 2}
    record = lost(*BATCHES, gap(text))
    assert counted(record) == {"GAP-ROWS": 40, "LOSS": 10, "TORN": 1, "LOSTC": 1}
    assert by_batch(record, expected_of(record)) == {0: (10, 0)}


@pytest.mark.parametrize(
    "text",
    [
        "output/0:none..1",
        "output/0:-1..1,open/2:written",
        "output/table:1..2",
        "output/cluster:a..b,output/topic_id:c..d",
    ],
)
def test_a_lost_marker_or_another_output_names_every_batch_before(text: str) -> None:
    assert counted(lost(*BATCHES, gap(text))) == {"GAP-ROWS": 50}
    assert counted(lost(*BATCHES[:2], gap("output/table:1..2"), *BATCHES[2:]))["LOSS"] == 40


def test_a_loss_that_names_no_batch_excuses_no_rows() -> None:
    for text in ("input/0:0..199,input/topic_id:a..b", "output/0:none..-1,open/1:missing"):
        assert "GAP-ROWS" not in counted(lost(*BATCHES, gap(text)))


def test_events_at_named_offsets_are_no_fault_of_the_input() -> None:
    whole = make_record(WORLD)
    sent = [each for each in WORLD.sent if each.partition == 1 or each.offset < 190]
    rows = [*WORLD.of(1), *WORLD.of(3)]
    cut = replace(make_record(WORLD, rows, progress=Lines(BATCHES)), input=Stream(input_table(sent), complete=True))
    assert counted(cut) == {"SRC": 10}
    assert counted(replace(cut, progress=Lines((*BATCHES, gap("input/0:190..199"))))) == {"GAP-EVENTS": 10}
    assert counted(replace(cut, progress=Lines((*BATCHES, gap("input/0:195..199"))))) == {"SRC": 5, "GAP-EVENTS": 5}
    assert counted(replace(cut, progress=Lines((*BATCHES, gap("input/1:190..199"))))) == {"SRC": 10}
    unknown = replace(cut.ledger, offset=np.full(len(cut.ledger.offset), -1), partition=np.full(400, -1))
    named = replace(cut, ledger=unknown, progress=Lines((*BATCHES, gap("input/0:0..199"))))
    assert counted(named) == {"SRC": 10}  # an acknowledgement without a position is at no named offset
    assert counted(replace(whole, progress=Lines((*BATCHES, gap("input/0:0..199"))))) == {}


def test_an_accepted_loss_is_in_the_reasons_and_breaks_no_promise() -> None:
    record = make_record(WORLD, [*WORLD.of(0), *WORLD.of(1)], progress=Lines((*BATCHES, gap("output/all:0..1"))))
    judgement = judge(audit(record), record, CELL)
    assert judgement.codes == {}
    assert "an operator accepted a loss: output/all:0..1" in judgement.reasons
