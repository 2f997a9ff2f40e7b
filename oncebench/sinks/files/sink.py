"""Files in a folder, as JSON lines or Parquet: written hidden, and shown by one atomic rename.

Promise: whoever lists the folder and leaves out names that begin with `.` or `_`, as Spark does, finds whole files
only, under every guarantee: nobody is ever shown half a line. A task writes below `.pending/` and shows nothing until
its file is closed. What differs is who renames the file into the folder, and what is on the disk by then:

* at-most-once: the task, at once. Nothing is forced to the disk: a power cut may leave a file torn or empty.
* at-least-once: the task, after fsync. Each attempt has a name of its own: what is written again stands beside it.
* exactly-once, two-phase: the driver, once the decision is in the journal, which is the batch's manifest. The final
  name says sink_id, batch and partition, so a commit that is made again finds its work done; a file that is in neither
  place is lost, and the replay writes it anew.

Fencing: only a driver that has decided renames, and a start deletes what older drivers prepared and no decision names:
a task or a driver that wakes up late has nothing left to show. What can go wrong: somebody takes files of the newest
batch out of the folder (the replay of a batch that was just committed would write them anew); an object store, which
has no atomic rename; nodes of a cluster that do not share the folder (the commit finds nothing, and says so).

The baseline is Spark's own writer. Records that were set aside are left out of it, and nothing copies them to
quarantine: a second query over the same rows would run the stateful operator twice.
"""

from __future__ import annotations

import errno
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from oncebench.delivery.contract import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    Mark,
    Sink,
    SinkKind,
    SinkSettings,
    Support,
    TaskView,
)
from oncebench.delivery.durable import fsync_folder, is_uri, make_folder
from oncebench.delivery.errors import CommitUncertain, DeliveryFailed, RefusedStart
from oncebench.delivery.quarantine import without_rejected
from oncebench.sinks.files.formats import JSON_LINES, PARQUET, Format
from oncebench.sinks.files.reader import PENDING, SPARK_METADATA, names_in

NATIVE = "native"
_SINK_ID = re.compile(r"[A-Za-z0-9._-]+")
_WHAT_TO_DO = {
    errno.ENOSPC: "Make room on the disk",
    errno.EDQUOT: "Raise the quota, or make room",
    errno.EACCES: "Give this user the right to write there, or take another folder",
    errno.EROFS: "Mount the file system for writing, or take another folder",
    errno.EXDEV: "Put the folder and all below it on one file system, or no rename is atomic",
    errno.ENAMETOOLONG: "Take a shorter sink_id: it is part of every file's name",
    errno.EEXIST: "Take another folder: a file has this name",
    errno.ENOTDIR: "Take another folder: a part of its path is a file",
    errno.ENOENT: "Let one driver run per sink_id, and let every node of a cluster find the folder under this path",
}


@dataclass(frozen=True)
class Names:
    """Where files of one sink_id and driver stand and how they are called: by nothing that stands in a row."""

    folder: Path
    sink_id: str
    generation: int
    suffix: str

    @property
    def pending(self) -> Path:
        """Where files are written: hidden from every reader, on the same file system."""
        return self.folder / PENDING

    def temporary(self, batch: int, partition: int) -> str:
        """A name for one attempt at a partition, never used before."""
        return f"{self._stem(batch, partition)}.g{self.generation}.{uuid.uuid4().hex}.{self.suffix}"

    def same(self, temporary: str) -> str:
        """The attempt's own name again: shown so, attempts stand beside each other."""
        return temporary

    def final(self, temporary: str) -> str:
        """The one name of a partition of a batch, whoever wrote it: shown so, there is one attempt at most."""
        found = self._attempt(temporary)
        if found is None:
            raise CommitUncertain(
                f"the journal names a file {temporary!r}, which sink_id {self.sink_id!r} never made: it is another's "
                "or damaged. Restore the checkpoint folder together with its journal."
            )
        return f"{self._stem(int(found[1]), int(found[2]))}.{self.suffix}"

    def is_older(self, name: str) -> bool:
        """Whether it is a temporary file of an older driver of this sink_id."""
        found = self._attempt(name)
        return found is not None and int(found[3]) < self.generation

    def batch_and_partition(self, name: str) -> tuple[int, int] | None:
        """Of a file of this sink_id under its final name, else None."""
        found = re.fullmatch(rf"{self._numbers}\.{self.suffix}", name)
        return None if found is None else (int(found[1]), int(found[2]))

    def _stem(self, batch: int, partition: int) -> str:
        return f"part-{self.sink_id}-{batch:09d}-{partition:05d}"

    @property
    def _numbers(self) -> str:
        return rf"part-{re.escape(self.sink_id)}-(\d{{9,}})-(\d{{5,}})"

    def _attempt(self, name: str) -> re.Match[str] | None:
        return re.fullmatch(rf"{self._numbers}\.g(\d+)\.[0-9a-f]{{32}}\.{self.suffix}", name)


@dataclass(frozen=True)
class FileWriter:
    """Writes a partition as one hidden file; leaves it there for the driver, or shows it by itself.

    Attributes:
        durable: whether file and name are forced to the disk.
        visible_as: the name under which the task shows it; None: it does not.
    """

    names: Names
    form: Format
    durable: bool
    visible_as: Callable[[Names, str], str] | None

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        first = next(rows, None)
        if first is None:  # no rows, no file: there is nothing to decide about
            task.reach("before-prepare")
            task.reach("after-prepare")
            return {}, {}
        name = self.names.temporary(task.batch, task.partition)
        path = self.names.pending / name
        try:
            prepare_ms = self._write(task, path, first, rows)
        except BaseException as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            if not isinstance(error, OSError):
                raise
            raise DeliveryFailed(
                f"batch {task.batch}, partition {task.partition}: {_error_text(path, error)}, then start the pipeline again. "
                "No half file is to be seen."
            ) from error
        task.reach("after-prepare")
        return {} if self.visible_as else {"file": name}, {"prepare": prepare_ms}

    def _write(self, task: TaskView, path: Path, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> float:
        with path.open("xb") as file:
            self.form.write(file, first, others)
            task.reach("before-prepare")
            started = time.perf_counter()
            if self.durable:
                file.flush()
                os.fsync(file.fileno())
        if self.visible_as:
            path.replace(self.names.folder / self.visible_as(self.names, path.name))
        if self.durable:
            fsync_folder(self.names.folder if self.visible_as else self.names.pending)
        return (time.perf_counter() - started) * 1000


SUPPORTS = (
    Support(AT_MOST_ONCE, "claim", "claim, then a file renamed into the folder without fsync", default=True),
    Support(AT_LEAST_ONCE, "acknowledged", "fsync, then each task renames its file", default=True),
    Support(AT_LEAST_ONCE, NATIVE, "Spark's own file sink, as shipped"),
    Support(EXACTLY_ONCE, "two-phase", "tasks prepare hidden files, the driver decides and renames", default=True),
)


class FileSink(Sink):
    """Rows as files of one format in a folder.

    Args:
        form: of the files.
        folder: where they are shown; made if it is not there.
        sink_id: names this sink's files; two pipelines must not share one.
        partitions: tasks per batch.
    """

    def __init__(self, form: Format, folder: str, sink_id: str, partitions: int) -> None:
        self.partitions = partitions
        self._form, self._asked = form, folder
        self._names = Names(Path(folder).absolute(), sink_id, 0, form.suffix)
        self._marks: dict[int, Mark] = {}

    def encode(self, rows: DataFrame) -> DataFrame:
        """See `Sink.encode`: a JSON line per row, or the columns for Parquet."""
        return self._form.encode(rows)

    def start(self, support: Support, generation: int, decided: Sequence[Mapping[str, Any]]) -> None:
        """See `Sink.start`: the folder tried, undecided files of older drivers deleted, final names read."""
        self._names = names = replace(self._names, generation=generation)
        self._check(support)
        try:
            make_folder(names.pending)
            self._try_out()
            kept = {str(prepared["file"]) for prepared in decided}
            for name in names_in(names.pending) - kept:
                if names.is_older(name):
                    (names.pending / name).unlink(missing_ok=True)
        except OSError as error:
            raise RefusedStart(f"{_error_text(names.folder, error)}. Nothing was written.") from error
        for batch, partition in filter(None, map(names.batch_and_partition, names_in(names.folder))):
            if partition not in self._marks or self._marks[partition].batch < batch:
                self._marks[partition] = Mark(batch, 0, 0)

    def warm_up_writer(self) -> FileWriter:
        return self.prepare_writer()

    def unacknowledged_writer(self) -> FileWriter:
        return FileWriter(self._names, self._form, durable=False, visible_as=Names.final)

    def acknowledged_writer(self) -> FileWriter:
        return FileWriter(self._names, self._form, durable=True, visible_as=Names.same)

    def prepare_writer(self) -> FileWriter:
        return FileWriter(self._names, self._form, durable=True, visible_as=None)

    def marks(self) -> Mapping[int, Mark]:
        """See `Sink.marks`: the newest final name of each partition."""
        return self._marks

    def commit(self, batch: int, prepared: Mapping[int, Mapping[str, Any]]) -> set[int]:
        """See `Sink.commit`: lost is what is neither hidden nor shown.

        Raises:
            CommitUncertain: the file system refused, or a file of that name is another's.
        """
        try:
            lost = {partition for partition, entry in prepared.items() if not self._publish(str(entry["file"]))}
            fsync_folder(self._names.folder)
        except OSError as error:
            raise CommitUncertain(
                f"batch {batch}: {_error_text(self._names.folder, error)}. The batch is decided: start again after that, and "
                "the replay finishes it."
            ) from error
        return lost

    def _publish(self, name: str) -> bool:
        """Renames a prepared file into the folder, or finds that this was done before. False: it is in neither."""
        hidden, shown = self._names.pending / name, self._names.folder / self._names.final(name)
        if shown.exists() and not hidden.exists():
            return True
        if shown.exists() and not hidden.samefile(shown):
            raise CommitUncertain(
                f"{shown} is there already, and {hidden} was prepared under the same name: two pipelines write as "
                f"sink_id {self._names.sink_id!r}, or files were brought back by hand. Neither was touched; move one "
                "of them away and start again."
            )
        try:
            hidden.rename(shown)
            hidden.unlink(missing_ok=True)  # after a power cut it may have both names; rename then does nothing
        except FileNotFoundError:
            return shown.exists()
        return True

    def write_native(self, rows: DataFrame) -> None:
        without_rejected(rows).write.format(self._form.spark).mode("append").save(str(self._names.folder))

    def stream_native(self, rows: DataFrame) -> DataStreamWriter:
        folder = self._names.folder
        if names_in(folder) and not (folder / SPARK_METADATA).is_dir():
            raise RefusedStart(
                f"{folder} holds files that Spark's file sink did not write: its log ({SPARK_METADATA}) would hide "
                "them from every Spark reader. Take an empty folder."
            )
        return without_rejected(rows).writeStream.format(self._form.spark).option("path", str(folder))

    def close(self) -> None:
        """Nothing is held open between batches."""

    def _check(self, support: Support) -> None:
        if is_uri(self._asked):
            raise RefusedStart(
                f"{self._asked} is no folder of a mounted file system, and an object store has no atomic rename. Give "
                "the path of a folder that every task can reach."
            )
        if not _SINK_ID.fullmatch(self._names.sink_id):
            raise RefusedStart(f"sink_id {self._names.sink_id!r} may have letters, digits, `.`, `_` and `-` only.")
        if support.variant != NATIVE and (self._names.folder / SPARK_METADATA).exists():
            raise RefusedStart(
                f"{self._names.folder} belongs to Spark's file sink: its log ({SPARK_METADATA}) hides every other file "
                "from Spark readers. Take an empty folder."
            )

    def _try_out(self) -> None:
        """Writes, forces to the disk and renames a hidden file: what every batch will do."""
        name = self._names.temporary(0, 0)
        # Always the same name: what a death leaves of it is taken away by the next start.
        hidden, beside = self._names.pending / name, self._names.folder / f".{self._names.sink_id}.tried"
        try:
            with hidden.open("xb") as file:
                file.write(b"\n")
                file.flush()
                os.fsync(file.fileno())
            hidden.rename(beside)
        finally:
            hidden.unlink(missing_ok=True)
            beside.unlink(missing_ok=True)


def _error_text(path: Path, error: OSError) -> str:
    what_to_do = _WHAT_TO_DO.get(error.errno or 0, "Look after the file system")
    return f"cannot write {path} ({error.strerror or error}). {what_to_do}"


def _open(form: Format, settings: SinkSettings) -> FileSink:
    return FileSink(form, settings.output["output"], settings.sink_id, settings.partitions)


LACKS = {
    "exactly-once/idempotent": "a folder takes one file in one step, not a batch of them with its marker; "
    "two-phase shows each file once and needs no marker",
}
FORMATS = {"files-jsonl": JSON_LINES, "files-parquet": PARQUET}
KINDS = tuple(
    SinkKind(name=name, supports=SUPPORTS, lacks=LACKS, open=partial(_open, form)) for name, form in FORMATS.items()
)
