"""The input: a generator that breaks its promise, foreign events, and the quarantine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oncebench.audit.anomalies import Anomaly
from oncebench.audit.python.audit import audit
from oncebench.record import QUARANTINE, Record
from oncebench.record.json_lines import Lines
from oncebench.record.streams import Stream
from tests.unit.audit.audit_world import (
    Sent,
    World,
    event,
    input_table,
    key_of,
    ledger_of,
    make_record,
    make_world,
    of_timer,
    quarantine_table,
    scheduled_us,
)

WORLD = make_world(4, 2)


def run(sent: list[Sent], world: World = WORLD, **parts: Any) -> Record:
    return replace(make_record(world), input=Stream(input_table(sent), complete=True), **parts)


def source(record: Record) -> Anomaly:
    return audit(record).anomalies["SRC"]


def test_an_acknowledged_event_that_is_not_there_is_SRC() -> None:
    found = source(run([*WORLD.sent[:57], *WORLD.sent[58:]]))
    assert (found.count, found.split) == (1, {"absent": 1, "twice": 0, "elsewhere": 0})
    gone = WORLD.sent[57]
    assert found.examples[0]["acknowledged_at"] == [gone.partition, gone.offset]
    assert found.examples[0]["session_key"] == (gone.key or b"").decode()


def test_an_acknowledged_event_that_is_there_twice_is_SRC() -> None:
    copy = replace(WORLD.sent[57], offset=1000)
    found = source(run([*WORLD.sent, copy]))
    assert (found.count, found.split) == (1, {"absent": 0, "twice": 1, "elsewhere": 0})


def test_an_event_at_another_position_than_acknowledged_is_SRC() -> None:
    sent = [replace(each, offset=1000) if at == 57 else each for at, each in enumerate(WORLD.sent)]
    found = source(run(sent))
    assert (found.count, found.split) == (1, {"absent": 0, "twice": 0, "elsewhere": 1})


def test_an_event_with_another_schedule_is_not_the_one_that_was_sent() -> None:
    sent = list(WORLD.sent)
    sent[57] = replace(sent[57], value=event(key_of(1), 14, 5, scheduled_us(1, 14) + 1))
    findings = audit(run(sent))
    assert findings.anomalies["SRC"].split["absent"] == 1
    assert findings.events["foreign"] == 1


def test_an_event_whose_acknowledgement_is_unknown_may_be_there_or_not() -> None:
    ledger = ledger_of(WORLD)
    acked = ledger.acked_us.copy()
    acked[:3] = [0, 0, -7]
    offset = ledger.offset.copy()
    offset[:3] = -1
    unsure = replace(ledger, acked_us=acked, offset=offset)
    assert source(run(list(WORLD.sent), ledger=unsure)).count == 0
    gone = [each for each in WORLD.sent if (each.key, each.offset) != (key_of(0).encode(), 0)]
    assert source(run(gone, ledger=unsure)).count == 0


def test_an_acknowledgement_without_a_position_is_found_by_its_identity() -> None:
    ledger = ledger_of(WORLD)
    nowhere = replace(ledger, offset=np.full_like(ledger.offset, -1), partition=np.full_like(ledger.partition, -1))
    assert audit(run(list(WORLD.sent), ledger=nowhere)).counts() == {}
    assert source(run(list(WORLD.sent[1:]), ledger=nowhere)).count == 1


def test_events_that_the_generator_did_not_attempt_are_foreign() -> None:
    strangers = [
        Sent(0, 1000, b"mine", event("mine", 0, 1, 2)),
        Sent(0, 1001, b"mine", b"not json"),
        Sent(1, 1000, None, None),
        Sent(1, 1001, f"{key_of(0)}0".encode(), event(f"{key_of(0)}0", 0, 1, 2)),
    ]
    findings = audit(run([*WORLD.sent, *strangers], timeline=Lines(())))
    assert findings.counts() == {}
    assert findings.events["foreign"] == 4
    assert findings.events["invalid"] == 2
    assert findings.invalid == {"null-key": 1, "not-json": 1}
    assert findings.events["in_topic"] == 404


def test_a_foreign_event_is_not_mistaken_for_a_planned_one() -> None:
    for session, seq in ((0, 0), (0, 1), (1, 7), (3, 99)):
        stranger = Sent(0, 1000, b"mine", event("mine", seq, 1, scheduled_us(session, seq)))
        findings = audit(run([*WORLD.sent, stranger]))
        assert (findings.counts(), findings.events["foreign"]) == ({}, 1)


def test_a_planned_event_that_was_never_attempted_is_foreign() -> None:
    ledger = ledger_of(WORLD)
    sent_us, acked_us = ledger.sent_us.copy(), ledger.acked_us.copy()
    sent_us[0] = acked_us[0] = 0
    findings = audit(run(list(WORLD.sent), ledger=replace(ledger, sent_us=sent_us, acked_us=acked_us)))
    assert findings.events["foreign"] == 1
    assert findings.counts() == {}


def test_a_users_own_topic_without_any_plan_is_all_foreign() -> None:
    world = make_world(2, 2)
    ledger = ledger_of(world)
    none = replace(ledger, **{name: column[:0] for name, column in vars(ledger).items()})
    record = make_record(world)
    findings = audit(replace(record, ledger=none, plan=replace(record.plan, sessions=0, events=0)))
    assert findings.counts() == {}
    assert findings.events["foreign"] == 200


def test_sessions_count_as_acknowledged_when_all_their_events_are() -> None:
    ledger = ledger_of(WORLD)
    acked = ledger.acked_us.copy()
    acked[150] = 0
    findings = audit(run(list(WORLD.sent), ledger=replace(ledger, acked_us=acked)))
    assert findings.sessions["acknowledged"] == 3


BROKEN = [
    Sent(0, 1000, key_of(0).encode(), b"{"),
    Sent(0, 1001, key_of(0).encode(), event(key_of(0), 7, 1, scheduled_us(0, 7))),
    Sent(1, 1000, None, b"x"),
]


def entry(sent: Sent, reason: str, **changes: Any) -> dict[str, Any]:
    return {
        "key": sent.key,
        "value": sent.value,
        "reason": reason,
        "source_partition": sent.partition,
        "source_offset": sent.offset,
        **changes,
    }


GOOD = [entry(BROKEN[0], "not-json"), entry(BROKEN[1], "after-end"), entry(BROKEN[2], "null-key")]


def quarantined(entries: list[dict[str, Any]], **parts: Any) -> Record:
    world = replace(WORLD, sent=(*WORLD.sent, *BROKEN))
    record = make_record(WORLD)
    sent_twice = input_table(list(world.sent))
    ledger = record.ledger
    # session 0's seq 7 is in the topic twice; without an acknowledgement this is no load fault
    acked = np.where((ledger.session == 0) & (ledger.seq == 7), 0, ledger.acked_us)
    everything = {
        "input": Stream(sent_twice, complete=True),
        "ledger": replace(ledger, acked_us=acked),
        "quarantine": Stream(quarantine_table(entries), complete=True),
    }
    return replace(record, **{**everything, **parts})


def test_a_quarantine_with_every_invalid_event_is_right() -> None:
    findings = audit(quarantined(GOOD))
    assert findings.counts() == {}
    assert findings.invalid == {"not-json": 1, "after-end": 1, "null-key": 1}


def test_copies_in_quarantine_are_allowed() -> None:
    assert audit(quarantined([*GOOD, *GOOD, GOOD[1]])).counts() == {}


def test_an_invalid_event_missing_in_quarantine_is_QUAR() -> None:
    findings = audit(quarantined(GOOD[1:]))
    assert findings.counts() == {"QUAR": 1}
    assert findings.anomalies["QUAR"].examples == ({"kind": "missing", "input": [[0, 1000]], "reason": "not-json"},)


def test_a_valid_event_in_quarantine_is_QUAR() -> None:
    findings = audit(quarantined([*GOOD, entry(WORLD.sent[8], "not-json"), entry(WORLD.sent[8], "not-json")]))
    assert findings.counts() == {"QUAR": 1}
    assert findings.anomalies["QUAR"].split == {"missing": 0, "unasked": 1, "changed": 0}


@pytest.mark.parametrize("place", [(None, 5), (0, None), (0, 77_777), (9, 0), (-1, 5), (2**30, 5), (0, 2**60)])
def test_a_quarantined_record_from_nowhere_is_QUAR(place: tuple[int | None, int | None]) -> None:
    nowhere = entry(BROKEN[0], "not-json", source_partition=place[0], source_offset=place[1])
    findings = audit(quarantined([*GOOD, nowhere]))
    assert findings.counts() == {"QUAR": 1}
    assert findings.anomalies["QUAR"].split["unasked"] == 1


def test_a_session_that_never_ended_is_in_quarantine_without_a_position() -> None:
    world = make_world(4, 2, unfinished=1)
    record_of_timer = of_timer(world, 3)
    strange = [
        {"reason": "not-json"},
        {"key": key_of(2).encode()},
        {"key": b"\xff"},
        {"key": None},
        {"source_offset": 5},
        {"value": b'{"values": {"0": 1}}'},
        {"value": None},
    ]
    for change, faults in [({}, 0)] + [(change, 1) for change in strange]:
        entries = quarantine_table([record_of_timer, record_of_timer | change])
        found = audit(make_record(world, quarantine=Stream(entries, complete=True)))
        assert found.anomalies["QUAR"].split["unasked"] == found.anomalies["QUAR"].count == faults, change


@pytest.mark.parametrize("change", [{"value": b"{ "}, {"value": None}, {"key": None}])
def test_a_quarantined_record_with_other_bytes_is_QUAR(change: dict[str, Any]) -> None:
    findings = audit(quarantined([*GOOD, {**GOOD[0], **change}]))
    assert findings.counts() == {"QUAR": 1}
    assert findings.anomalies["QUAR"].split["changed"] == 1


def test_another_quarantine_reason_is_counted_and_no_anomaly() -> None:
    findings = audit(quarantined([{**GOOD[0], "reason": "too-large"}, *GOOD[1:]]))
    assert findings.counts() == {}
    assert findings.events["quarantined_for_another_reason"] == 1


def test_quarantine_is_judged_only_when_the_run_was_drained() -> None:
    assert audit(quarantined([], timeline=Lines(()))).counts() == {}
    assert audit(quarantined([])).counts() == {"QUAR": 3}


def test_a_quarantine_that_was_not_read_is_incomplete() -> None:
    findings = audit(quarantined([], quarantine=Stream(QUARANTINE.empty_table(), complete=False)))
    assert not findings.complete["quarantine"]
