"""The catalogue: what each anomaly code means, what it counts, and how findings are handed on.

Promise: the one place where a rule is written; reports, printed summaries and `docs/anomalies.md` say it from here, in
these words. A count belongs to one unit; every count comes with at most `EXAMPLES` examples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EXAMPLES = 32  # enough to see a pattern, few enough to read


# What rules call by a letter or one word.
TERMS = {
    "E": "the rows owed: 20 of each finished session, by the reference model over the input as it was read again",
    "m(x)": "how often the id x (`session_key:j`) is visible, that is, shown to a committed reader at the end",
    "covered": "of a session: each of its events lies below what Spark has committed of its input partition",
}


def terms_of(rule: str) -> list[str]:
    """Those of `TERMS` of which a rule makes use."""
    return [term for term in TERMS if re.search(rf"(?<!\w){re.escape(term)}(?!\w)", rule)]


@dataclass(frozen=True)
class Code:
    """One kind of anomaly: its short name, what it means, the exact rule, the unit of its count, and the kinds into
    which that is divided, if it is."""

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
            "rows not seen yet, which is no loss",
            "x in E, m(x) = 0, its session is not covered; STALL instead where the run's patience ended",
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
            "ids with m(x) > 1 and two different payloads or more: events, total, checksum and ended_at, or the bytes "
            "of a value that is no row",
            "ids",
        ),
        Code(
            "PHAN",
            "rows that nobody owed",
            "visible ids not in E: of an unknown session, of an unfinished one, or with a j that is not 0 to 19",
            "ids",
            ("unknown-session", "unfinished-session", "row-number"),
        ),
        Code(
            "TORN",
            "sessions of which only some rows are there",
            "covered sessions of which some rows, but not all 20, are visible at the end",
            "sessions",
        ),
        Code(
            "CORR",
            "wrong content",
            "visible rows that are not JSON of six fields with their types; else, whose key is not their session_key; "
            "else, whose payload is not that of their id in E",
            "rows",
            ("unreadable", "wrong-key", "wrong-payload"),
        ),
        Code(
            "REORD",
            "first copies of a session's rows out of order",
            "sessions whose rows of E, each where it stands first in a partition, do not ascend in j there",
            "sessions",
        ),
        Code(
            "SCAT",
            "sessions that nobody reads in order",
            "sessions with visible rows of E in several partitions of a log",
            "sessions",
        ),
        Code(
            "STALL",
            "no progress",
            "x in E, m(x) = 0, its session is not covered, and the run's patience ended; at least 1 if it did",
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
            "the generator's or the topic's fault",
            "acknowledged events that the input topic holds not at all, twice or more, or elsewhere than acknowledged",
            "events",
            ("absent", "twice", "elsewhere"),
        ),
        Code(
            "INCO",
            "reads that disagree",
            "positions that final read and observer showed with different content; that the observer was shown and the "
            "final read, whole and past there, was not; or that one of them showed with two contents",
            "positions",
            ("changed", "vanished", "final-read-twice", "observed-twice"),
        ),
        Code(
            "ORPH",
            "what dead writers left",
            "what the sink still holds of work that no commit will ever show, at the end",
            "leftovers",
        ),
        Code(
            "TORNB",
            "batches that were shown in parts",
            "batches of whose visible rows of E the observer first saw some at one look and others at a later one, of "
            "a sink that shows a batch in one step",
            "batches",
        ),
        Code(
            "LOSTC",
            "batches reported as committed, and not all there",
            "batches that a life reported as written, with nothing drained or dropped, and of whose rows some are LOSS",
            "batches",
        ),
        Code(
            "G1a",
            "aborted rows that a committed reader was shown",
            "positions that final read or observer showed, whose transaction the log says was aborted; of the final "
            "read also of a transaction that was open at the end, if the log was read whole",
            "positions",
            ("aborted", "open"),
        ),
        Code(
            "STALE",
            "rows that an older driver wrote after a younger one",
            "visible rows of an older driver's behind a record of a younger one's, in one partition",
            "rows",
        ),
        Code(
            "EXPO",
            "what had to be hidden: a metric, no violation",
            "records of the output's log that are not visible at the end, by how their transaction ended",
            "records",
            ("committed", "aborted", "open", "plain"),
        ),
        Code(
            "QUAR",
            "invalid events that vanished, valid ones in quarantine",
            "of a run that drained: invalid events missing in quarantine; what it holds of none (but what a timer took "
            "from an unfinished session); invalid events that it holds with another key or value",
            "events",
            ("missing", "unasked", "changed"),
        ),
    )
}


@dataclass(frozen=True)
class Anomaly:
    """How often one code occurred; `split` divides the count by kind where that is told apart."""

    count: int = 0
    examples: tuple[Mapping[str, Any], ...] = ()
    split: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.examples) > EXAMPLES:
            raise ValueError(f"{len(self.examples)} examples, at most {EXAMPLES} are kept")
