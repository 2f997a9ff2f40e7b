"""What is recognised in a whole record batch is what `check` accepts, field by field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.session import encode
from pipeline.events import MAX_SCHEDULED_AT, MAX_VALUE_BYTES, Event, check
from pipeline.plain_events import plain_events


def recognised(records: list[tuple[bytes | None, bytes | None]]) -> list[Event | None]:
    keys, values = zip(*records, strict=True)
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    events, plain = plain_events(pa.record_batch({**columns, "offset": pa.array(range(len(records)))}))
    assert events["offset"].tolist() == list(range(len(records)))
    found = zip(events.tolist(), plain.tolist(), strict=True)
    return [Event(event[3], event[2], event[1]) if is_plain else None for event, is_plain in found]


def plain(key: str, seq: object, kind: str, value: object, at: object) -> bytes:
    text = f'{{"session_key":"{key}","seq":{seq},"type":"{kind}_event","value":{value},"scheduled_at":{at}}}'
    return text.encode("utf-8", "surrogatepass")


numbers = st.sampled_from([0, 1, 9, 10, 98, 99, 100, 999_999, 1_000_000, MAX_SCHEDULED_AT, MAX_SCHEDULED_AT + 1, "01"])
other = st.sampled_from(["-1", "1.0", "1e1", "true", "null", '"1"', " 1", "", "٣"])
keys = st.one_of(st.sampled_from(["a", "1-00000001", "", 'a"', "a\\", "é", "\x00", "a\n", "~ !"]), st.text(max_size=3))


records_of_any_kind = st.tuples(
    keys, keys, numbers | other, st.sampled_from(["start", "entry", "end", "no", ""]), numbers | other, numbers | other,
    st.integers(-1, 120), st.binary(max_size=2),
)  # fmt: skip


@given(st.lists(records_of_any_kind, min_size=1, max_size=8))
def test_a_plain_event_is_what_check_accepts(drawn: list[Any]) -> None:
    records: list[tuple[bytes | None, bytes | None]] = []
    for key, other_key, seq, kind, value, at, cut, more in drawn:
        text = plain(key, seq, kind, value, at)
        text = text if cut < 0 else text[:cut] + more + text[cut:]
        records.append(((key if len(more) < 2 else other_key).encode("utf-8", "surrogatepass"), text))
    for (key_bytes, text_bytes), found in zip(records, recognised(records), strict=True):
        assert found in (None, check(key_bytes, text_bytes))


def test_every_generated_event_is_plain() -> None:
    sessions, seqs = np.repeat(np.arange(3, dtype=np.uint32), 100), np.tile(np.arange(100, dtype=np.uint8), 3)
    keys, values = encode(1, sessions, seqs, np.arange(300) + 1_764_000_000_000_000)
    records = [(key.encode(), value.encode()) for key, value in zip(keys, values, strict=True)]
    assert recognised(records) == [check(*record) for record in records]  # type: ignore[arg-type]


ENTRY = plain("a", 1, "entry", 1, 1)
NOT_PLAIN: dict[str, tuple[bytes | None, bytes | None]] = {
    "null key": (None, ENTRY),
    "null value": (b"a", None),
    "another key": (b"b", ENTRY),
    "too long": (b"a" * MAX_VALUE_BYTES, plain("a" * MAX_VALUE_BYTES, 1, "entry", 1, 1)),
    "another type": (b"a", plain("a", 1, "start", 1, 1)),
    "line feed": (b"a", ENTRY + b"\n"),
}


@pytest.mark.parametrize("record", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_another_record_is_left_to_check(record: tuple[bytes | None, bytes | None]) -> None:
    assert recognised([record, (b"a", plain("a", 1, "entry", 2, 3))]) == [None, Event(1, 2, 3)]
