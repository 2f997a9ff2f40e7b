"""Joins two reads of one topic: the final read, and the observer's read during the run.

Promise: one row per position, for any order of rows in the files. Positions whose content the reads do not agree on are
listed (INCO), with the contents.

What can go wrong: one read has two contents at a position. Then the first one in the file counts, the other counts
depend on that choice, and INCO reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from oncebench.audit.anomalies import EXAMPLES, Anomaly
from oncebench.audit.python.records import (
    OFFSET_BITS,
    Bools,
    Ints,
    by_size,
    contents,
    offsets_of,
    partitions_of,
    positions_in,
    same,
    sizes,
    unpack,
)
from oncebench.record.streams import Stream

# For sinks without a log: the final read covers every position.
EVERYWHERE: Mapping[int, int] = MappingProxyType({})
_CONTENTS = ("key", "value")
STEP = 65_536  # rows whose contents are compared at a time, if they are short


@dataclass(frozen=True)
class Reads:
    """The `finals` rows of the final read by position, then those the observer alone saw.

    Attributes:
        records: keys and values of the final read in file order, then, if `rows` needs any, those of the observer.
        rows: where each row is in `records`.
        seen_us: epoch µs of the first sighting; 0 if the observer did not see the row.
        append_ms: the record's time.
        disputed: the contents at the positions of the examples of `inconsistent`: partition, offset, key and value.
            Those of the final read come first, in file order, then those of the observer, by time.
        release: gives back the memory of records that were read.
    """

    partition: Ints
    offset: Ints
    records: pa.Table
    rows: Ints
    finals: int
    seen_us: Ints
    append_ms: Ints
    inconsistent: Anomaly
    disputed: pa.Table
    release: Callable[[], None]


@dataclass(frozen=True)
class _Sorted:
    """One read, sorted by packed position, with the rows in its file.

    Positions in `disputed` have two contents.
    """

    position: Ints
    rows: Ints
    disputed: Ints


def join_reads(final: Stream, observed: Stream, read_ends: Mapping[int, int]) -> Reads:
    """Joins two reads by position.

    A row has vanished (INCO) if the observer saw it below the end of a complete final read that does not hold it.

    Args:
        read_ends: the end of the final read per partition, or EVERYWHERE.
    """

    def release() -> None:
        final.release()
        observed.release()

    last = _sorted(final, None)
    seen = _sorted(observed, observed.table["seen_us"].to_numpy())
    finals = len(last.position)
    place = np.searchsorted(last.position, seen.position)
    found = np.zeros(len(place), dtype=bool)
    inside = place < finals
    found[inside] = last.position[place[inside]] == seen.position[inside]

    equal = _equal_rows(final.table, last.rows[place[found]], observed.table, seen.rows[found], release)
    only = np.flatnonzero(~found)
    missing = 1 << OFFSET_BITS if read_ends is EVERYWHERE else 0
    ends = np.array([read_ends.get(partition, missing) for partition in partitions_of(seen.position[only]).tolist()],
                    dtype=np.int64)  # fmt: skip
    gone = only[offsets_of(seen.position[only]) < ends] if final.complete else only[:0]

    seen_us = observed.table["seen_us"].to_numpy()[seen.rows]
    append_ms = observed.table["append_ms"].to_numpy()[seen.rows]
    position = np.concatenate((last.position, seen.position[only]))
    all_seen = np.concatenate((np.zeros(finals, np.int64), seen_us[only]))
    all_append = np.concatenate((final.table["timestamp_ms"].to_numpy()[last.rows], append_ms[only]))
    all_seen[place[found]] = seen_us[found]
    inconsistent = _inconsistent(
        {
            "changed": seen.position[found][~equal],
            "vanished": seen.position[gone],
            "final-read-twice": last.disputed,
            "observed-twice": seen.disputed,
        }
    )
    release()
    return Reads(
        partition=partitions_of(position),
        offset=offsets_of(position),
        records=pa.concat_tables(
            read.table.select(_CONTENTS) for read in ((final, observed) if len(only) else (final,))
        ),
        rows=np.concatenate((last.rows, final.table.num_rows + seen.rows[only])),
        finals=finals,
        seen_us=all_seen,
        append_ms=all_append,
        inconsistent=inconsistent,
        disputed=_contents_at([example["row"] for example in inconsistent.examples], final.table, observed.table),
        release=release,
    )


def _equal_rows(
    left: pa.Table, left_rows: Ints, right: pa.Table, right_rows: Ints, release: Callable[[], None]
) -> Bools:
    """Returns for each pair of rows, in order, whether their keys and values are the same."""
    equal = np.ones(len(left_rows), dtype=bool)
    order = np.argsort(left_rows, kind="stable")  # the rows of a file lie together
    for first in range(0, len(order), STEP):
        some = order[first : first + STEP]
        size = sum(
            sizes(read[name], rows[some])
            for read, rows in ((left, left_rows), (right, right_rows))
            for name in _CONTENTS
        )
        for piece in by_size(np.asarray(size)):
            pairs = some[piece]
            for name in _CONTENTS:
                equal[pairs] &= same(contents(left[name], left_rows[pairs]), contents(right[name], right_rows[pairs]))
            release()
    return equal


def _contents_at(places: Sequence[Sequence[int]], final: pa.Table, observed: pa.Table) -> pa.Table:
    """Returns what both reads hold at these [partition, offset]."""
    wanted = [(partition << OFFSET_BITS) | offset for partition, offset in places]
    last, seen = (read.filter(pa.array(_is_at(wanted, read))) for read in (final, observed))
    seen = seen.take(pa.array(np.argsort(seen["seen_us"].to_numpy(), kind="stable")))
    return pa.concat_tables(read.select(["partition", "offset", "key", "value"]) for read in (last, seen))


def _is_at(wanted: list[int], read: pa.Table) -> Bools:
    return np.isin(positions_in(read), wanted) if wanted else np.zeros(read.num_rows, dtype=bool)


def _inconsistent(kinds: dict[str, Ints]) -> Anomaly:
    split: dict[str, int] = {}
    examples: list[dict[str, Any]] = []
    counted: set[int] = set()
    for kind, positions in kinds.items():
        new = [position for position in np.unique(positions).tolist() if position not in counted]
        counted.update(new)
        split[kind] = len(new)
        examples += [{"row": list(unpack(position)), "kind": kind} for position in new[:EXAMPLES]]
    return Anomaly(len(counted), tuple(examples[:EXAMPLES]), split)


def _sorted(read: Stream, then_by: Ints | None) -> _Sorted:
    position = positions_in(read.table)
    rows = np.argsort(position, kind="stable") if then_by is None else np.lexsort((then_by, position))
    position = position[rows]
    new = np.ones(len(rows), dtype=bool)
    np.not_equal(position[1:], position[:-1], out=new[1:])
    again = np.flatnonzero(~new)
    first = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))[again]
    differ = ~_equal_rows(read.table, rows[again], read.table, rows[first], read.release)
    return _Sorted(position[new], rows[new], position[again][differ])
