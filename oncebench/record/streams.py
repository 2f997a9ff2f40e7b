"""Arrow streams that grow during a run: written batch by batch, read to their last batch.

Promise: what was appended before a `kill -9` can be read afterwards. A file that was cut off at any byte is read up to
its last whole batch and reported incomplete, without an error. A file that is damaged, or was written by a newer
schema, raises `RecordError`, because a verdict over it would be a guess.

What can go wrong: nothing here calls fsync, so a power cut may lose the last batches. Arrow streams carry no checksum:
`oncebench.record.digests` finds values that were changed after the run.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from oncebench.record.earlier import with_added_columns
from oncebench.record.validation import SCHEMA_VERSION, RecordError, refuse_newer

VERSION_KEY = b"oncebench.schema"  # in the Arrow schema's metadata
END_MARK = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # Arrow columnar format, "IPC Streaming Format"
MESSAGE_START = END_MARK[:4]  # each message of a stream begins with this and four bytes of length
MAPPED_BYTES = 40_000_000  # of a file's pages that stay in memory while it is read
_UNREADABLE = (pa.ArrowException, OSError)  # what pyarrow raises for bytes that are no stream, or too few


@dataclass(frozen=True)
class Stream:
    """The rows of one Arrow stream, or of several that were joined.

    Attributes:
        complete: each writer closed its file.
        note: what is missing otherwise.
        mappings: the files in memory, in which the rows lie.
    """

    table: pa.Table
    complete: bool
    note: str = ""
    mappings: tuple[mmap.mmap, ...] = field(default=(), repr=False, compare=False)

    def release(self) -> None:
        """Gives back the memory of the pages that were read; the rows stay readable."""
        for mapping in self.mappings:
            mapping.madvise(mmap.MADV_DONTNEED)


def joined(streams: Sequence[Stream]) -> Stream:
    """The rows of streams of one schema, one stream after the other."""
    if len(streams) == 1:
        return streams[0]
    return Stream(
        pa.concat_tables([each.table for each in streams]),
        all(each.complete for each in streams),
        "; ".join(each.note for each in streams if each.note),
        tuple(mapping for each in streams for mapping in each.mappings),
    )


class StreamWriter:
    """Appends batches of rows to one Arrow stream.

    Each batch reaches the operating system before `append` returns. As a context manager, it writes the end mark only
    if no exception leaves the block, so a reader sees whether the stream is complete. Raises `RecordError` if the file
    exists.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        if path.exists():
            raise RecordError(f"{path} is already there and would be overwritten: give the run a new work folder")
        self.schema = schema.with_metadata({VERSION_KEY: str(SCHEMA_VERSION)})
        self._file = pa.OSFile(str(path), "wb")  # unbuffered: one write is one system call
        self._writer = pa.ipc.new_stream(self._file, self.schema)

    def append(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Appends rows, given as one sequence per column of the schema, all of the same length."""
        arrays = [pa.array(columns[field.name], field.type) for field in self.schema]
        self._writer.write_batch(pa.record_batch(arrays, schema=self.schema))

    def close(self, *, complete: bool = True) -> None:
        """Closes the file, with the end mark if `complete`."""
        if complete:
            self._writer.close()
        self._file.close()

    def __enter__(self) -> StreamWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(complete=kind is None)


def write_stream(path: Path, schema: pa.Schema, batches: Iterable[Mapping[str, Sequence[Any]]]) -> None:
    """Writes a whole stream from batches of columns."""
    with StreamWriter(path, schema) as writer:
        for columns in batches:
            writer.append(columns)


def read_stream(path: Path, schema: pa.Schema) -> Stream:
    """Reads a stream up to its last whole batch; a missing file gives no rows.

    Raises:
        RecordError: the file is no Arrow stream, is damaged before its end, has other columns, was written by a newer
            schema, or cannot be read.
    """
    if not path.exists():
        return Stream(schema.empty_table(), complete=False, note=f"{path.name} is missing")
    if not path.is_file():
        raise RecordError(f"{path} is no file; take the folder from a sound copy")
    if path.stat().st_size == 0:
        return Stream(schema.empty_table(), complete=False, note=f"{path.name} is empty")
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with pa.BufferReader(pa.py_buffer(mapping)) as source:
        size = source.size()
        try:
            reader = pa.ipc.open_stream(source)
        except _UNREADABLE as error:
            _refuse_unless_cut(source, 0, size, path, error)
            return Stream(schema.empty_table(), complete=False, note=f"{path.name} is cut off in its first bytes")
        _check_schema(reader.schema, schema, path)
        batches: list[pa.RecordBatch] = []
        mapped = 0
        while True:
            start = source.tell()
            try:
                batch = reader.read_next_batch()
                batch.validate(full=True)
            except StopIteration as end:  # by the end mark, or by the end of the file
                whole = start + len(END_MARK) == size
                if not whole and start < size:
                    _refuse_unless_cut(source, start, size, path, end)
                break
            except _UNREADABLE as error:
                _refuse_unless_cut(source, start, size, path, error)
                whole = False
                break
            batches.append(batch)
            mapped += batch.nbytes
            if mapped >= MAPPED_BYTES:
                mapping.madvise(mmap.MADV_DONTNEED)
                mapped = 0
        table = with_added_columns(pa.Table.from_batches(batches, reader.schema), schema).cast(schema)
    mapping.madvise(mmap.MADV_DONTNEED)
    return Stream(table, whole, "" if whole else f"{path.name} is cut off after {table.num_rows} rows", (mapping,))


def _refuse_unless_cut(source: pa.BufferReader, start: int, size: int, path: Path, error: Exception) -> None:
    """Raises `RecordError`, unless the message at byte `start` is cut off by the file's end."""
    source.seek(start)
    head = source.read(min(8, size - start))
    if len(head) < 8:  # marker and length, four bytes each
        cut = MESSAGE_START.startswith(head[:4])
    elif head[:4] == MESSAGE_START:
        cut = start + 8 + int.from_bytes(head[4:], "little") > size or isinstance(error, OSError)
    else:
        cut = False
    if not cut:
        raise RecordError(
            f"{path} is damaged at byte {start} ({str(error) or 'it ends too early'}). It cannot be judged: run "
            "the cell again, or take the folder from a sound copy"
        ) from error


def _check_schema(found: pa.Schema, wanted: pa.Schema, path: Path) -> None:
    version = (found.metadata or {}).get(VERSION_KEY, b"1").decode("ascii", "replace")
    refuse_newer(int(version) if version.isdigit() else SCHEMA_VERSION + 1, path)
    if not with_added_columns(found.empty_table(), wanted).schema.equals(wanted, check_metadata=False):
        raise RecordError(
            f"{path} has the columns {_columns(found)}, expected {_columns(wanted)}. Another version of oncebench "
            "wrote it: judge it with that version"
        )


def _columns(schema: pa.Schema) -> str:
    try:
        return ", ".join(f"{field.name} {field.type}" for field in schema)
    except UnicodeDecodeError:
        return "(names that are no text)"
