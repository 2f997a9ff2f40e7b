"""Detects that a job with a copy of this checkpoint has written to the sink.

It has written since the copy was made.

Somebody copies a checkpoint folder, or restores it elsewhere, and starts a second job. Each job then has a journal of
its own, both took equal generations, and both wrote the same sessions. Therefore each start has a random name: the
journal gets it first, and each marker in the sink has the name of the start that wrote it. A start whose journal does
not know the name of a marker's writer has another copy.

    drivers.json    {"known": ["..", ".."]}

are the writers that the newest start found in the sink, and its own name. The entries of the generations have names,
too, but only of the newest 100 starts.

Promise: a start is refused, before it changes anything, if a job with another copy has written since. If that job has
not written yet, this start takes over by a newer generation, and the job stops before it writes. If both start at the
same instant, the sink keeps the name that comes last, and the other job stops. So one of them writes. A copy that was
made while the job runs knows the job's name; it takes over if it has every batch of the sink.
"""

from __future__ import annotations

from contextlib import suppress

from oncebench.delivery.contract import Holder
from oncebench.delivery.errors import RefusedStart
from oncebench.delivery.journal import Journal
from oncebench.delivery.starts.gaps import Gaps
from oncebench.delivery.stores.entries import put_in_place_of, read_entry, refuse_damaged

_ENTRY = "drivers.json"
_SHOWN = 12  # characters of a random name
_IF_ENDED = "If the other job has ended for good, its checkpoint is lost, and its rows may be written again"


class Drivers:
    """The starts that one checkpoint knows.

    Args:
        journal: of this start.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def follow(self, holder: Holder | None, newest_batch: int, sink_id: str, gaps: Gaps) -> None:
        """Lets this start take the sink, by a newer generation than any there.

        Args:
            holder: what drivers have left in the sink.
            newest_batch: in Spark's offset log; -1: none.
            sink_id: of the job.
            gaps: the accepted losses.

        Raises:
            RefusedStart: the sink has batches that the checkpoint lacks, or a job with another copy has written.
        """
        found: frozenset[str] = frozenset()
        if holder is not None:
            refuse_newer_sink(holder.batch, newest_batch, sink_id, self._journal.checkpoint)
            found = holder.writers
            others = sorted(found - self._known())
            if others:
                text = ",".join(f"output/driver:{name[:_SHOWN]}" for name in others)
                gaps.accept(text, self._refusal(sink_id, others[0]), when=_IF_ENDED)
            self._journal.exceed(holder.generation)
        put_in_place_of(self._journal.folder, _ENTRY, {"known": sorted({*found, self._journal.driver})})

    def _known(self) -> set[str]:
        found = {str(entry.get("driver", "")) for entry in self._journal.generations()}
        folder = self._journal.folder
        with refuse_damaged(f"{folder}/{_ENTRY}"), suppress(FileNotFoundError):
            found |= {str(name) for name in read_entry(folder, _ENTRY)["known"]}
        return found

    def _refusal(self, sink_id: str, other: str) -> str:
        return (
            f"the checkpoint {self._journal.checkpoint} is a copy, or an older state: a start that it lacks "
            f"(driver {other[:_SHOWN]}) has written to the output with sink_id {sink_id!r}. Nothing was read or "
            "written, and the other job was not disturbed. Start from the checkpoint of that start, or give this job a "
            "new checkpoint, sink_id and output."
        )


def refuse_newer_sink(batch: int, newest_batch: int, sink_id: str, checkpoint: str) -> None:
    """Refuses a start whose sink has a newer batch than its checkpoint.

    Args:
        batch: the newest batch of the sink_id in the sink.
        newest_batch: in Spark's offset log; -1: none.
        sink_id: of the job.
        checkpoint: its folder.
    """
    if batch > newest_batch:
        raise RefusedStart(
            f"the sink holds batch {batch} of sink_id {sink_id!r}, but the checkpoint {checkpoint} has "
            f"{'no batch' if newest_batch < 0 else f'no batch after {newest_batch}'}: it is new, older, or another's. "
            "Restore the right checkpoint, or take a new checkpoint, sink_id and output."
        )
