"""The catalogue: what each anomaly code means, what it counts, and how findings are handed on.

Let E be the expected rows (by the reference model over the re-read input), and m(x) the number of visible
positions that carry the id x = `session_key:j`. A session is covered when its last event lies below the
committed end offset of its input partition. A count belongs to one unit; every count comes with at most
`EXAMPLES` examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EXAMPLES = 32  # enough to see a pattern, few enough to read


@dataclass(frozen=True)
class Code:
    """One kind of anomaly: its short name, the exact rule, and the unit of its count."""

    name: str
    rule: str
    unit: str


CATALOGUE = {
    code.name: code
    for code in (
        Code("LOSS", "x in E, m(x) = 0, its session is covered", "rows"),
        Code("PEND", "x in E, m(x) = 0, its session is not covered; never loss", "rows"),
        Code("DUP", "sum over ids of max(0, m(x) - 1)", "extra copies"),
        Code("DIV", "ids with m(x) > 1 and at least two different payloads", "ids"),
        Code("PHAN", "visible ids not in E: unknown session, unfinished session, j out of range", "ids"),
        Code("TORN", "covered sessions of which some rows, but not all 20, are visible at the end", "sessions"),
        Code("CORR", "unreadable, wrong field or type, wrong key, or payload other than expected", "rows"),
        Code("REORD", "sessions whose first occurrences, in one partition, do not ascend in j", "sessions"),
        Code(
            "SCAT", "sessions with rows in several partitions of a log, so that nobody reads them in order", "sessions"
        ),
        Code("STALL", "what is not visible and not covered after the run's patience ended", "rows"),
        Code("STALL-LSO", "partitions whose last stable offset stayed below their end", "partitions"),
        Code("SRC", "acknowledged events that the input topic holds not at all, elsewhere, or twice", "events"),
        Code(
            "INCO",
            "positions that two reads showed with different content, or one of them not at all",
            "positions",
        ),
        Code("ORPH", "what the sink still holds of work that no commit will ever show, at the end", "leftovers"),
        Code("TORNB", "batches that the observer was shown in parts, of a sink that shows them in one step", "batches"),
        Code("LOSTC", "batches that were reported committed, and of whose rows some are LOSS", "batches"),
        Code("G1a", "positions shown to a committed reader, whose transaction the log says was aborted", "positions"),
        Code("STALE", "visible rows of an older driver's behind a record of a younger one, in one partition", "rows"),
        Code("EXPO", "records of the output's log that are not visible at the end: a metric, no violation", "records"),
        Code("QUAR", "invalid events missing in quarantine, or quarantined records that are none", "events"),
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
