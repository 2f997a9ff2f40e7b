"""Compares the positions in Spark's checkpoint with the offsets that the input still has.

Retention deletes records that were not read yet, and a topic that lost its end has fewer records than the checkpoint
has read. Spark's source notices the first case only in a task, and does not give the range.

Promise: a start whose next batch cannot read all of its records is refused with the exact ranges. An accepted loss
moves the positions over the ranges, and over nothing else: the two newest entries of Spark's offset log are rewritten,
each atomically. The query then goes on with the first record that is left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from oncebench.delivery.stores.choose import Place, store_of
from oncebench.jobs.checkpoint import begin_of_first_batch, last_batch, offsets_in, open_batch, split_last, text_of

Offsets = Mapping[str, int]


@dataclass(frozen=True)
class Position:
    """Where the query goes on.

    Attributes:
        starts: partition -> offset of the first record that is not read yet.
        ends: partition -> end of the open batch; equal to `starts` if no batch is open.
    """

    starts: Offsets
    ends: Offsets


@dataclass(frozen=True)
class Range:
    """Records of one partition that are gone: `first` to `end` - 1. `why` completes a sentence."""

    partition: str
    first: int
    end: int
    why: str

    def __str__(self) -> str:
        return f"input/{self.partition}:{self.first}..{self.end - 1}"


def position(checkpoint: Place, topic: str) -> Position | None:
    """Returns where the query goes on; None if it has never planned a batch.

    Raises:
        RefusedStart: an entry of Spark's offset log is damaged.
    """
    newest = last_batch(checkpoint)
    first = begin_of_first_batch(checkpoint, topic)
    if newest < 0:
        return None if first is None else Position(first, first)
    ends = offsets_in(checkpoint, newest, topic)
    if open_batch(checkpoint) is None:
        return Position(ends, ends)
    before = (first or {}) if newest == 0 else offsets_in(checkpoint, newest - 1, topic)
    return Position({**dict.fromkeys(ends, 0), **before}, ends)  # Spark reads a new partition from offset 0


def lost(at: Position, there: Mapping[str, tuple[int, int]]) -> list[Range]:
    """Returns the ranges that the query would need and the topic does not have.

    Args:
        at: where the query goes on.
        there: partition -> (beginning, end) of the records in the topic.
    """
    found = []
    for partition in sorted(at.ends, key=int):
        start, end = at.starts[partition], at.ends[partition]
        if partition not in there:
            found.append(Range(partition, 0, end, "the topic has no such partition any more"))
            continue
        beginning, last = there[partition]
        if start < beginning:
            found.append(Range(partition, start, beginning, f"it begins at {beginning} now, and they were not read"))
        if last < end:
            found.append(Range(partition, last, end, f"it ends at {last} now"))
    for partition in sorted(there.keys() - at.ends.keys(), key=int):
        if there[partition][0] > 0:  # Spark reads a new partition from offset 0
            found.append(Range(partition, 0, there[partition][0], "the partition was added, and they were not read"))
    return found


def moved(at: Position, there: Mapping[str, tuple[int, int]]) -> Position:
    """Returns the position without the lost ranges.

    An added partition begins with its first record.
    """
    added = {p: beginning for p, (beginning, _) in there.items() if p not in at.ends and beginning > 0}
    starts = {p: min(max(start, there[p][0]), there[p][1]) for p, start in at.starts.items() if p in there}
    ends = {p: min(max(end, starts[p]), there[p][1]) for p, end in at.ends.items() if p in there}
    return Position({**starts, **added}, {**ends, **added})


def rewound(at: Position, cuts: list[Range]) -> Position:
    """Returns the position at which the new records of cut partitions begin."""
    first = {each.partition: each.first for each in cuts}
    starts, ends = ({p: min(v, first.get(p, v)) for p, v in part.items()} for part in (at.starts, at.ends))
    return Position(starts, ends)


def from_the_beginning(at: Position, there: Mapping[str, tuple[int, int]]) -> Position:
    """Returns another topic's position: its beginning. An open batch gets no records."""
    starts = {p: there[p][0] for p in at.ends if p in there}
    return Position(starts, starts)


def move(checkpoint: Place, topic: str, to: Position) -> None:
    """Rewrites the end of the newest batch in Spark's offset log, and of the one before if open."""
    newest = last_batch(checkpoint)
    if newest < 0:
        _rewrite(checkpoint, "sources/0", "0", topic, to.starts)
        return
    if open_batch(checkpoint) is not None:
        before = ("sources/0", "0") if newest == 0 else ("offsets", str(newest - 1))
        _rewrite(checkpoint, *before, topic, to.starts)
    _rewrite(checkpoint, "offsets", str(newest), topic, to.ends)


def _rewrite(checkpoint: Place, folder: str, name: str, topic: str, offsets: Offsets) -> None:
    """Replaces the offset in one of Spark's entries; removes its old checksums first."""
    head, source, last = split_last(text_of(checkpoint, f"{folder}/{name}"))
    moved = json.dumps({**json.loads(last or "{}"), topic: dict(offsets)}, separators=(",", ":"))
    if moved == last:
        return
    store = store_of(checkpoint).below(folder)
    for checksum in (f".{name}.crc", f"{name}.crc"):  # of Hadoop's file system, and of Spark 4.1
        store.delete(checksum)
    store.put(name, f"{head}{source}{moved}".encode())
