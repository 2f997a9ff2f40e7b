"""The output's log: who wrote each stretch, how transactions ended, and what is hidden."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from oncebench.audit.agreement import compare, counts_of
from oncebench.audit.anomalies import EXAMPLES
from oncebench.audit.python.audit import Findings, audit
from oncebench.audit.sql import count
from oncebench.record import Record
from oncebench.sinks.kafka.names import Names, generation_of
from tests.proofs.both_auditors import files_of
from tests.unit.audit.audit_world import (
    STARTED_US,
    key_of,
    lay_out,
    log_of,
    make_record,
    make_world,
    observed_table,
    stretch,
)

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
    """A run with one stretch per row in a committed transaction, and more stretches."""
    rows = [stretch(0, offset, offset) for offset in PLACES]
    return replace(make_record(WORLD), log=log_of(*rows, stretch(0, END, END, marker="commit"), *more))


def test_a_log_whose_records_are_all_visible_exposes_nothing() -> None:
    assert judged(sound()).counts() == {}


def test_records_hidden_from_committed_readers_are_EXPO_by_transaction_end() -> None:
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


def test_generation_0_is_a_generation() -> None:
    exposed = judged(sound(stretch(0, 200, 200, producer=2, generation=0))).anomalies["EXPO"]
    assert exposed.examples[0]["generation"] == 0
    assert judged(by_generations(1, 0)).counts() == {"STALE": 30}


def test_a_marker_ends_only_its_producers_earlier_records_in_its_partition() -> None:
    record = sound(
        stretch(0, 200, 201, producer=2),
        stretch(0, 202, 202, producer=3),
        stretch(0, 203, 203, producer=2, marker="abort"),
        stretch(0, 204, 204, producer=2),
        stretch(1, 0, 0, producer=3, marker="abort"),
    )
    assert judged(record).anomalies["EXPO"].split == {"committed": 0, "aborted": 2, "open": 2, "plain": 0}


def test_records_are_counted_by_position_and_not_by_total() -> None:
    rows = [stretch(0, offset, offset) for offset in PLACES[1:]]  # a visible row that the log does not hold
    hidden = stretch(0, 200, 200, transactional=False)  # and one vice versa
    record = replace(make_record(WORLD), log=log_of(*rows, stretch(0, END, END, marker="commit"), hidden))
    assert judged(record).counts() == {"EXPO": 1}


def test_the_order_of_stretches_in_the_file_does_not_matter() -> None:
    record = sound(stretch(0, 200, 201, producer=2), stretch(0, 202, 202, producer=2, marker="abort"))
    turned = replace(record.log, table=record.log.table.take(list(reversed(range(record.log.table.num_rows)))))
    assert judged(replace(record, log=turned)).anomalies["EXPO"] == judged(record).anomalies["EXPO"]


def by_generations(*generations: int | None, hidden: tuple[int, ...] = ()) -> Record:
    """60 visible rows, written by these generations in turn; those in `hidden` were aborted."""
    share = len(PLACES) // len(generations)
    stretches, rows = [], []
    for turn, generation in enumerate(generations):
        here = {"producer": turn, "generation": generation}
        places = PLACES[turn * share : (turn + 1) * share]
        stretches += [stretch(0, offset, offset, **here) for offset in places]
        stretches.append(stretch(0, 200 + turn, 200 + turn, marker="abort" if turn in hidden else "commit", **here))
        rows += [] if turn in hidden else places
    record = make_record(WORLD)
    kept = record.final.table.filter(pc.is_in(record.final.table["offset"], pa.array(rows)))
    return replace(record, log=log_of(*stretches), final=replace(record.final, table=kept))


def test_a_newer_driver_that_continues_an_older_one_is_not_STALE() -> None:
    assert judged(by_generations(1, 2, 3)).counts() == {}
    assert judged(by_generations(1, 1, 2)).counts() == {}


def test_a_visible_row_of_an_older_driver_behind_a_newer_one_is_STALE() -> None:
    findings = judged(by_generations(1, 2, 1))
    assert findings.counts() == {"STALE": 20}
    example = findings.anomalies["STALE"].examples[0]
    assert example["row"] == [0, PLACES[40]]
    assert example["id"].endswith("-00000002:0")
    assert len(example["input"]) == 5
    assert example["in"]["generation"] == 1
    assert example["in"]["after"]["generation"] == 2
    assert example["in"]["after"]["rows"] == [0, PLACES[20], PLACES[20]], "where the newer one began"


def test_rows_are_compared_with_the_newest_driver_before_them() -> None:
    assert judged(by_generations(2, 3, 2, 1)).counts() == {"STALE": 30}


def test_the_first_record_of_a_log_may_be_the_newest_drivers() -> None:
    assert judged(by_generations(2, *[1] * 59)).counts() == {"STALE": 59}


def test_an_aborted_newer_driver_also_makes_an_older_one_STALE() -> None:
    assert judged(by_generations(1, 2, 1, hidden=(1,))).anomalies["STALE"].count == 20


def test_a_late_row_that_is_not_visible_is_not_STALE() -> None:
    assert judged(by_generations(1, 2, 1, hidden=(2,))).anomalies["STALE"].count == 0


def test_a_writer_of_unknown_generation_is_neither_older_nor_newer() -> None:
    assert judged(by_generations(1, None, 1)).anomalies["STALE"].count == 0
    assert judged(by_generations(2, None, 1)).anomalies["STALE"].count == 20


def test_STALE_is_judged_per_partition() -> None:
    world = make_world(4, 2)
    stretches = [stretch(p, o, o, producer=9 - p, generation=9 - p) for p, o, _ in lay_out(world.rows)]
    record = replace(make_record(world), log=log_of(*stretches))
    assert judged(record).anomalies["STALE"].count == 0


def test_visible_rows_of_an_aborted_or_open_transaction_are_G1a() -> None:
    stretches = [
        *(stretch(0, offset, offset, producer=1 + (at >= 20) + (at >= 40)) for at, offset in enumerate(PLACES)),
        stretch(0, END, END, producer=1, marker="commit"),
        stretch(0, END + 1, END + 1, producer=2, marker="abort"),
        stretch(0, END + 2, END + 2, producer=2, marker="commit"),  # of its next transaction, in which it wrote nothing
    ]
    findings = judged(replace(make_record(WORLD), log=log_of(*stretches)))
    assert findings.counts() == {"G1a": 40}
    assert findings.anomalies["G1a"].split == {"aborted": 20, "open": 20}
    example = findings.anomalies["G1a"].examples[0]
    assert (example["row"], example["id"]) == ([0, PLACES[20]], "b-00000001:0")
    assert (len(example["input"]), example["in"]["transaction"]) == (5, "aborted")


def test_each_G1a_row_comes_with_its_own_id() -> None:
    stretches = log_of(*(stretch(0, offset, offset) for offset in PLACES))
    examples = judged(replace(make_record(WORLD), log=stretches)).anomalies["G1a"].examples
    assert [example["id"] for example in examples] == [f"{key_of(at // 20)}:{at % 20}" for at in range(EXAMPLES)]


def test_a_G1a_row_that_no_input_explains_comes_without_an_id() -> None:
    rows = [replace(WORLD.rows[0], value=b"{"), *WORLD.rows]
    stretches = log_of(*(stretch(0, offset, offset) for _, offset, _ in lay_out(rows)))
    examples = judged(replace(make_record(WORLD, rows), log=stretches)).anomalies["G1a"].examples
    assert [example.get("id") for example in examples[:3]] == [None, f"{key_of(0)}:0", f"{key_of(0)}:1"]


def test_rows_that_only_the_observer_saw_can_be_G1a() -> None:
    record = sound(stretch(0, 200, 206, producer=2), stretch(0, 207, 207, producer=2, marker="abort"))
    seen = observed_table([(0, 203, WORLD.rows[0])], [STARTED_US])
    findings = judged(replace(record, observed=replace(record.observed, table=seen)))
    assert (findings.anomalies["G1a"].count, findings.anomalies["EXPO"].count) == (1, 7)


def test_a_transaction_that_may_still_have_ended_is_not_G1a() -> None:
    stretches = log_of(*(stretch(0, offset, offset) for offset in PLACES))
    assert judged(replace(make_record(WORLD), log=stretches)).anomalies["G1a"].count == 60
    assert judged(replace(make_record(WORLD), log=replace(stretches, complete=False))).anomalies["G1a"].count == 0
    later = sound(stretch(0, 200, 206, producer=2))
    seen = observed_table([(0, 203, WORLD.rows[0])], [STARTED_US])
    assert judged(replace(later, observed=replace(later.observed, table=seen))).anomalies["G1a"].count == 0


def test_rows_outside_of_transactions_are_never_G1a() -> None:
    stretches = [stretch(0, offset, offset, producer=-1, transactional=False) for offset in PLACES]
    assert judged(replace(make_record(WORLD), log=log_of(*stretches))).counts() == {}


def test_a_run_without_a_log_has_no_log_anomalies() -> None:
    assert judged(make_record(WORLD)).anomalies["EXPO"].count == 0


@pytest.mark.parametrize(
    ("name", "generation"),
    [("own.txn.g12.77.ab", 12), ("owner.txn.g12.77.ab", None), ("own.txn.gx.77.ab", None), ("own.generation", None)],
)
def test_a_transactional_id_gives_the_generation_of_its_own_sink_id_only(name: str, generation: int | None) -> None:
    assert generation_of("own", name) == generation
    assert generation_of("own", Names("own", 3, "topic").fresh_id()) == 3
