"""The pipeline with one defence left out: edited calls or replaced code. Not for use.

An edit turns a record into the calls that the code would have made without one line. fsync changes nothing that a
running machine can observe, so all other calls stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from oncebench.delivery.batch import Batch
from oncebench.delivery.contract import Sink, SinkKind, SinkSettings, TaskView
from oncebench.delivery.decisions import commit, decision
from oncebench.delivery.journal import Journal
from oncebench.sinks.files.formats import Format
from oncebench.sinks.files.sink import FileSink, FileWriter
from proofs.crash_states.calls import Call, Create, Link, Recorded, Rename, SyncFile, SyncFolder

Edit = Callable[[Sequence[Recorded]], list[Recorded]]
HIDDEN, VISIBLE, JOURNAL = "output/.pending", "output", "checkpoint/journal"


def without_fsync_of_files(folder: str) -> Edit:
    """Files created in a folder are not forced to the disk."""

    def edit(log: Sequence[Recorded]) -> list[Recorded]:
        made = _made_in(folder, log)
        return [each for each in log if not (isinstance(each.call, SyncFile) and each.call.file in made)]

    return edit


def fsync_of_files_after(folder: str, named: type[Link] | type[Rename]) -> Edit:
    """Files created in a folder are forced after they get their last name, and not before."""

    def edit(log: Sequence[Recorded]) -> list[Recorded]:
        made, edited = _made_in(folder, log), []
        late = {each.call.file for each in log if isinstance(each.call, named) and each.call.file in made}
        for each in log:
            if isinstance(each.call, SyncFile) and each.call.file in late:
                continue
            edited.append(each)
            if isinstance(each.call, named) and each.call.file in late:
                edited.append(Recorded(each.actor, SyncFile(each.call.file)))
        return edited

    return edit


def without_fsync_of_folder(folder: str) -> Edit:
    """The names in a folder are not forced to the disk."""

    def edit(log: Sequence[Recorded]) -> list[Recorded]:
        return [each for each in log if each.call != SyncFolder(folder)]

    return edit


def _made_in(folder: str, log: Sequence[Recorded]) -> set[int]:
    calls: list[Call] = [each.call for each in log]
    return {call.file for call in calls if isinstance(call, Create) and str(Path(call.path).parent) == folder}


def committed_before_decided(batch: Batch, sink: Sink, journal: Journal, _on_lost: str) -> None:
    """Two-phase in the wrong order: commits first and decides afterwards."""
    prepared = batch.run(sink.prepare_writer())
    commit(batch, sink, {written.partition: written.prepared for written in prepared if written.prepared})
    journal.decide(batch.id, 0, decision(prepared))


@dataclass(frozen=True)
class _InPlace(FileWriter):
    """Writes a partition under its final name."""

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        name = self.names.temporary(task.batch, task.partition)
        self._write(task, self.names.folder / self.names.final(name), next(rows), rows)
        return {"file": name}, {}


class InPlace(FileSink):
    """Writes where readers look, so a commit has nothing to do."""

    def prepare_writer(self) -> FileWriter:
        return _InPlace(self._names, self._form, durable=True, visible_as=None)

    def commit(self, batch: int, prepared: Mapping[int, Mapping[str, Any]]) -> set[int]:
        del batch, prepared
        return set()


def in_place(kind: SinkKind, form: Format) -> SinkKind:
    """A kind of sink whose tasks write their files under the final names."""

    def opened(settings: SinkSettings) -> FileSink:
        return InPlace(form, settings.output["output"], settings.sink_id, settings.partitions)

    return replace(kind, open=opened)
