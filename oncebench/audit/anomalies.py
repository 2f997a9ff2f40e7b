"""The catalogue of anomalies: meaning, exact rule, unit and kinds of each code.

Promise: this is the only place where a rule is written. Reports, the published page and `docs/anomalies.md` quote it
word for word. A count has one unit, and comes with at most `EXAMPLES` examples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EXAMPLES = 32  # enough to see a pattern, few enough to read


# The terms that the rules use.
TERMS = {
    "E": "the expected rows: 20 of each finished session, computed by the reference model from the input read again",
    "m(x)": "how often a committed reader sees the row id x (`session_key:j`) at the end",
    "covered": "the pipeline has committed the input offsets of all events of the session",
}


def terms_of(rule: str) -> list[str]:
    """Returns the `TERMS` that a rule uses."""
    return [term for term in TERMS if re.search(rf"(?<!\w){re.escape(term)}(?!\w)", rule)]


@dataclass(frozen=True)
class Code:
    """One kind of anomaly; `kinds` divide its count, if there are any."""

    name: str
    means: str
    rule: str
    unit: str
    kinds: tuple[str, ...] = ()


CATALOGUE = {
    code.name: code
    for code in (
        Code(
            "LOSS",
            "rows lost",
            "x in E, m(x) = 0, its session is covered",
            "rows",
            ("whole-sessions", "torn-sessions"),
        ),
        Code(
            "PEND",
            "rows not visible yet; no loss",
            "x in E, m(x) = 0, its session is not covered; STALL instead, if the run timed out without progress",
            "rows",
        ),
        Code(
            "DUP",
            "rows visible more than once",
            "sum over all ids, in E or not, of max(0, m(x) - 1)",
            "extra copies",
            ("same-partition", "other-partition"),
        ),
        Code(
            "DIV",
            "copies of a row that differ",
            "ids with m(x) > 1 and at least two different payloads; a payload is events, total, checksum and "
            "ended_at, or the bytes of a value that is no row",
            "ids",
        ),
        Code(
            "PHAN",
            "rows that no input explains",
            "visible ids not in E: of an unknown session, of an unfinished session, or with a j outside 0 to 19",
            "ids",
            ("unknown-session", "unfinished-session", "row-number"),
        ),
        Code(
            "TORN",
            "sessions with only some of their rows",
            "covered sessions with some, but not all 20, rows visible at the end",
            "sessions",
        ),
        Code(
            "CORR",
            "wrong content",
            "visible rows that are not JSON of six fields with their types; else, whose key is not their "
            "session_key; else, whose payload is not the one of their id in E",
            "rows",
            ("unreadable", "wrong-key", "wrong-payload"),
        ),
        Code(
            "REORD",
            "rows of a session out of order",
            "sessions whose rows of E, each at its first place in a partition, do not ascend in j there",
            "sessions",
        ),
        Code(
            "SCAT",
            "sessions spread over partitions, which no reader gets in order",
            "sessions with visible rows of E in several partitions of a log",
            "sessions",
        ),
        Code(
            "STALL",
            "no progress",
            "x in E, m(x) = 0, its session is not covered, and the run timed out without progress; at least 1 in "
            "such a run",
            "rows",
        ),
        Code(
            "STALL-LSO",
            "a transaction left open",
            "partitions of the output whose last stable offset stayed below their end",
            "partitions",
            ("hanging", "delayed", "untold"),
        ),
        Code(
            "SRC",
            "a fault of the generator or the input topic",
            "acknowledged events that the input topic does not hold, holds more than once, or holds at another "
            "position than acknowledged",
            "events",
            ("absent", "twice", "elsewhere"),
        ),
        Code(
            "INCO",
            "reads that disagree",
            "positions where final read and observer got different content; where the observer got a row that a "
            "final read, complete and past the position, lacks; or where one read got two contents",
            "positions",
            ("changed", "vanished", "final-read-twice", "observed-twice"),
        ),
        Code(
            "ORPH",
            "leftovers of dead writers",
            "leftovers in the sink at the end that no commit will ever make visible",
            "leftovers",
        ),
        Code(
            "TORNB",
            "batches that became visible in parts",
            "batches whose visible rows of E the observer first saw at different looks, in a sink that shows a "
            "batch in one step",
            "batches",
        ),
        Code(
            "LOSTC",
            "batches reported as committed, with rows missing",
            "batches that an attempt reported as written, with nothing drained or dropped, and that have rows in LOSS",
            "batches",
        ),
        Code(
            "G1a",
            "aborted rows that a committed reader saw",
            "positions that the final read or the observer got, and whose transaction the log shows as aborted; in "
            "the final read also as open at the end, if the log was read to its end",
            "positions",
            ("aborted", "open"),
        ),
        Code(
            "STALE",
            "rows that an older driver wrote after a newer one",
            "visible rows of an older driver behind a record of a newer driver, in one partition",
            "rows",
        ),
        Code(
            "EXPO",
            "records that had to be hidden: a metric, no violation",
            "records in the output's log that are not visible at the end, by how their transaction ended",
            "records",
            ("committed", "aborted", "open", "plain"),
        ),
        Code(
            "GAP-ROWS",
            "rows lost by a loss that an operator accepted: no violation",
            "x in E, m(x) = 0, its session is covered, and its last event is of a batch that an accepted text names "
            "for the output; these rows are not in LOSS, TORN and LOSTC",
            "rows",
        ),
        Code(
            "GAP-EVENTS",
            "events lost by a loss that an operator accepted: no violation",
            "acknowledged events that the input topic does not hold, at an offset that an accepted text names for the "
            "input; these events are not in SRC",
            "events",
        ),
        Code(
            "QUAR",
            "invalid events missing from quarantine, or valid events in it",
            "in a run that drained: invalid events missing from quarantine; records in quarantine of no invalid "
            "event, except those a timer took from an unfinished session; invalid events with another key or value "
            "there, unless it was cut and has the original's length and beginning",
            "events",
            ("missing", "unasked", "changed"),
        ),
    )
}


@dataclass(frozen=True)
class Anomaly:
    """The count of one code; `split` divides the count by kind, if the code has kinds."""

    count: int = 0
    examples: tuple[Mapping[str, Any], ...] = ()
    split: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.examples) > EXAMPLES:
            raise ValueError(f"{len(self.examples)} examples, at most {EXAMPLES} are kept")
