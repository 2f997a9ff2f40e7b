"""What the model takes from the quarantine, the batches and the configuration of a run."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from oncebench.audit.python.history.evidence import EARLIER_TIMEOUT_MS, Evidence
from oncebench.audit.python.records import unpack
from oncebench.record.streams import Stream
from tests.unit.audit.audit_world import key_of, make_record, make_world, of_timer, quarantine_table

WORLD = make_world(3, 1, unfinished=3)


def copy(partition: int | None, offset: int | None, reason: str = "not-json") -> dict[str, Any]:
    return {"key": b"k", "value": b"{", "reason": reason, "source_partition": partition, "source_offset": offset}


def evidence_of(*pieces: list[dict[str, Any]], **parts: Any) -> Evidence:
    """The evidence of a run whose quarantine was written in these pieces."""
    table = pa.concat_tables([quarantine_table(piece) for piece in pieces])
    return Evidence.of(make_record(WORLD, quarantine=Stream(table, complete=True), **parts))


def test_every_piece_of_the_quarantine_adds_its_copies_and_unfinished_sessions() -> None:
    found = evidence_of([copy(0, 7), of_timer(WORLD, 0)], [copy(1, 9), of_timer(WORLD, 1)], [copy(0, 8)])
    assert {unpack(position) for position in found.copied} == {(0, 7), (1, 9), (0, 8)}
    assert {key for key, _ in found.never_ended} == {key_of(0).encode(), key_of(1).encode()}


def test_a_copy_at_no_possible_position_is_the_copy_of_nothing() -> None:
    found = evidence_of([copy(None, None), copy(0, None), copy(None, 3), copy(0, -1), copy(0, 1 << 44)])
    assert (found.copied, found.never_ended) == (frozenset(), frozenset())


def test_only_a_record_of_a_timer_shows_that_a_session_never_ended() -> None:
    timer = of_timer(WORLD, 2)
    placed: list[dict[str, Any]] = [{"source_partition": 0}, {"source_offset": 3}]
    other = [{"reason": "not-json"}, *placed, placed[0] | placed[1]]
    assert evidence_of([timer | more for more in other]).never_ended == frozenset()
    assert len(evidence_of([timer]).never_ended) == 1


@pytest.mark.parametrize(("cell", "timeout_ms"), [({"session_timeout_ms": 5}, 5), ({}, EARLIER_TIMEOUT_MS)])
def test_the_time_out_is_that_of_the_run(cell: dict[str, int], timeout_ms: int) -> None:
    assert evidence_of([], cell=cell).timeout_ms == timeout_ms
