"""Files that grow while a run goes on: Arrow streams and JSON lines.

Promise: what was appended before a `kill -9` can be read afterwards. A file cut off at any byte is read up to
its last whole batch (or line) and reported incomplete; it never raises for that. A file that is damaged, or
was written by a newer schema, raises `RecordError`, because a judgement over it would be a guess.

What can go wrong: nothing here calls fsync, so a power cut may lose the tail; a bit that flips inside a value
is not seen here (Arrow streams carry no checksum), it shows up in the audit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from oncebench.record.validation import OBJECT, RecordError, require

__all__ = ["LineWriter", "Lines", "RecordError", "Stream", "StreamWriter", "read_lines", "read_stream", "refuse_newer"]

SCHEMA_VERSION = 1  # raised when a column or a file of the run folder changes its meaning
VERSION_KEY = b"oncebench.schema"  # in the Arrow schema's metadata
END_MARK = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # Arrow columnar format, "IPC Streaming Format"
MESSAGE_START = END_MARK[:4]  # each message of a stream begins with this and four bytes of length
_UNREADABLE = (pa.ArrowException, OSError)  # what pyarrow raises for bytes that are no stream, or too few


@dataclass(frozen=True)
class Stream:
    """The rows of one Arrow stream. `complete`: its writer closed it; if not, `note` says what is missing."""

    table: pa.Table
    complete: bool
    note: str = ""


@dataclass(frozen=True)
class Lines:
    """The objects of one JSON lines file; `damaged` counts lines a killed writer left unfinished."""

    items: tuple[dict[str, Any], ...]
    damaged: int = 0


class StreamWriter:
    """Appends batches of rows to one Arrow stream; each reaches the operating system before `append` returns.

    A context manager: left normally it writes the end mark, left by an exception it does not, so that a
    reader sees that the stream is incomplete. Raises `RecordError` if the file is already there.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        if path.exists():
            raise RecordError(f"{path} is already there and would be overwritten; give the run a new work folder")
        self.schema = schema.with_metadata({VERSION_KEY: str(SCHEMA_VERSION)})
        self._file = pa.OSFile(str(path), "wb")  # unbuffered: one write is one system call
        self._writer = pa.ipc.new_stream(self._file, self.schema)

    def append(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append rows given as one sequence per column of the schema, all of the same length."""
        arrays = [pa.array(columns[field.name], field.type) for field in self.schema]
        self._writer.write_batch(pa.record_batch(arrays, schema=self.schema))

    def close(self, *, complete: bool = True) -> None:
        """Close the file, with the end mark if `complete`."""
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
    """Write a whole stream from batches of columns."""
    with StreamWriter(path, schema) as writer:
        for columns in batches:
            writer.append(columns)


def read_stream(path: Path, schema: pa.Schema) -> Stream:
    """Read a stream up to its last whole batch.

    A missing file gives no rows and `complete=False`. Raises `RecordError` for a file that is no Arrow
    stream, is damaged before its end, has other columns, was written by a newer schema, or can't be read.
    """
    if not path.exists():
        return Stream(schema.empty_table(), complete=False, note=f"{path.name} is missing")
    if not path.is_file():
        raise RecordError(f"{path} is no file; take the folder from a sound copy")
    if path.stat().st_size == 0:
        return Stream(schema.empty_table(), complete=False, note=f"{path.name} is empty")
    with pa.memory_map(str(path)) as source:
        size = source.size()
        try:
            reader = pa.ipc.open_stream(source)
        except _UNREADABLE as error:
            _refuse_unless_cut(source, 0, size, path, error)
            return Stream(schema.empty_table(), complete=False, note=f"{path.name} is cut off in its first bytes")
        _check_schema(reader.schema, schema, path)
        batches: list[pa.RecordBatch] = []
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
        table = pa.Table.from_batches(batches, reader.schema).cast(schema)
    return Stream(table, whole, "" if whole else f"{path.name} is cut off after {table.num_rows} rows")


def _refuse_unless_cut(source: pa.MemoryMappedFile, start: int, size: int, path: Path, error: Exception) -> None:
    """Return if the message at byte `start` is only cut off by the file's end, raise `RecordError` if not."""
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
            f"{path} is damaged at byte {start} ({str(error) or 'it ends too early'}); it can't be judged: run the "
            "cell again, or take the folder from a sound copy"
        ) from error


def _check_schema(found: pa.Schema, wanted: pa.Schema, path: Path) -> None:
    version = (found.metadata or {}).get(VERSION_KEY, b"1").decode("ascii", "replace")
    refuse_newer(int(version) if version.isdigit() else SCHEMA_VERSION + 1, path)
    if not found.equals(wanted, check_metadata=False):
        raise RecordError(
            f"{path} has the columns {_columns(found)}, expected {_columns(wanted)}; it was not written by "
            "this version of oncebench: judge it with the version that wrote it"
        )


def _columns(schema: pa.Schema) -> str:
    try:
        return ", ".join(f"{field.name} {field.type}" for field in schema)
    except UnicodeDecodeError:
        return "(names that are no text)"


def refuse_newer(version: object, path: Path, newest: int = SCHEMA_VERSION) -> None:
    """Raise `RecordError` if `version`, the schema number found in `path`, is none that we know."""
    if type(version) is not int or not 1 <= version <= newest:
        raise RecordError(
            f"{path} has schema {version!r}; this oncebench reads up to {newest}: judge it with a newer one"
        )


class LineWriter:
    """Appends objects to a JSON lines file, one write per line: a killed writer cuts at most its last."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        if self._file.tell() and not path.read_bytes().endswith(b"\n"):
            self._file.write(b"\n")  # a writer before us was killed inside its last line

    def append(self, item: Mapping[str, Any]) -> None:
        """Append one object as one line."""
        self._file.write(json.dumps(item, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> LineWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_lines(path: Path, form: Any = OBJECT) -> Lines:
    """Read a JSON lines file; a missing file has no lines.

    A line that was cut off is skipped and counted, also in the middle, where the next process went on
    appending (then what follows on the same line is kept). Raises `RecordError` for a line that is no JSON
    object at all, or one that does not fit `form`.
    """
    if not path.exists():
        return Lines(())
    if not path.is_file():
        raise RecordError(f"{path} is no file; take the folder from a sound copy")
    items: list[dict[str, Any]] = []
    damaged = 0
    openings: set[bytes] = set()  # how whole lines of this file begin, such as {"kind":
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        if not line.startswith(b"{"):
            raise RecordError(
                f"{path}, line {number} is no JSON object ({line[:40]!r}); it was not written by oncebench "
                "or is damaged: run the cell again, or take the folder from a sound copy"
            )
        item = _object(line)
        if item is None:
            damaged += 1
            item = _object_at_the_end(line, openings)
        else:
            openings.add(line[: line.find(b":") + 1])
        if item is not None:
            require(item, form, path)
            items.append(item)
    return Lines(tuple(items), damaged)


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        item = json.loads(text)
    except ValueError:
        return None
    return item if isinstance(item, dict) else None


def _object_at_the_end(line: bytes, openings: set[bytes]) -> dict[str, Any] | None:
    """The object that a second writer appended to a first writer's cut-off line; never an object inside another."""
    starts = [line.rfind(opening, 1) for opening in openings if opening]
    return _object(line[max(starts) :]) if max(starts, default=-1) > 0 else None
