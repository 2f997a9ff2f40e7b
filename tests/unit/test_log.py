"""The log beneath an output: who wrote what, how transactions ended, and what of it nobody is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncebench.judge.agreement import compare, counts_of
from oncebench.judge.audit import Findings, audit
from oncebench.record import Record
from oncebench.second import count
from pipeline.sinks.kafka_tasks import Names, generation_of
from tests.proofs.test_second import files_of
from tests.unit.audit_world import lay_out, log_of, make_record, make_world, stretch

WORLD = make_world(3, 1)  # 60 rows in one partition
PLACES = [offset for _, offset, _ in lay_out(WORLD.rows)]
END = PLACES[-1] + 1


def judged(record: Record) -> Findings:
    """What the first auditor finds; the second one has to count the same."""
    findings = audit(record)
    with count.connection() as con:
        assert compare(counts_of(findings), count.count(con, files_of(record))).reasons == ()
    return findings


def sound(*more: dict[str, Any]) -> Record:
    """A run whose rows stand in the log one by one, in a committed transaction; and what else stands there."""
    rows = [stretch(0, offset, offset) for offset in PLACES]
    return replace(make_record(WORLD), log=log_of(*rows, stretch(0, END, END, marker="commit"), *more))


def test_a_log_whose_records_are_all_visible_exposes_nothing_whatever_markers_stand_in_it() -> None:
    assert judged(sound()).counts() == {}


def test_what_only_an_uncommitted_reader_is_shown_is_EXPO_by_the_end_of_its_transaction() -> None:
    record = sound(
        stretch(0, 200, 206, producer=2, generation=2),
        stretch(0, 207, 207, producer=2, marker="abort"),
        stretch(0, 208, 210, producer=3, generation=None),
        stretch(0, 211, 211, producer=-1, generation=None, transactional=False),
    )
    exposed = judged(record).anomalies["EXPO"]
    assert (exposed.count, exposed.split) == (11, {"committed": 0, "aborted": 7, "open": 3, "plain": 1})
    assert exposed.examples[0] == {
        "rows": [0, 200, 206],
        "records": 7,
        "producer": 2,
        "generation": 2,
        "transaction": "aborted",
    }
    assert [example["generation"] for example in exposed.examples[1:]] == [None, None]


def test_a_marker_ends_only_what_its_own_producer_wrote_before_it_in_that_partition() -> None:
    record = sound(
        stretch(0, 200, 201, producer=2),
        stretch(0, 202, 202, producer=3),
        stretch(0, 203, 203, producer=2, marker="abort"),
        stretch(0, 204, 204, producer=2),
        stretch(1, 0, 0, producer=3, marker="abort"),
    )
    assert judged(record).anomalies["EXPO"].split == {"committed": 0, "aborted": 2, "open": 2, "plain": 0}


def test_records_are_told_apart_by_their_positions_and_not_by_totals() -> None:
    rows = [stretch(0, offset, offset) for offset in PLACES[1:]]  # a visible row that the log does not hold
    hidden = stretch(0, 200, 200, transactional=False)  # and one the other way round
    record = replace(make_record(WORLD), log=log_of(*rows, hidden))
    assert judged(record).counts() == {"EXPO": 1}


def test_the_order_of_stretches_in_the_file_does_not_matter() -> None:
    record = sound(stretch(0, 200, 201, producer=2), stretch(0, 202, 202, producer=2, marker="abort"))
    turned = replace(record.log, table=record.log.table.take(list(reversed(range(record.log.table.num_rows)))))
    assert judged(replace(record, log=turned)).anomalies["EXPO"] == judged(record).anomalies["EXPO"]


def test_a_run_without_a_log_counts_nothing_of_it() -> None:
    assert judged(make_record(WORLD)).anomalies["EXPO"].count == 0


@pytest.mark.parametrize(
    ("name", "generation"),
    [("own.txn.g12.77.ab", 12), ("owner.txn.g12.77.ab", None), ("own.txn.gx.77.ab", None), ("own.generation", None)],
)
def test_a_transactional_id_tells_the_generation_of_its_own_sink_id_only(name: str, generation: int | None) -> None:
    assert generation_of("own", name) == generation
    assert generation_of("own", Names("own", 3, "topic").fresh_id()) == 3
