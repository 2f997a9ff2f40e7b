"""Joins two reads of one topic: the final read, and the observer's read during the run.

Promise: one row per position, for any order of rows in the files. Positions whose content the reads do not agree on are
listed (INCO), with the contents.

What can go wrong: one read has two contents at a position. Then the first one in the file counts, the other counts
depend on that choice, and INCO reports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from oncebench.audit.anomalies import EXAMPLES, Anomaly
from oncebench.audit.python.model import Ints, one_array
from oncebench.audit.python.outputs import Bools
from oncebench.record.streams import Stream
from oncebench.record.validation import RecordError

# For sinks without a log: the final read covers every position.
EVERYWHERE: Mapping[int, int] = MappingProxyType({})
OFFSET_BITS = 44  # 17 million million offsets
PARTITION_BITS = 63 - OFFSET_BITS


@dataclass(frozen=True)
class Reads:
    """The `finals` rows of the final read by position, then those the observer alone saw.

    Attributes:
        seen_us: epoch µs of the first sighting; 0 if the observer did not see the row.
        append_ms: the record's time.
        disputed: the contents at the positions of the examples of `inconsistent`: partition, offset, key and value.
            Those of the final read come first, in file order, then those of the observer, by time.
    """

    partition: Ints
    offset: Ints
    key: pa.Array
    value: pa.Array
    finals: int
    seen_us: Ints
    append_ms: Ints
    inconsistent: Anomaly
    disputed: pa.Table


@dataclass(frozen=True)
class _Sorted:
    """One read by packed `position`; `disputed` positions have two contents."""

    position: Ints
    key: pa.Array
    value: pa.Array
    rows: Ints
    disputed: Ints


def position_of(partition: npt.NDArray[np.integer], offset: Ints) -> Ints:
    """Packs (partition, offset) into a sortable integer; `RecordError` if impossible."""
    for name, numbers, bits in (("partition", partition, PARTITION_BITS), ("offset", offset, OFFSET_BITS)):
        impossible = numbers[(numbers < 0) | (numbers >= 1 << bits)]
        if len(impossible):
            raise RecordError(
                f"the record has a row at {name} {impossible[0]}, which must be 0 to 2**{bits} - 1. The record is "
                "damaged: take the folder from a sound copy, or run the cell again"
            )
    return (partition.astype(np.int64) << OFFSET_BITS) | offset


def unpack(position: int) -> tuple[int, int]:
    """Returns the (partition, offset) of a packed position."""
    return position >> OFFSET_BITS, position & ((1 << OFFSET_BITS) - 1)


def join_reads(final: Stream, observed: Stream, read_ends: Mapping[int, int]) -> Reads:
    """Joins two reads by position.

    A row has vanished (INCO) if the observer saw it below the end of a complete final read that does not hold it.

    Args:
        read_ends: the end of the final read per partition, or EVERYWHERE.
    """
    last = _sorted(final.table, None)
    seen = _sorted(observed.table, observed.table["seen_us"].to_numpy())
    finals = len(last.position)
    place = np.searchsorted(last.position, seen.position)
    found = np.zeros(len(place), dtype=bool)
    inside = place < finals
    found[inside] = last.position[place[inside]] == seen.position[inside]

    both = pa.array(place[found])
    rows = pa.array(np.flatnonzero(found))
    same = _same(last.key.take(both), seen.key.take(rows)) & _same(last.value.take(both), seen.value.take(rows))
    only = np.flatnonzero(~found)
    missing = 1 << OFFSET_BITS if read_ends is EVERYWHERE else 0
    ends = np.array([read_ends.get(int(p) >> OFFSET_BITS, missing) for p in seen.position[only]], dtype=np.int64)
    gone = only[(seen.position[only] & ((1 << OFFSET_BITS) - 1)) < ends] if final.complete else only[:0]

    seen_us = observed.table["seen_us"].to_numpy()[seen.rows]
    append_ms = observed.table["append_ms"].to_numpy()[seen.rows]
    position = np.concatenate((last.position, seen.position[only]))
    all_seen = np.concatenate((np.zeros(finals, np.int64), seen_us[only]))
    all_append = np.concatenate((final.table["timestamp_ms"].to_numpy()[last.rows], append_ms[only]))
    all_seen[place[found]] = seen_us[found]
    inconsistent = _inconsistent(
        {
            "changed": seen.position[found][~same],
            "vanished": seen.position[gone],
            "final-read-twice": last.disputed,
            "observed-twice": seen.disputed,
        }
    )
    return Reads(
        partition=position >> OFFSET_BITS,
        offset=position & ((1 << OFFSET_BITS) - 1),
        key=pa.concat_arrays([last.key, seen.key.take(pa.array(only))]),
        value=pa.concat_arrays([last.value, seen.value.take(pa.array(only))]),
        finals=finals,
        seen_us=all_seen,
        append_ms=all_append,
        inconsistent=inconsistent,
        disputed=_contents_at([example["row"] for example in inconsistent.examples], final.table, observed.table),
    )


def _contents_at(places: Sequence[Sequence[int]], final: pa.Table, observed: pa.Table) -> pa.Table:
    """Returns what both reads hold at these [partition, offset]."""
    wanted = [(partition << OFFSET_BITS) | offset for partition, offset in places]
    last, seen = (read.filter(pa.array(_is_at(wanted, read))) for read in (final, observed))
    seen = seen.take(pa.array(np.argsort(seen["seen_us"].to_numpy(), kind="stable")))
    return pa.concat_tables(read.select(["partition", "offset", "key", "value"]) for read in (last, seen))


def _is_at(wanted: list[int], read: pa.Table) -> Bools:
    if not wanted:
        return np.zeros(read.num_rows, dtype=bool)
    return np.isin(position_of(read["partition"].to_numpy(), read["offset"].to_numpy()), wanted)


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


def _sorted(table: pa.Table, then_by: Ints | None) -> _Sorted:
    position = position_of(table["partition"].to_numpy(), table["offset"].to_numpy())
    rows = np.argsort(position, kind="stable") if then_by is None else np.lexsort((then_by, position))
    key, value = one_array(table["key"]), one_array(table["value"])
    if np.any(rows[1:] < rows[:-1]):
        key, value = key.take(pa.array(rows)), value.take(pa.array(rows))
    position = position[rows]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = position[1:] != position[:-1]
    again = np.flatnonzero(~new)
    first = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))[again]
    differ = ~(_same_rows(key, again, first) & _same_rows(value, again, first))
    kept = np.flatnonzero(new)
    if len(again):
        key, value = key.take(pa.array(kept)), value.take(pa.array(kept))
    return _Sorted(position[kept], key, value, rows[kept], position[again][differ])


def _same_rows(column: pa.Array, left: Ints, right: Ints) -> Bools:
    return _same(column.take(pa.array(left)), column.take(pa.array(right)))


def _same(left: pa.Array, right: pa.Array) -> Bools:
    """Compares byte for byte; null equals null only."""
    equal = pc.or_(pc.fill_null(pc.equal(left, right), False), pc.and_(pc.is_null(left), pc.is_null(right)))
    same: Bools = equal.to_numpy(zero_copy_only=False)
    return same
