"""What the audit says batch by batch: one that was reported committed and is not there, or was shown in parts.

Promise: a row belongs to the batch that read the last event of its session, for in that batch the session's rows come
out. What a batch has read is from the end of the batch before it to its own end, by the pipeline's `batch` lines; a
batch of which that is not known is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oncebench.audit.anomalies import EXAMPLES, Anomaly
from oncebench.audit.python.model import ROWS, Expected, Ints
from oncebench.audit.python.outputs import Bools
from oncebench.audit.python.visible import Explainer, Rows, Visible


@dataclass(frozen=True)
class Batch:
    """What one batch has read: from `starts` up to `ends`, by input partition; what has no start begins at 0."""

    number: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]

    def sessions(self, expected: Expected) -> Bools:
        """[sessions] whether the batch has read the session's last event."""
        inside = np.zeros(len(expected.session_keys), dtype=bool)
        for partition, end in self.ends.items():
            offset, start = expected.last_offset, self.starts.get(partition, 0)
            inside |= (expected.last_partition == partition) & (offset >= start) & (offset < end)
        return inside

    @staticmethod
    def of(number: int, starts: Mapping[str, int], ends: Mapping[str, int]) -> Batch:
        """From offsets as a progress line has them."""
        return Batch(number, *({int(each): int(at) for each, at in offsets.items()} for offsets in (starts, ends)))


def batches(progress: Sequence[Mapping[str, Any]]) -> Iterator[Batch]:
    """The batches in Spark's commit log of which it is known what they have read, in the order of their numbers.

    A number that has two ends is of two batches: the checkpoint was lost or rolled back in between.
    """
    ends: dict[int, Mapping[str, int]] = {}
    twice = set()
    for line in progress:
        if line["kind"] == "batch" and ends.setdefault(line["batch"], line["end_offsets"]) != line["end_offsets"]:
            twice.add(line["batch"])
    for number in twice:
        del ends[number]
    for number in sorted(ends):
        if number == 0 or number - 1 in ends:
            yield Batch.of(number, ends.get(number - 1, {}), ends[number])


def judge_lost_commits(expected: Expected, visible: Visible, progress: Sequence[Mapping[str, Any]],
                       explain: Explainer) -> Anomaly:  # fmt: skip
    """LOSTC: batches that the delivery reported as written and committed, and of whose rows some are lost.

    Reported: a `sink` line that is neither `drained` (nothing was written in that life) nor has `dropped` partitions.
    """
    reported = {
        line["batch"]
        for line in progress
        if line["kind"] == "sink" and line.get("drained") is False and not line.get("dropped")
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
    """TORNB: batches of which the observer was shown some rows and at a later look others.

    Only for sinks that show a batch in one step. Of each row counts when one of its copies was first seen, so that a
    replay which writes the whole batch again tears nothing. `rows`: of the final read, seen at `seen_us` (0: never).
    """
    known = np.flatnonzero((rows.expected_row >= 0) & (seen_us > 0))
    never = np.iinfo(np.int64).max
    first = np.full(len(expected.session_keys) * ROWS, never)
    np.minimum.at(first, rows.expected_row[known], seen_us[known])
    explain = Explainer(expected, rows)
    found: list[dict[str, Any]] = []
    for batch in batches(progress):
        here = np.flatnonzero(np.repeat(batch.sessions(expected), ROWS) & (first < never))
        looks, at = np.unique(first[here], return_index=True)
        if len(looks) > 1:
            told = explain.expected_rows(here[at[[0, -1]]])
            span_ms = int(looks[-1] - looks[0]) / 1000
            found.append({"batch": batch.number, "looks": len(looks), "span_ms": span_ms, "first": told[0],
                          "last": told[1]})  # fmt: skip
    return Anomaly(len(found), tuple(found[:EXAMPLES]))
