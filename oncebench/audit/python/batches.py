"""Anomalies of whole batches: rows missing after a reported commit, and visibility in parts.

Promise: a row belongs to the batch that read the last event of its session. That batch makes the session's rows.
A batch read the input from the end of the batch before it to its own end, by the pipeline's `batch` lines. A batch
whose input range is not known is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oncebench.audit.anomalies import EXAMPLES, Anomaly
from oncebench.audit.python.history.evidence import known_ends
from oncebench.audit.python.model import Expected
from oncebench.audit.python.records import Bools, Ints
from oncebench.audit.python.visible import Explainer, Rows, Visible
from oncebench.record.schema import SINK


@dataclass(frozen=True)
class Batch:
    """The input range of a batch per partition, from `starts` (0 if missing) up to `ends`."""

    number: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]

    def sessions(self, expected: Expected) -> Bools:
        """[sessions] Whether the batch read the session's last event."""
        inside = np.zeros(len(expected.session_keys), dtype=bool)
        for partition, end in self.ends.items():
            offset, start = expected.last_offset, self.starts.get(partition, 0)
            inside |= (expected.last_partition == partition) & (offset >= start) & (offset < end)
        return inside

    @staticmethod
    def of(number: int, starts: Mapping[str, int], ends: Mapping[str, int]) -> Batch:
        """Converts the offsets of a progress line."""
        return Batch(number, *({int(each): int(at) for each, at in offsets.items()} for offsets in (starts, ends)))


def batches(progress: Sequence[Mapping[str, Any]]) -> Iterator[Batch]:
    """Yields the batches in Spark's commit log whose input range is known, by number."""
    ends = known_ends(progress)
    for number, end in ends.items():
        if number == 0 or number - 1 in ends:
            yield Batch(number, ends.get(number - 1, {}), end)


def judge_lost_commits(expected: Expected, visible: Visible, progress: Sequence[Mapping[str, Any]],
                       explain: Explainer) -> Anomaly:  # fmt: skip
    """LOSTC: batches that were reported as written and committed, and that lost rows.

    A batch is reported by a `sink` line that is not `drained` (then the attempt wrote nothing) and has no `dropped`
    partitions.
    """
    reported = {
        line["batch"]
        for line in progress
        if line["kind"] == SINK and line.get("drained") is False and not line.get("dropped")
    }
    lost = (visible.multiplicity == 0) & visible.covered[:, None]
    found: list[dict[str, Any]] = []
    for batch in batches(progress):
        if batch.number not in reported:
            continue
        rows = lost & batch.sessions(expected)[:, None]
        if rows.any():
            first = np.flatnonzero(rows)[:1]
            found.append({"batch": batch.number, "lost": int(rows.sum()), "first": explain.expected_rows(first)[0]})
    return Anomaly(len(found), tuple(found[:EXAMPLES]))


def judge_torn(expected: Expected, rows: Rows, seen_us: Ints, progress: Sequence[Mapping[str, Any]]) -> Anomaly:
    """TORNB: batches whose rows the observer first saw at different looks.

    This is for sinks that show a batch in one step. A row counts as seen when any of its copies was first seen, so a
    replay that writes the whole batch again tears nothing.

    Args:
        rows: the final read.
        seen_us: when the observer first saw each of these rows; 0 if never.
    """
    known = np.flatnonzero((rows.expected_row >= 0) & (seen_us > 0))
    never = np.iinfo(np.int64).max
    first = np.full(expected.total.size, never)
    np.minimum.at(first, rows.expected_row[known], seen_us[known])
    explain = Explainer(expected, rows)
    found: list[dict[str, Any]] = []
    for batch in batches(progress):
        here = np.flatnonzero(np.repeat(batch.sessions(expected), expected.rows) & (first < never))
        looks, at = np.unique(first[here], return_index=True)
        if len(looks) > 1:
            first_row, last_row = explain.expected_rows(here[at[[0, -1]]])
            span_ms = int(looks[-1] - looks[0]) / 1000
            found.append({"batch": batch.number, "looks": len(looks), "span_ms": span_ms, "first": first_row,
                          "last": last_row})  # fmt: skip
    return Anomaly(len(found), tuple(found[:EXAMPLES]))
