"""What the model of the expected output needs of batches, quarantine and time-out.

Promise: only positions and small texts are kept, never the values of all copies. Without evidence the model knows one
batch and no time-outs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from oncebench.audit.python.records import OFFSET_BITS, PARTITION_BITS, PIECE_ROWS, pieces
from oncebench.record import Record
from oncebench.record.schema import BATCH

NEVER_ENDED = "never-ended"  # quarantine reason of a session that left the state unfinished
# The time-out of every run whose cell.json does not have it.
EARLIER_TIMEOUT_MS = 600_000


@dataclass(frozen=True)
class Evidence:
    """What a record says beyond the input topic.

    Attributes:
        batch_ends: the end offsets of the batches by partition, in the order of the batches.
        copied: the packed positions of the records in quarantine.
        never_ended: (key, text) of the sessions in quarantine that left the state unfinished; see `held_text`.
        timeout_ms: how long a session without a new event stays in the state at least.
    """

    batch_ends: Sequence[Mapping[int, int]] = ()
    copied: frozenset[int] = frozenset()
    never_ended: frozenset[tuple[bytes | None, bytes | None]] = frozenset()
    timeout_ms: int = EARLIER_TIMEOUT_MS

    @staticmethod
    def of(record: Record) -> Evidence:
        """Collects the evidence of a record."""
        copied: set[int] = set()
        never_ended: set[tuple[bytes | None, bytes | None]] = set()
        for _, batch in pieces(record.quarantine.table, PIECE_ROWS, record.quarantine.release):
            partitions, offsets = (batch[name].to_pylist() for name in ("source_partition", "source_offset"))
            copied |= {at for at in map(source_position, partitions, offsets) if at is not None}
            alone = pc.and_(pc.is_null(batch["source_partition"]), pc.is_null(batch["source_offset"]))
            of_timers = batch.filter(pc.and_(alone, pc.equal(batch["reason"], NEVER_ENDED)))
            texts = map(without_spaces, of_timers["value"].to_pylist())
            never_ended |= set(zip(of_timers["key"].to_pylist(), texts, strict=True))
        return Evidence(
            list(known_ends(record.progress.items).values()),
            frozenset(copied),
            frozenset(never_ended),
            record.cell.get("session_timeout_ms", EARLIER_TIMEOUT_MS),
        )


def source_position(partition: int | None, offset: int | None) -> int | None:
    """Returns the packed position that a copy names; None if it names none that is possible."""
    if partition is None or offset is None:
        return None
    possible = 0 <= partition < 1 << PARTITION_BITS and 0 <= offset < 1 << OFFSET_BITS
    return partition << OFFSET_BITS | offset if possible else None


def without_spaces(value: bytes | None) -> bytes | None:
    """Returns a JSON text in the spelling of `held_text`."""
    return None if value is None else value.replace(b" ", b"")


def held_text(held: Mapping[int, int]) -> bytes:
    """Returns the quarantine's text for a session with these values, by seq."""
    return b'{"values":{%s}}' % b",".join(b'"%d":%d' % each for each in sorted(held.items()))


def known_ends(progress: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[int, int]]:
    """Returns the end offsets of the batches, ordered by number.

    A number with two different ends belongs to two batches and is left out: the checkpoint was lost or rolled back in
    between.
    """
    ends: dict[int, Mapping[str, int]] = {}
    twice = set()
    for line in progress:
        if line["kind"] == BATCH and ends.setdefault(line["batch"], line["end_offsets"]) != line["end_offsets"]:
            twice.add(line["batch"])
    return {
        number: {int(partition): end for partition, end in ends[number].items()}
        for number in sorted(ends)
        if number not in twice
    }


NO_EVIDENCE = Evidence()
