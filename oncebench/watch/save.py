"""Reads a topic to its end and keeps what it showed in the run folder.

Promise: the file carries the end mark only if the read was complete, so a reader that gave up can't be taken
for a topic that was empty. What can go wrong: see `ReadReport.note`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from oncebench.record import FINAL, QUARANTINE
from oncebench.record.streams import StreamWriter
from pipeline.sinks.reading import Headers, Reader, ReadReport, Rows

SETTLE_S = 90.0  # the default transaction time-out (60 s), the broker's clean-up interval (10 s), and some margin
IDLE_S = 30.0  # a broker on loopback that says nothing for so long is down


def save_topic(reader: Reader, path: Path, *, settle_s: float = SETTLE_S, idle_s: float = IDLE_S) -> ReadReport:
    """Write input.arrow or final.arrow: every record of [0, end)."""
    return _save(reader, path, FINAL, _record, settle_s, idle_s)


def save_quarantine(reader: Reader, path: Path, *, settle_s: float = SETTLE_S, idle_s: float = IDLE_S) -> ReadReport:
    """Write quarantine.arrow: every record of [0, end) with what its headers say; null where they say nothing."""
    return _save(reader, path, QUARANTINE, _quarantined, settle_s, idle_s)


def count_rows(reader: Reader, *, settle_s: float = 0.0, idle_s: float = IDLE_S) -> dict[int, int]:
    """Rows per partition that `reader` shows; with an uncommitted reader, what aborted work has left behind."""
    counts: Counter[int] = Counter()
    ends = reader.read_to_end(lambda rows: counts.update(rows.partition), settle_s=settle_s, idle_s=idle_s).ends
    return {number: counts[number] for number in ends}


def ends_json(
    output: ReadReport,
    source: ReadReport,
    uncommitted: Mapping[int, int] | None = None,
    leftovers: Sequence[str] = (),
) -> dict[str, Any]:
    """What ends.json says about the reads of the output and input topics.

    `leftovers`: what the output still holds of work that no commit will show.
    `uncommitted`: rows per output partition by an uncommitted reader; from it the audit tells what was exposed.
    """
    ends = output.ends_json()
    for number, count in (uncommitted or {}).items():
        ends[str(number)]["uncommitted"] = count
    return {
        "output": ends,
        "output_is_log": output.log,
        "leftovers": list(leftovers),
        "input": source.ends_json(),
        "waited_s": output.waited_s + source.waited_s,
        "final_complete": output.complete,
        "notes": [report.note for report in (output, source) if report.note],
    }


def _save(reader: Reader, path: Path, schema: pa.Schema, columns: Any, settle_s: float, idle_s: float) -> ReadReport:
    writer = StreamWriter(path, schema)
    complete = False
    try:
        report = reader.read_to_end(lambda rows: writer.append(columns(rows)), settle_s=settle_s, idle_s=idle_s)
        complete = report.complete
    finally:
        writer.close(complete=complete)
    return report


def _record(rows: Rows) -> Mapping[str, list[Any]]:
    return {
        "partition": rows.partition,
        "offset": rows.offset,
        "timestamp_ms": rows.append_ms,
        "key": rows.key,
        "value": rows.value,
    }


def _quarantined(rows: Rows) -> Mapping[str, list[Any]]:
    headers = [_last_headers(each) for each in rows.headers]
    return {
        **_record(rows),
        "reason": [_text(each.get("reason")) for each in headers],
        "source_partition": [_number(each.get("source_partition"), 31) for each in headers],
        "source_offset": [_number(each.get("source_offset"), 63) for each in headers],
    }


def _last_headers(headers: Headers) -> dict[str, bytes | None]:
    return dict(headers)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _number(value: bytes | None, bits: int) -> int | None:
    text = _text(value)
    if text is None or not (text.isascii() and text.isdigit()):
        return None
    number = int(text[:20])  # more digits than any offset has; a longer text must not cost time
    return number if number < 2**bits else None
