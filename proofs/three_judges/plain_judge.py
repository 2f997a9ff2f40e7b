"""A judge in a page: the rules of docs/anomalies.md, one event after the other.

It shares no code with an auditor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from proofs.three_judges.plain_pipeline import Copy, Event, Row, fields_of, rows_of, timer_text


def judge(
    batches: Sequence[Sequence[Event]], timeout_ms: int, rows: Sequence[Row], quarantine: Sequence[Copy]
) -> dict[str, int]:
    """Returns what is wrong: counts by the codes of the anomalies, without zeros."""
    copies = {(each.partition, each.offset) for each in quarantine if each.partition is not None}
    timers = {(each.key, each.value) for each in quarantine if each.partition is None}
    expected: dict[tuple[str, int], Row] = {}
    invalid: dict[tuple[int | None, int | None], tuple[bytes, bytes | None]] = {}
    unfinished: set[tuple[bytes, bytes]] = set()
    sessions: dict[bytes, dict[int, dict[str, Any]]] = {}
    newest_ms: dict[bytes, int] = {}
    for event in (each for batch in batches for each in sorted(batch, key=lambda one: (one.partition, one.offset))):
        fields, key, position = fields_of(event), event.key, (event.partition, event.offset)
        if isinstance(fields, str):
            invalid[position] = event.key, event.value
            continue
        session = sessions.setdefault(key, {})
        paused = event.time_ms - newest_ms.get(key, event.time_ms) >= timeout_ms
        if paused and position not in copies and (len(session) == 100 or (key, timer_text(session)) in timers):
            unfinished |= {(key, timer_text(session))} if len(session) < 100 else set()
            session = sessions[key] = {}
        newest_ms[key] = max(event.time_ms, newest_ms.get(key, 0))
        if fields["seq"] in session:
            invalid[position] = event.key, event.value
            continue
        session[fields["seq"]] = fields
        if len(session) == 100:
            expected = {row[:2]: row for row in rows_of(key, session)} | expected
    unfinished |= {(key, timer_text(session)) for key, session in sessions.items() if len(session) < 100}
    seen = Counter(row[:2] for row in rows)
    counts = {
        "LOSS": len(expected.keys() - seen.keys()),
        "DUP": sum(number - 1 for number in seen.values()),
        "PHAN": len(seen.keys() - expected.keys()),
        "CORR": sum(row[:2] in expected and row != expected[row[:2]] for row in rows),
        "QUAR.missing": len(invalid.keys() - copies),
        "QUAR.unasked": len(copies - invalid.keys())
        + sum(each.partition is None and (each.key, each.value) not in unfinished for each in quarantine),
        "QUAR.changed": len({each[1:3] for each in quarantine if invalid.get(each[1:3], each[3:]) != each[3:]}),
    }
    return {code: number for code, number in counts.items() if number}
