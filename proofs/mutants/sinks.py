"""Sinks and readers with one detail changed, and faults that hit a sink from outside."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from oncebench.delivery import digest
from oncebench.delivery.contract import Sink, SinkSettings, Support, TaskView, Writer
from oncebench.delivery.errors import CommitUncertain
from oncebench.sinks.files.broken import VisibleNames
from oncebench.sinks.files.folder import PENDING, names_in
from oncebench.sinks.files.formats import JSON_LINES, lines_of
from oncebench.sinks.files.names import Names
from oncebench.sinks.files.reader import read_folder
from oncebench.sinks.files.sink import FileSink, FileWriter
from oncebench.sinks.reader import Rows, Snapshots
from oncebench.sinks.sqlite.sink import _MARK, MarkedWriter, SqliteSink, connect, transaction
from pipeline.rows import KEY, ROW
from proofs.mutants.small_run import FAULT_BATCH, Died, Run

Opens = Callable[[SinkSettings], Sink]
Change = Callable[[pa.RecordBatch], pa.RecordBatch]
WINDOW = 10  # newest rows that `RemembersFew` recognises


# ------------------------------------------------------------------------------------------ changed rows


@dataclass(frozen=True)
class Changed:
    """A writer that receives changed rows in one partition of one batch."""

    writer: Writer
    change: Change

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        return self.writer.write(
            task, self._changed(rows) if (task.batch, task.partition) == (FAULT_BATCH, 0) else rows
        )

    def _changed(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield self.change(together(rows))


def together(rows: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows of a partition that is not empty."""
    (whole,) = pa.Table.from_batches(list(rows)).combine_chunks().to_batches()
    return whole


def taking(*places: int) -> Change:
    """Takes the rows at these places: 0 to 19 is the first session, 20 to 39 the second."""
    return lambda rows: rows.take(pa.array(places))


def files_with(change: Change) -> Opens:
    """Two-phase files whose tasks write changed rows once."""

    class Sinks(FileSink):
        def prepare_writer(self) -> Any:
            return Changed(super().prepare_writer(), change)

    return opener(Sinks)


def opener(sink: type[FileSink], form: Any = JSON_LINES) -> Opens:
    return lambda config: sink(form, config.output["output"], config.sink_id, config.partitions)


def _flipping(file: BinaryIO, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> None:
    lines = bytearray(b"".join(bytes(lines_of(rows)) for rows in (first, *others)))
    lines[lines.index(b',"checksum"') - 1] ^= 1  # the last digit of a total
    file.write(lines)


FLIPPING = replace(JSON_LINES, write=_flipping)


# ------------------------------------------------------------------------------------------ files


class NeverForced(FileSink):
    """Files are not forced to the disk before they are renamed."""

    def prepare_writer(self) -> FileWriter:
        return replace(super().prepare_writer(), durable=False)


class NotHidden(FileSink):
    """Prepared files are visible to readers."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        ours = self._names
        self._names = VisibleNames(ours.folder, ours.sink_id, ours.generation, ours.suffix)


@dataclass(frozen=True)
class InPlaceWriter:
    """Writes a file under its final name, so readers can see half of it."""

    names: Names

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        made = list(rows)
        if not made:
            return {}, {}
        lines = b"".join(bytes(lines_of(each)) for each in made)
        name = self.names.temporary(task.batch, task.partition)
        task.reach("before-prepare")
        with (self.names.folder / self.names.final(name)).open("wb", buffering=0) as file:
            file.write(lines[: len(lines) // 2 - 7])  # ends in the middle of a line
            task.reach("after-prepare")
            file.write(lines[len(lines) // 2 - 7 :])
        return {"file": name}, {}


class InPlace(FileSink):
    def prepare_writer(self) -> Any:
        return InPlaceWriter(self._names)


class NamedByAttempt(Names):
    """Every attempt uses another file name."""

    def final(self, temporary: str) -> str:
        return temporary


class NamedAnew(FileSink):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        ours = self._names
        self._names = NamedByAttempt(ours.folder, ours.sink_id, ours.generation, ours.suffix)


class RemovesTooMuch(FileSink):
    """A start also removes the newest batch's files."""

    def start(self, support: Support, generation: int, decided: Sequence[Mapping[str, Any]]) -> None:
        super().start(support, generation, decided)
        newest = max((mark.batch for mark in self._marks.values()), default=-1)
        for name in names_in(self._names.folder):
            if (self._names.batch_and_partition(name) or (None,))[0] == newest:
                (self._names.folder / name).unlink()


class RemovesNothing(FileSink):
    """A start does not remove leftovers of dead writers."""

    def start(self, support: Support, generation: int, decided: Sequence[Mapping[str, Any]]) -> None:
        left = names_in(self._names.pending)
        super().start(support, generation, [*decided, *({"file": name} for name in left)])


class IgnoresFailures(FileSink):
    """A failed commit counts as done."""

    def commit(self, batch: int, prepared: Mapping[int, Mapping[str, Any]]) -> set[int]:
        with suppress(CommitUncertain):
            super().commit(batch, prepared)
        return set()


# ------------------------------------------------------------------------------------------ sqlite


@dataclass(frozen=True)
class MarksLater(MarkedWriter):
    """The ledger's row is written in a transaction of its own."""

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        values = list(_values(rows))
        task.reach("before-prepare")
        with closing(connect(self.path)) as connection:
            with transaction(connection):
                self._stop_if_older(connection)
                _insert(connection, values)
            task.reach("after-prepare")
            counted, summed = task.counted()
            marker = (self.sink_id, task.partition, task.batch, counted, digest.to_text(summed), self.driver)
            with transaction(connection):
                connection.execute(_MARK, marker)
        return {}, {}


@dataclass(frozen=True)
class RemembersFew(MarkedWriter):
    """Drops rows that are among the newest rows of the table; writes no marker."""

    def write(self, task: TaskView, rows: Iterator[pa.RecordBatch]) -> tuple[dict[str, Any], dict[str, float]]:
        values = list(_values(rows))
        task.reach("before-prepare")
        with closing(connect(self.path)) as connection, transaction(connection):
            newest = connection.execute("SELECT session_key, j FROM rows ORDER BY id DESC LIMIT ?", (WINDOW,))
            known = set(newest.fetchall())
            _insert(connection, [row for row in values if row[:2] not in known])
        return {}, {}


@dataclass(frozen=True)
class NeverChecks(MarkedWriter):
    """A worker does not check for a newer driver."""

    def _stop_if_older(self, connection: Any) -> None:
        del connection


def _values(rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in rows:
        yield from zip(*(batch.column(name).to_pylist() for name in ROW), strict=True)


def _insert(connection: Any, values: list[tuple[Any, ...]]) -> None:
    connection.executemany(f"INSERT INTO rows ({', '.join(ROW)}) VALUES (?, ?, ?, ?, ?, ?)", values)  # noqa: S608 - names of our own columns


def sqlite_with(writer: type[MarkedWriter]) -> Opens:
    """SQLite whose tasks use another writer."""

    class Sinks(SqliteSink):
        def idempotent_writer(self) -> MarkedWriter:
            return writer(self._path, self._sink_id, self._generation, self._driver)

    return lambda config: Sinks(config.output["output"], config.sink_id, config.partitions)


def sqlite_under_a_new_name(config: SinkSettings) -> Sink:
    """Every driver uses a name of its own for its ledger and its generation."""
    return SqliteSink(config.output["output"], uuid.uuid4().hex, config.partitions)


class Shared(SqliteSink):
    """Another pipeline with the same name starts right after this one."""

    def start(self, support: Support, generation: int, decided: Sequence[Mapping[str, Any]]) -> None:
        super().start(support, generation, decided)
        SqliteSink(self._path, self._sink_id, self.partitions).start(support, generation + 1, decided)


def shared(config: SinkSettings) -> Sink:
    return Shared(config.output["output"], config.sink_id, config.partitions)


# ------------------------------------------------------------------------------------------ readers and faults


def uncommitted(target: Mapping[str, Any]) -> Snapshots:
    """A reader of files that also sees prepared files."""
    folder = Path(target["output"])
    both = read_folder(JSON_LINES, folder, KEY), read_folder(JSON_LINES, folder / PENDING, KEY)

    def fresh() -> Rows:
        visible, hidden = (reader.poll(0) for reader in both)
        columns = ("partition", "offset", "append_ms", "key", "value", "headers")
        return Rows(*(getattr(visible, name) + getattr(hidden, name) for name in columns))

    return Snapshots(fresh)


def lose_what_is_prepared(run: Run) -> None:
    """Prepared files vanish, like a transaction after its time-out, and the driver dies."""
    for path in (Path(run.target["output"]) / PENDING).iterdir():
        path.unlink()
    raise Died


def cut_the_power(run: Run) -> None:
    """Files that were not forced to the disk become empty, and the driver dies."""
    for path in Path(run.target["output"]).rglob("*.jsonl"):
        if path.stat().st_ino not in run.forced:
            os.truncate(path, 0)
    raise Died


def refuse_a_rename(_run: Run) -> None:
    """The disk refuses the next rename of a prepared file, and accepts later ones."""
    sound = FileSink._publish

    def refused(_sink: FileSink, _name: str) -> bool:
        FileSink._publish = sound  # type: ignore[method-assign]
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    FileSink._publish = refused  # type: ignore[method-assign]
