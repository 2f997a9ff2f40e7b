"""A stuck last stable offset: whether a coordinator will still end the transaction."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from oncebench.audit.anomalies import Anomaly
from oncebench.audit.python.audit import audit
from oncebench.audit.sql import count
from oncebench.record import Record
from oncebench.sinks.reader import OpenTransaction
from tests.proofs.both_auditors import files_of
from tests.unit.audit.audit_world import make_record, make_world

WORLD = make_world(2, 2)
STUCK, WELL = {"lso": 60, "hw": 61}, {"lso": 200, "hw": 200}
RUNS = asdict(OpenTransaction(0, 60, 7, "own.txn.g1.1.a", "Ongoing", True, 100_000, 60_000, 130_000))


def stuck(*open_: dict[str, Any], ends: dict[str, dict[str, int]] | None = None) -> Anomaly:
    """STALL-LSO by the first auditor, which has to be that of the second."""
    ends = ends or {"0": STUCK, "1": WELL}
    record: Record = make_record(WORLD, ends={"output": ends, "final_complete": True, "open_transactions": list(open_)})
    found = audit(record).anomalies["STALL-LSO"]
    with count.connection() as con:
        second = count.count(con, files_of(record))
    assert second["STALL-LSO"] == found.count
    assert {kind: second[f"STALL-LSO.{kind}"] for kind in found.split} == found.split
    return found


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("delayed", {}),
        ("delayed", {"asked_ms": 170_000}),  # past its time-out, but the broker looks every 10 s only
        ("hanging", {"asked_ms": 170_001}),
        ("delayed", {"state": "PrepareCommit"}),
        ("hanging", {"state": "PrepareCommit", "asked_ms": 180_000}),  # KAFKA-19999: decided, and never finished
        ("hanging", {"state": "CompleteAbort"}),
        ("hanging", {"state": "Empty", "started_ms": -1}),
        ("hanging", {"state": None, "transactional_id": None, "here": False, "started_ms": -1}),
        ("hanging", {"here": False}),  # its coordinator runs another one, elsewhere
    ],
)
def test_a_transaction_hangs_if_its_coordinator_will_not_end_it_and_is_delayed_otherwise(
    kind: str, changed: dict[str, Any]
) -> None:
    found = stuck({**RUNS, **changed})
    assert found.split == {"hanging": 0, "delayed": 0, "untold": 0} | {kind: 1}
    assert found.examples == (
        {"partition": 0, "lso": 60, "hw": 61, "kind": kind, "open": [{**RUNS, **changed}]},
    )  # fmt: skip


def test_one_hanging_transaction_makes_its_partition_hang_and_no_other() -> None:
    ends = {"0": STUCK, "1": STUCK, "2": STUCK}
    found = stuck(RUNS, {**RUNS, "producer": 8, "state": "Empty"}, {**RUNS, "partition": 1}, ends=ends)
    assert (found.count, found.split) == (3, {"hanging": 1, "delayed": 1, "untold": 1})


def test_all_partitions_stuck_for_the_same_cause_are_counted() -> None:
    found = stuck(RUNS, ends={str(partition): STUCK for partition in range(4)})
    assert (found.count, found.split) == (4, {"hanging": 0, "delayed": 1, "untold": 3})


def test_a_partition_that_is_not_stuck_has_nothing_open() -> None:
    assert stuck({**RUNS, "state": None}, ends={"0": WELL}) == Anomaly(0, (), {"hanging": 0, "delayed": 0, "untold": 0})
