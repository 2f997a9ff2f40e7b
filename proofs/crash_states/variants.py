"""What is searched: our guarantees, each with a defence left out, and what they do not promise to survive.

Promise: every variant says what its search must come to, so that a search which comes to anything else is a finding:
about the sink, the journal, or the model of the disk.
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
from proofs.crash_states.broken import (
    HIDDEN,
    JOURNAL,
    SHOWN,
    Edit,
    committed_before_decided,
    fsync_of_files_after,
    in_place,
    without_fsync_of_files,
    without_fsync_of_folder,
)
from proofs.crash_states.calls import Link, Rename
from proofs.crash_states.lives import Pipeline
from proofs.crash_states.promises import CORR, EARLY, LOSS, STUCK, TORN
from proofs.crash_states.scenarios import Scenario, first_batch, killed_before, next_batches, written_anew
from proofs.crash_states.search import Found, search

FORMATS: dict[str, tuple[SinkKind, Format]] = {
    kind.name: (kind, form) for kind, form in zip(KINDS, (JSON_LINES, PARQUET), strict=True)
}
# Shown without a decision, and then in the way of the replay.
BOTH = f"{EARLY} {STUCK}"


@dataclass(frozen=True)
class Variant:
    """A search and what it must find.

    Attributes:
        name: what a table calls it.
        delivery: the guarantee, in its default variant.
        scenario: the lives that are recorded.
        shows: what must be wrong in some state; none: every state is right.
        allows: what may be wrong beside that, in one format or the other.
        edit, sink, protocol: what is left out.
        found_out: the search ends when it has shown what it must.
        output: the folder of files.
        offsets_forced: whether Spark's offset log is taken to reach the disk at once.
    """

    name: str
    guarantee: str
    scenario: Scenario
    shows: frozenset[str] = frozenset()
    allows: frozenset[str] = frozenset()
    edit: Edit | None = None
    sink: Callable[[SinkKind, Format], SinkKind] | None = None
    protocol: Protocol | None = None
    found_out: bool = False
    output: str = "output"
    offsets_forced: bool = True

    def come_to(self, form: str, every: int = 1) -> Found:
        """What the search comes to, with files of a format; of so many states one is judged."""
        kind = FORMATS[form][0]
        sink = self.sink(*FORMATS[form]) if self.sink else None
        support = choose(kind, self.guarantee, None)
        pipeline = Pipeline(kind, support, self.output, self.offsets_forced, self.protocol, sink)
        return search(pipeline, self.scenario, self.edit, self.shows if self.found_out else (), every)

    def surprises(self, found: Found) -> bool:
        """Whether a search has come to anything else."""
        shown = set(found.wrong)
        return not self.shows <= shown or not (self.found_out or shown <= self.shows | self.allows)


def _declared(name: str, guarantee: str, scenario: Scenario, shows: str, allows: str = "", **else_: Any) -> Variant:
    return Variant(name, guarantee, scenario, frozenset(shows.split()), frozenset(allows.split()), **else_)


def _broken(name: str, guarantee: str, shows: str, scenario: Scenario | None = None, **left_out: Any) -> Variant:
    return Variant(name, guarantee, scenario or one_batch, frozenset(shows.split()), found_out=True, **left_out)


one_batch = partial(next_batches, batches=1)
SOUND = (
    Variant("exactly-once, a first batch", EXACTLY_ONCE, first_batch),
    Variant("exactly-once, folders to be made above the output", EXACTLY_ONCE, first_batch, output="new/deep/output"),
    Variant("exactly-once, two more batches", EXACTLY_ONCE, next_batches),
    Variant("exactly-once, a partition written anew", EXACTLY_ONCE, written_anew),
    Variant("exactly-once, killed before", EXACTLY_ONCE, partial(killed_before, batches=1)),
    Variant("at-least-once, a first batch", AT_LEAST_ONCE, first_batch),
    Variant("at-least-once, two more batches", AT_LEAST_ONCE, next_batches),
)
DECLARED = (
    _declared("at-most-once, a first batch", AT_MOST_ONCE, first_batch, CORR, TORN),
    _declared("at-most-once, one more batch", AT_MOST_ONCE, one_batch, CORR, TORN),
    _declared("exactly-once, Spark's offsets not forced", EXACTLY_ONCE, one_batch, STUCK, offsets_forced=False),
)
BROKEN = (
    _broken("exactly-once, files not forced", EXACTLY_ONCE, CORR, edit=without_fsync_of_files(HIDDEN)),
    _broken("exactly-once, renamed before fsync", EXACTLY_ONCE, CORR, edit=fsync_of_files_after(HIDDEN, Rename)),
    _broken("exactly-once, output folder not forced", EXACTLY_ONCE, LOSS, edit=without_fsync_of_folder(SHOWN)),
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
    _broken("at-least-once, output folder not forced", AT_LEAST_ONCE, LOSS, edit=without_fsync_of_folder(SHOWN)),
)
SPARE = (
    Variant(
        "exactly-once, folder of hidden files not forced", EXACTLY_ONCE, one_batch, edit=without_fsync_of_folder(HIDDEN)
    ),
)
GROUPS = {
    "ours": SOUND,
    "what is declared": DECLARED,
    "one defence left out": BROKEN,
    "kept by other defences too": SPARE,
}
