"""The file sinks: JSON lines or Parquet files, written hidden, published by atomic rename.

Promise: a reader that ignores names which begin with `.` or `_`, as Spark does, finds complete files only, under every
guarantee. It never reads half a line. A task writes below `.pending/`, and its file stays hidden until it is closed.
The guarantees differ in who renames the file into the folder, and in what is on the disk by then:

* at-most-once: the task renames at once. Nothing is forced to the disk: a power cut may leave a file torn or empty.
* at-least-once: the task renames after fsync. Each attempt has a name of its own, so a second attempt adds a file.
* exactly-once, two-phase: the driver renames after the decision is in the journal, which is the batch's manifest. The
  final name contains sink_id, batch and partition, so a repeated commit finds its work done. A file that is in neither
  place is lost, and the replay writes it again.

Fencing: only a driver that has decided renames files. A start notes its driver's name in the folder. It then deletes
files that older drivers prepared and that no decision names. A late task or driver then has nothing to publish. A
driver reads the name before it renames: a copy of its checkpoint may have started another job.

What can go wrong: someone removes files of the newest batch, and its replay writes them again; an object store has no
atomic rename; the nodes of a cluster do not share the folder, and the commit reports missing files.

The baseline is Spark's own writer. It leaves rejected records out, and nothing copies them to quarantine: a second
query over the same rows would run the stateful operator twice.
"""

from __future__ import annotations

import os
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
from pyspark.sql.types import StructType

from oncebench.delivery.contract import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    NO_BATCH,
    Holder,
    Mark,
    Sink,
    SinkKind,
    SinkSettings,
    Support,
    TaskView,
)
from oncebench.delivery.durable import fsync_folder, is_uri, make_folder
from oncebench.delivery.errors import CommitRefused, CommitUncertain, RefusedStart
from oncebench.delivery.failures.cause import dropped, failure, not_claimed
from oncebench.delivery.failures.paths import at
from oncebench.delivery.failures.system import of_errno
from oncebench.delivery.quarantine import without_rejected
from oncebench.delivery.stores.entries import put_exclusively, refuse_damaged
from oncebench.sinks.files.disk import error_text, refused
from oncebench.sinks.files.driver import claim, claimed, newest_driver, read_note, settle, stop_if_older, take
from oncebench.sinks.files.folder import SPARK_METADATA, names_in
from oncebench.sinks.files.formats import JSON_LINES, PARQUET, Format
from oncebench.sinks.files.names import Names
from oncebench.sinks.sink_ids import refuse_unfit_sink_id
from oncebench.sinks.types import refuse_types

NATIVE = "native"
# Holds a random id of the folder: a start notices a folder that was replaced. Readers ignore the name.
ID_FILE = ".oncebench-folder.json"


@dataclass(frozen=True)
class FileWriter:
    """Writes a partition as one hidden file, which the task or the driver publishes.

    Attributes:
        names: see `Names`.
        form: the format.
        durable: whether file and name are forced to the disk.
        visible_as: returns the name under which the task publishes the file; None: the driver publishes it.
    """

    names: Names
    form: Format
    durable: bool
    visible_as: Callable[[Names, str], str] | None

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        first = next(rows, None)
        if first is None:  # without rows there is no file and nothing to decide
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
            where = f"batch {task.batch}, partition {task.partition}"
            what = f"{error.strerror or error}{at(error, path)}"
            raise failure(of_errno(error.errno), f"{where}: cannot write {path}: {what}") from error
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
    """Writes rows as files of one format to a folder.

    Args:
        form: of the files.
        folder: where readers find them; made if missing.
        sink_id: names this sink's files; two pipelines must not share it.
        partitions: tasks per batch.
        driver: random name of this start; empty: a new one.
    """

    def __init__(self, form: Format, folder: str, sink_id: str, partitions: int, driver: str = "") -> None:
        self.partitions = partitions
        self._form, self._asked = form, folder
        self._names = Names(Path(folder).absolute(), sink_id, 0, form.suffix, driver or uuid.uuid4().hex)
        self._marks: dict[int, Mark] = {}
        self._wrote = False
        self._schema = StructType()

    def check_schema(self, schema: StructType) -> None:
        """See `Sink.check_schema`; `start` checks the types, because Spark's own writer stores more."""
        self._schema = schema

    def encode(self, rows: DataFrame) -> DataFrame:
        """See `Sink.encode`: a JSON line per row, or the columns for Parquet."""
        return self._form.encode(rows)

    def identity(self) -> Mapping[str, str]:
        file = self._names.folder / ID_FILE
        advice = (
            'Replace its content by {"id": ".."}, with the folder\'s id that journal/places.json has in the '
            "checkpoint of any job that writes here. If there is none, remove the file."
        )
        with refused(self._names.folder), refuse_damaged(file, f"{advice} Then start again."):
            found = read_note(file)
            return {} if found is None else {"folder": str(found["id"])}  # a folder without our file is another one

    def make_identity(self) -> None:
        """See `Sink.make_identity`: a folder gets a file with a random id."""
        with refused(self._names.folder):
            put_exclusively(self._names.folder, ID_FILE, {"id": uuid.uuid4().hex})

    def holder(self) -> Holder:
        with refused(self._names.folder):
            settle(self._names.folder)
            found = newest_driver(self._names.holder)
            return Holder.of(self._found_marks(), 0 if found is None else found[1])

    def start(self, support: Support, generation: int, decided: Sequence[Mapping[str, Any]]) -> None:
        """See `Sink.start`: tests the folder, deletes undecided files, reads final names."""
        self._names = names = replace(self._names, generation=generation)
        with refused(names.folder):
            self._check(support)
            make_folder(names.pending)
            self._try_out()
            take(names.holder, names.driver, generation)
            kept = {str(prepared["file"]) for prepared in decided}
            for name in names_in(names.pending) - kept:
                if names.is_older(name):
                    (names.pending / name).unlink(missing_ok=True)
            self._marks = {p: mark for p, mark in self._found_marks().items() if mark.batch != NO_BATCH}

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

    def _found_marks(self) -> dict[int, Mark]:
        """Returns the newest final name of each partition, and the newest claim."""
        found = claimed(self._names.claimed)
        for batch, partition in filter(None, map(self._names.batch_and_partition, names_in(self._names.folder))):
            if partition not in found or found[partition].batch < batch:
                found[partition] = Mark(batch, 0, 0)
        return found

    def claim(self, batch: int) -> None:
        folder = self._names.folder
        try:
            claim(self._names.claimed, batch, self._names.driver)
            stop_if_older(self._names.holder, self._names.driver)
        except OSError as error:
            where = f"in {folder}: {error.strerror or error}{at(error, folder)}"
            raise not_claimed(of_errno(error.errno), where, batch) from error
        except RefusedStart as error:  # a note is damaged
            raise RefusedStart(f"{error} {dropped(batch)}") from error

    def commit(self, batch: int, prepared: Mapping[int, Mapping[str, Any]]) -> set[int]:
        """See `Sink.commit`: a file that is neither hidden nor visible is lost.

        Raises:
            AnotherDriver: another driver has taken this sink_id in the folder.
            CommitUncertain: the file system failed; a restart finishes the batch.
            CommitRefused: another file has the name, the journal is another's, or a restart meets the same error.
        """
        try:
            if not self._wrote:  # a final name does not show who made it
                claim(self._names.claimed, NO_BATCH, self._names.driver)
            self._wrote = True
            stop_if_older(self._names.holder, self._names.driver)
            lost = {partition for partition, entry in prepared.items() if not self._publish(str(entry["file"]))}
            fsync_folder(self._names.folder)
        except OSError as error:
            kind = CommitRefused if of_errno(error.errno).permanent else CommitUncertain
            raise kind(
                f"batch {batch}: {error_text(self._names.folder, error)}, then start again. The batch is decided, and "
                "the replay finishes it."
            ) from error
        return lost

    def _publish(self, name: str) -> bool:
        """Publishes a prepared file, unless that is done. Returns False if the file is lost."""
        hidden, visible = self._names.pending / name, self._names.folder / self._names.final(name)
        if visible.exists() and not hidden.exists():
            return True
        if visible.exists() and not hidden.samefile(visible):
            raise CommitRefused(
                f"{visible} exists already, and {hidden} was prepared for the same name: two pipelines write as "
                f"sink_id {self._names.sink_id!r}, or files were restored by hand. If both hold the same "
                f"rows, remove {visible.name}; otherwise rename it, and give the other pipeline a checkpoint, sink_id "
                "and output of its own. Then start again: the prepared file gets the name."
            )
        try:
            hidden.rename(visible)
            hidden.unlink(missing_ok=True)  # after a power cut a file may have both names, and rename does nothing
        except FileNotFoundError:
            return visible.exists()
        return True

    def write_native(self, rows: DataFrame) -> None:
        without_rejected(rows).write.format(self._form.spark).mode("append").save(str(self._names.folder))

    def stream_native(self, rows: DataFrame) -> DataStreamWriter:
        folder = self._names.folder
        if names_in(folder) and not (folder / SPARK_METADATA).is_dir():
            raise RefusedStart(
                f"{folder} holds files that Spark's file sink did not write: its log ({SPARK_METADATA}) would hide "
                "them from every Spark reader. Take an empty folder, with a new checkpoint and sink_id: this "
                "checkpoint has noted the folder."
            )
        return without_rejected(rows).writeStream.format(self._form.spark).option("path", str(folder))

    def close(self) -> None:
        """Does nothing: no file is open between batches."""

    def _check(self, support: Support) -> None:
        if is_uri(self._asked):
            raise RefusedStart(
                f"{self._asked} is not a folder of a mounted file system, and an object store has no atomic rename. "
                "Give the path of a folder that every task can reach."
            )
        refuse_unfit_sink_id(self._names.sink_id)
        if support.variant != NATIVE:
            refuse_types(self._schema, self._form.no_types, f"a {self._form.suffix} file")
        if support.variant != NATIVE and (self._names.folder / SPARK_METADATA).exists():
            raise RefusedStart(
                f"{self._names.folder} belongs to Spark's file sink: its log ({SPARK_METADATA}) hides every other file "
                "from Spark readers. Give each of the two jobs a folder of its own."
            )

    def _try_out(self) -> None:
        """Writes, forces to the disk and renames a hidden file, as every batch does."""
        name = self._names.temporary(0, 0)
        # Always the same name: the next start removes a file that a crash left here.
        hidden, renamed = self._names.pending / name, self._names.folder / f".{self._names.sink_id}.tried"
        try:
            with hidden.open("xb") as file:
                file.write(b"\n")
                file.flush()
                os.fsync(file.fileno())
            hidden.rename(renamed)
        finally:
            hidden.unlink(missing_ok=True)
            renamed.unlink(missing_ok=True)


def _open(form: Format, settings: SinkSettings) -> FileSink:
    return FileSink(form, settings.output["output"], settings.sink_id, settings.partitions, settings.driver)


LACKS = {
    "exactly-once/idempotent": "a folder takes one file in one step, not a batch of them with its marker; "
    "two-phase publishes each file once and needs no marker",
}
FORMATS = {"files-jsonl": JSON_LINES, "files-parquet": PARQUET}
KINDS = tuple(
    SinkKind(
        name=name,
        supports=SUPPORTS,
        lacks=LACKS,
        open=partial(_open, form),
        none_open="prepared rows are hidden files in .pending, which block no reader, and a start of the job finishes "
        "or removes them",
    )
    for name, form in FORMATS.items()
)
