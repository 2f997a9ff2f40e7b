"""The memory of an audit does not grow with the length of records."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from oncebench.record import FINAL, INPUT, OBSERVED, QUARANTINE
from oncebench.record.streams import StreamWriter, read_stream
from tools.audit_cost import AUDITORS, measured, write_record

SESSIONS = 40
EVENT_BYTES = 60_000  # 240 MB in all
FOREIGN, FOREIGN_BYTES = 120, 1_000_000  # in each of four files: 120 MB of keys or values
MARGIN_BYTES = 140_000_000  # mapped pages (40 MB), and a few pieces that are read at a time
SCHEMAS = {"input": INPUT, "final": FINAL, "observed": OBSERVED, "quarantine": QUARANTINE}


@pytest.fixture(scope="module")
def long_events() -> Iterator[Path]:
    """Two runs, one with long events, in a folder that does not stay: it is large."""
    with tempfile.TemporaryDirectory(prefix="oncebench-memory-") as place:
        write_record(Path(place, "a"), SESSIONS)
        write_record(Path(place, "b"), SESSIONS, EVENT_BYTES)
        yield Path(place)


@pytest.fixture(scope="module")
def long_foreign_records() -> Iterator[Path]:
    """The same, with records of others."""
    with tempfile.TemporaryDirectory(prefix="oncebench-memory-") as place:
        for name, size in (("a", 80), ("b", FOREIGN_BYTES)):
            write_record(Path(place, name), SESSIONS)
            add_foreign_records(Path(place, name), size)
        yield Path(place)


def add_foreign_records(folder: Path, size: int) -> None:
    """Adds invalid events with long keys, their copies, and rows that cannot be read.

    Every other copy is cut.
    """
    for name, schema in SCHEMAS.items():
        path = folder / f"{name}.arrow"
        stored = read_stream(path, schema).table
        path.rename(folder / "before")
        with StreamWriter(path, schema) as writer:
            for batch in stored.to_batches():
                writer.append(batch.to_pydict())
            for first in range(0, FOREIGN, 20):
                writer.append(foreign(path.stem, schema, range(first, first + 20), size))
        (folder / "before").unlink()
    ends = json.loads((folder / "ends.json").read_text())
    ends["output"]["0"] = {"lso": 10**6, "hw": 10**6}
    (folder / "ends.json").write_text(json.dumps(ends))


def foreign(stream: str, schema: pa.Schema, numbers: range, size: int) -> dict[str, Any]:
    """Returns records beyond those of the run."""
    copies = stream == "quarantine"
    lengths = [size // 2 if copies and number % 2 else size for number in numbers]
    long = [b"%08d" % number * (length // 8) for number, length in zip(numbers, lengths, strict=True)]
    short = [b"%d" % number for number in numbers]
    of_input = copies or stream == "input"
    cut = [size if number % 2 else None for number in numbers]
    columns: dict[str, Any] = {
        "partition": [0] * len(numbers), "offset": [10**5 + number for number in numbers],
        "key": long if of_input else short, "value": short if of_input else long,
        "timestamp_ms": [1] * len(numbers), "append_ms": [1] * len(numbers), "seen_us": [1] * len(numbers),
        "reason": ["not-json"] * len(numbers), "source_partition": [0] * len(numbers),
        "source_offset": [10**5 + number for number in numbers], "key_bytes": cut, "value_bytes": [None] * len(numbers),
    }  # fmt: skip
    return {name: columns[name] for name in schema.names}


def grown(folder: Path, auditor: str) -> tuple[int, int]:
    """Returns how much more memory the long records take than the short ones, and the findings."""
    (short, _, _, before), (long, _, _, after) = (measured(AUDITORS[auditor], folder / name) for name in ("a", "b"))
    assert short == long
    return after - before, long


@pytest.mark.parametrize("auditor", ["first auditor", "second auditor"])
def test_long_events_take_no_more_memory_than_short_ones(long_events: Path, auditor: str) -> None:
    more, found = grown(long_events, auditor)
    assert found == 0
    assert more < MARGIN_BYTES


@pytest.mark.parametrize("auditor", ["first auditor", "second auditor"])
def test_long_records_of_others_take_no_more_memory_than_short_ones(long_foreign_records: Path, auditor: str) -> None:
    more, found = grown(long_foreign_records, auditor)
    assert found == FOREIGN  # the rows; the copies are right
    assert more < MARGIN_BYTES
