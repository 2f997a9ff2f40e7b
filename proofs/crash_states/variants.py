"""The searches: our guarantees, each defence left out, and power cuts beyond the guarantees.

Promise: every variant states its expected result. A search with another result is a finding about the sink, the
journal or the disk model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from oncebench.delivery.contract import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, SinkKind
from oncebench.delivery.protocols import Protocol, choose
from oncebench.sinks.files.formats import JSON_LINES, PARQUET, Format
from oncebench.sinks.files.sink import KINDS
from proofs.crash_states.attempts import Pipeline
from proofs.crash_states.broken import (
    HIDDEN,
    JOURNAL,
    VISIBLE,
    Edit,
    committed_before_decided,
    fsync_of_files_after,
    in_place,
    without_fsync_of_files,
    without_fsync_of_folder,
)
from proofs.crash_states.calls import Link, Rename
from proofs.crash_states.promises import CORR, EARLY, LOSS, PARTIAL, STUCK
from proofs.crash_states.scenarios import Scenario, first_batch, killed_before, next_batches, rewritten
from proofs.crash_states.search import Found, search

FORMATS: dict[str, tuple[SinkKind, Format]] = {
    kind.name: (kind, form) for kind, form in zip(KINDS, (JSON_LINES, PARQUET), strict=True)
}
# Visible without a decision, which then blocks the replay.
BOTH = f"{EARLY} {STUCK}"


@dataclass(frozen=True)
class Variant:
    """A search and its expected result.

    Attributes:
        name: the name in tables.
        guarantee: the guarantee, in its default variant.
        scenario: the attempts to record.
        expected: anomalies that must occur in some state; empty: every state is right.
        allowed: further anomalies that may occur in one of the formats.
        edit, sink, protocol: the defence that is left out.
        stops_early: the search stops when all expected anomalies have occurred.
        output: the folder of files.
        offsets_forced: whether Spark's offset log is assumed to reach the disk at once.
    """

    name: str
    guarantee: str
    scenario: Scenario
    expected: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    edit: Edit | None = None
    sink: Callable[[SinkKind, Format], SinkKind] | None = None
    protocol: Protocol | None = None
    stops_early: bool = False
    output: str = "output"
    offsets_forced: bool = True

    def run(self, form: str, every: int = 1) -> Found:
        """Runs the search with files of a format, and judges one of `every` states."""
        kind = FORMATS[form][0]
        sink = self.sink(*FORMATS[form]) if self.sink else None
        support = choose(kind, self.guarantee, None)
        pipeline = Pipeline(kind, support, self.output, self.offsets_forced, self.protocol, sink)
        return search(pipeline, self.scenario, self.edit, self.expected if self.stops_early else (), every)

    def surprises(self, found: Found) -> bool:
        """Whether a search has another result than expected."""
        visible = set(found.wrong)
        return not self.expected <= visible or not (self.stops_early or visible <= self.expected | self.allowed)


def _declared(name: str, guarantee: str, scenario: Scenario, expected: str, allowed: str = "", **else_: Any) -> Variant:
    return Variant(name, guarantee, scenario, frozenset(expected.split()), frozenset(allowed.split()), **else_)


def _broken(name: str, guarantee: str, expected: str, scenario: Scenario | None = None, **left_out: Any) -> Variant:
    return Variant(name, guarantee, scenario or one_batch, frozenset(expected.split()), stops_early=True, **left_out)


one_batch = partial(next_batches, batches=1)
SOUND = (
    Variant("exactly-once, a first batch", EXACTLY_ONCE, first_batch),
    Variant("exactly-once, new folders above the output", EXACTLY_ONCE, first_batch, output="new/deep/output"),
    Variant("exactly-once, two more batches", EXACTLY_ONCE, next_batches),
    Variant("exactly-once, a lost partition rewritten", EXACTLY_ONCE, rewritten),
    Variant("exactly-once, a kill before the power cut", EXACTLY_ONCE, partial(killed_before, batches=1)),
    Variant("at-least-once, a first batch", AT_LEAST_ONCE, first_batch),
    Variant("at-least-once, two more batches", AT_LEAST_ONCE, next_batches),
)
DECLARED = (
    _declared("at-most-once, a first batch", AT_MOST_ONCE, first_batch, CORR, PARTIAL),
    _declared("at-most-once, one more batch", AT_MOST_ONCE, one_batch, CORR, PARTIAL),
    _declared("exactly-once, Spark's offsets not forced", EXACTLY_ONCE, one_batch, STUCK, offsets_forced=False),
)
BROKEN = (
    _broken("exactly-once, files not forced", EXACTLY_ONCE, CORR, edit=without_fsync_of_files(HIDDEN)),
    _broken("exactly-once, renamed before fsync", EXACTLY_ONCE, CORR, edit=fsync_of_files_after(HIDDEN, Rename)),
    _broken("exactly-once, output folder not forced", EXACTLY_ONCE, LOSS, edit=without_fsync_of_folder(VISIBLE)),
    _broken("exactly-once, journal: entries not forced", EXACTLY_ONCE, STUCK, edit=without_fsync_of_files(JOURNAL)),
    _broken(
        "exactly-once, journal: linked before fsync", EXACTLY_ONCE, STUCK, edit=fsync_of_files_after(JOURNAL, Link)
    ),
    _broken("exactly-once, journal: folder not forced", EXACTLY_ONCE, BOTH, edit=without_fsync_of_folder(JOURNAL)),
    _broken(
        "exactly-once, journal: the folder's own name not forced",
        EXACTLY_ONCE,
        BOTH,
        first_batch,
        edit=without_fsync_of_folder("checkpoint"),
    ),
    _broken("exactly-once, renamed before the decision", EXACTLY_ONCE, BOTH, protocol=committed_before_decided),
    _broken("exactly-once, written under the final name", EXACTLY_ONCE, f"{CORR} {BOTH}", sink=in_place),
    _broken("at-least-once, files not forced", AT_LEAST_ONCE, CORR, edit=without_fsync_of_files(HIDDEN)),
    _broken("at-least-once, renamed before fsync", AT_LEAST_ONCE, CORR, edit=fsync_of_files_after(HIDDEN, Rename)),
    _broken("at-least-once, output folder not forced", AT_LEAST_ONCE, LOSS, edit=without_fsync_of_folder(VISIBLE)),
)
REDUNDANT = (
    Variant(
        "exactly-once, folder of hidden files not forced", EXACTLY_ONCE, one_batch, edit=without_fsync_of_folder(HIDDEN)
    ),
)
GROUPS = {
    "ours": SOUND,
    "declared limits": DECLARED,
    "one defence left out": BROKEN,
    "redundant defence left out": REDUNDANT,
}
