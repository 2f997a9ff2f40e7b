"""The right answer of the workload `records`: one row for each event, with the record in it.

An event is a JSON object of `id`, `load`, `n`, `scheduled_at` and `record`, and nothing else. The row of an event has
the id as `session_key`, j 0, one event, the number of bytes of the record, the first 60 bits of its SHA-256, and
`scheduled_at`. It also has the record itself, whose bytes must have that number and that digest (`outputs`).

Promise: the answer depends on the input alone. There is no clock, no Spark, and no code shared with the pipeline. Of
several events with one id the first one counts: by partition, then by offset. What can go wrong: a foreign record is in
the topic. It is invalid, and the query stops at it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from oncebench.audit.python.events import CODE, MAX_SCHEDULED, SEQS, parse_json
from oncebench.audit.python.model import Events, Expected, Invalid, Parts
from oncebench.audit.python.outputs import digest_of
from oncebench.audit.python.records import PIECE_ROWS, in_position_order, offsets_of, partitions_of, pieces
from oncebench.record import Record

FIELDS = {"id", "load", "n", "scheduled_at", "record"}
MOST_EVENTS = 10**10  # the number of a hundred has eight digits
_LOAD = re.compile("[0-9a-f]{1,16}")


@dataclass
class _Read:
    """The valid events so far, in the order of the file."""

    row: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    seq: list[int] = field(default_factory=list)
    scheduled_us: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    digest: list[int] = field(default_factory=list)

    def add(self, row: int, value: bytes | None) -> None:
        """Adds the event in a value, if it is valid."""
        event = _event(value)
        if event is None:
            return
        name, load, number, scheduled_us, text = event
        record = text.encode()
        self.row.append(row)
        self.name.append(name)
        self.key.append(f"{load}-{number // SEQS:08d}")
        self.seq.append(number % SEQS)
        self.scheduled_us.append(scheduled_us)
        self.size.append(len(record))
        self.digest.append(digest_of(record))


def expected_records(record: Record) -> Expected:
    """Returns the expected rows of a record of this workload."""
    table = record.input.table
    read = _Read()
    for piece, batch in pieces(table.select(["value"]), PIECE_ROWS, record.input.release):
        for row, value in enumerate(batch["value"].to_pylist(), piece.start):
            read.add(row, value)
    position, order = in_position_order(table)
    # [rows of the table] the place in `read`; -1 for an invalid event
    place = np.full(table.num_rows, -1, np.int64)
    place[read.row] = np.arange(len(read.row))
    place = place[order]
    refused = np.flatnonzero(place < 0)
    valid = place >= 0
    at, place = position[valid], place[valid]
    names, keys = [read.name[each] for each in place.tolist()], [read.key[each] for each in place.tolist()]
    number = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    seq, scheduled_us, size, digest = (
        np.array(column, np.int64)[place] for column in (read.seq, read.scheduled_us, read.size, read.digest)
    )
    first_of = {name: at for at, name in reversed(list(enumerate(names)))}
    first = np.array(sorted(first_of.values()), np.int64)
    row_of = {names[each]: row for row, each in enumerate(first.tolist())}
    return Expected(
        session_keys=[names[each] for each in first.tolist()],
        key=np.arange(len(first)),
        total=size[first][:, None],
        checksum=digest[first][:, None],
        ended_at=scheduled_us[first][:, None],
        last_partition=partitions_of(at[first]),
        last_offset=offsets_of(at[first]),
        events=Events(at, np.array([number[key] for key in keys], np.int64), seq, scheduled_us),
        invalid=Invalid(position[refused], np.full(len(refused), CODE["wrong-fields"], np.int8)),
        keys=list(number),
        parts=Parts(
            [names[each] for each in first.tolist()],
            np.array([row_of[name] for name in names], np.int64),
            np.ones((len(first), 1), np.int64),
            late=None,
        ),
        with_record=True,
    )


def _event(value: bytes | None) -> tuple[str, str, int, int, str] | None:
    """Returns id, load, n, scheduled_at and record of an event; None if it is not valid."""
    try:
        event = parse_json(value or b"")
    except ValueError:
        return None
    if type(event) is not dict or event.keys() != FIELDS:
        return None
    name, load, number, scheduled_us, text = (event[each] for each in ("id", "load", "n", "scheduled_at", "record"))
    right = (
        all(type(each) is str and _is_utf8(each) for each in (name, load, text))
        and all(type(each) is int for each in (number, scheduled_us))
        and _LOAD.fullmatch(load) is not None
        and 0 <= number < MOST_EVENTS
        and 0 <= scheduled_us <= MAX_SCHEDULED
    )
    return (name, load, number, scheduled_us, text) if right else None


def _is_utf8(text: str) -> bool:
    return text.encode("utf-8", "replace").decode("utf-8") == text
