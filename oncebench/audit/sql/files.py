"""The files of a run folder as tables for SQL, read with pyarrow, numpy and json only.

Promise: no code is shared with the Python auditor's reader, so a mistake there cannot hide here. Each row of a stream
gets `pos`, its partition and offset as one number, and `at`, its row number in the file. A file that is cut off gives
the rows before the cut, a missing file none.

What can go wrong: an impossible position or an incomplete ledger raises. The caller then has no SQL audit.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import SEEK_END
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa

from oncebench.audit.sql.gaps import accepted_batches, accepted_offsets

OFFSETS = 1 << 44  # per partition; `pos` is partition * OFFSETS + offset
PARTITIONS = 1 << 19
TIMEOUT_MS = 600_000  # of every run whose cell.json does not have it
LEDGER = ("session", "seq", "scheduled_us", "sent_us", "acked_us", "partition", "offset")
CHECKED_BYTES = 40_000_000  # of a file's pages that stay in memory while the file is checked
RELEASE_S = 0.05  # SQL reads some 20 MB of a file in this time
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # how a closed Arrow stream ends

CUT = ("key_bytes", "value_bytes")  # an earlier version cut no copies, and its files lack these columns
_RECORD = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
_INPUT = pa.schema([*_RECORD, ("timestamp_ms", pa.int64())])
_OBSERVED = pa.schema([*_RECORD, ("seen_us", pa.int64())])
_QUARANTINE = pa.schema(
    [
        *_RECORD,
        ("reason", pa.string()),
        ("source_partition", pa.int32()),
        ("source_offset", pa.int64()),
        *((name, pa.int64()) for name in CUT),
    ]
)

_LOG = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("records", pa.int32()),
        ("producer", pa.int64()),
        ("generation", pa.int64()),
        ("transactional", pa.bool_()),
        ("marker", pa.string()),
    ]
)
_BATCH_RANGES = pa.schema([*((name, pa.int64()) for name in ("batch", "partition", "start", "below")),
                    ("reported", pa.bool_())])  # fmt: skip
_BATCH_ENDS = pa.schema([(name, pa.int64()) for name in ("number", "partition", "below")])
OPEN = pa.schema(
    [
        *((name, pa.int64()) for name in ("partition", "started_ms", "timeout_ms", "asked_ms")),
        ("state", pa.string()),
        ("here", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Files:
    """The contents of a run folder.

    Attributes:
        final_whole, log_whole: the file was closed.
        committed: the end of the committed offsets, per input partition.
        batch_ends: the end of each known batch, per input partition.
        accepted_batches, accepted_offsets: see `gaps`.
        timeout_ms: how long the pipeline keeps a session without a new event at least.
        started_us: when the load began.
        workload: what the pipeline computed.
        batch_ranges: each batch's range of each input partition, and whether an attempt reported its delivery.
        drained: None if the timeline has neither event.
        mappings: the files in memory, in which the streams and the ledger lie.
    """

    input: pa.Table
    final: pa.Table
    observed: pa.Table
    quarantine: pa.Table
    log: pa.Table
    ledger: pa.Table
    final_whole: bool
    log_whole: bool
    seed: int
    planned: int
    ends: Mapping[str, Any]
    committed: Mapping[int, int]
    batch_ranges: pa.Table
    batch_ends: pa.Table
    accepted_batches: pa.Table
    accepted_offsets: pa.Table
    timeout_ms: int
    drained: bool | None
    started_us: int = 0
    workload: str = "sessions"
    mappings: tuple[mmap.mmap, ...] = ()

    def release(self) -> None:
        """Gives back the memory of the files' pages that were read; they stay readable."""
        for mapping in self.mappings:
            mapping.madvise(mmap.MADV_DONTNEED)


@contextmanager
def released(files: Files) -> Iterator[None]:
    """Gives back the memory of the pages that SQL has read, all the time while the block runs.

    The pages stay readable. DuckDB has no step at which a caller could do this, and a file may be larger than memory.
    """
    done = Event()

    def release() -> None:
        while not done.wait(RELEASE_S):
            files.release()

    thread = Thread(target=release, name="release", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def read_files(folder: Path) -> Files:
    """Reads the files of `folder`."""
    described = json.loads((folder / "cell.json").read_bytes())
    ledgers, observed = (
        [folder / file for file in _each(file, described.get("cell", {}).get(processes, 1))]
        for file, processes in (("ledger", "generators"), ("observed.arrow", "observers"))
    )
    plan = json.loads((ledgers[0] / "plan.json").read_bytes())
    ends = folder / "ends.json"
    mappings: list[mmap.mmap] = []
    progress = _lines(folder / "progress.jsonl", "kind")
    return Files(
        input=placed(_stream(folder / "input.arrow", mappings, _INPUT)),
        final=placed(_stream(folder / "final.arrow", mappings, _RECORD)),
        observed=placed(pa.concat_tables([_stream(path, mappings, _OBSERVED) for path in observed])),
        quarantine=with_row_numbers(_stream(folder / "quarantine.arrow", mappings, _QUARANTINE)),
        log=placed(_stream(folder / "log.arrow", mappings, _LOG)),
        ledger=pa.concat_tables([_ledger(path, mappings) for path in ledgers]),
        final_whole=_is_closed(folder / "final.arrow"),
        log_whole=_is_closed(folder / "log.arrow"),
        seed=plan["seed"],
        planned=plan["sessions"],
        ends=json.loads(ends.read_bytes()) if ends.exists() else {},
        committed=committed(progress),
        batch_ranges=batch_ranges(progress),
        batch_ends=batch_ends(progress),
        accepted_batches=accepted_batches(progress),
        accepted_offsets=accepted_offsets(progress),
        timeout_ms=described.get("session_timeout_ms", TIMEOUT_MS),
        drained=drained(_lines(folder / "timeline.jsonl", "event")),
        started_us=plan["started_us"],
        workload=described.get("cell", {}).get("workload", "sessions"),
        mappings=tuple(mappings),
    )


def placed(table: pa.Table) -> pa.Table:
    """Returns the table with `pos` and `at`. Raises ValueError for an impossible position."""
    partition, offset = (table[name].to_numpy().astype(np.int64) for name in ("partition", "offset"))
    if ((partition < 0) | (partition >= PARTITIONS) | (offset < 0) | (offset >= OFFSETS)).any():
        raise ValueError("a row has an impossible partition or offset")
    pos = pa.array(partition * OFFSETS + offset)
    return with_row_numbers(table.append_column("pos", pos))


def with_row_numbers(table: pa.Table) -> pa.Table:
    """Returns the table with a column `at`: the number of each row, from 0 on."""
    return table.append_column("at", pa.array(np.arange(table.num_rows, dtype=np.int32)))


def committed(progress: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Returns the highest end of all batches or positions, per input partition."""
    ends: dict[int, int] = {}
    for line in progress:
        for partition, end in line["end_offsets"].items() if line["kind"] in ("batch", "position") else ():
            ends[int(partition)] = max(end, ends.get(int(partition), 0))
    return ends


def batch_ranges(progress: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Returns (batch, partition, start, below, reported) of the batches with a known range.

    A range begins at the end of the batch before. A batch with two different ends is not known: the checkpoint was
    lost or rolled back in between.
    """
    ends_of: dict[int, list[Mapping[str, int]]] = {-1: [{}]}
    reported = set()
    for line in progress:
        if line["kind"] == "batch":
            ends_of.setdefault(line["batch"], []).append(line["end_offsets"])
        if line["kind"] == "sink" and not line.get("drained", True) and not line.get("dropped"):
            reported.add(line["batch"])
    read = {batch: ends[0] for batch, ends in ends_of.items() if all(end == ends[0] for end in ends)}
    rows = [
        {"batch": batch, "partition": int(partition), "start": read[batch - 1].get(partition, 0), "below": below,
         "reported": batch in reported}
        for batch, ends in read.items() if batch - 1 in read
        for partition, below in ends.items()
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, _BATCH_RANGES)


def batch_ends(progress: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Returns (number, partition, below) of the batches that have one end only."""
    ends_of: dict[int, list[Mapping[str, int]]] = {}
    for line in progress:
        if line["kind"] == "batch":
            ends_of.setdefault(line["batch"], []).append(line["end_offsets"])
    rows = [
        {"number": batch, "partition": int(partition), "below": below}
        for batch, ends in ends_of.items()
        if all(end == ends[0] for end in ends)
        for partition, below in ends[0].items()
    ]
    return pa.Table.from_pylist(rows, _BATCH_ENDS)


def drained(timeline: Iterable[Mapping[str, Any]]) -> bool | None:
    """Whether the supervisor's last end event is `drained`; None without one."""
    ends = [line["event"] == "drained" for line in timeline if line["event"] in ("drained", "stalled")]
    return ends[-1] if ends else None


def _each(name: str, processes: int) -> list[str]:
    """Returns the names of a file that each process of a kind writes.

    The names have numbers only if there are several processes.
    """
    stem, dot, ending = name.partition(".")
    return [name] if processes == 1 else [f"{stem}-{at + 1}{dot}{ending}" for at in range(processes)]


def _ledger(folder: Path, mappings: list[mmap.mmap]) -> pa.Table:
    columns = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in LEDGER}
    mappings += [column._mmap for column in columns.values()]
    return pa.table(columns)


def _stream(path: Path, mappings: list[mmap.mmap], schema: pa.Schema) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    unreleased = 0
    try:
        with path.open("rb") as file:
            mappings.append(mapping := mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        for batch in pa.ipc.open_stream(pa.py_buffer(mapping)):
            batch.validate(full=True)
            batches.append(_selected(batch, schema))
            unreleased += batch.nbytes
            if unreleased > CHECKED_BYTES:
                mapping.madvise(mmap.MADV_DONTNEED)
                unreleased = 0
    except (pa.ArrowException, OSError, ValueError):
        pass  # missing, empty or cut off: the Python auditor reports files that are damaged otherwise
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def _selected(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    for name in CUT:
        if name in schema.names and name not in batch.schema.names:
            batch = batch.append_column(name, pa.nulls(batch.num_rows, pa.int64()))
    return batch.select(schema.names)


def _is_closed(path: Path) -> bool:
    if not path.exists() or path.stat().st_size < len(_END):
        return False
    with path.open("rb") as file:
        file.seek(-len(_END), SEEK_END)
        return file.read() == _END


def _lines(path: Path, mark: str) -> list[dict[str, Any]]:
    """Reads the objects of a JSON lines file, also those appended to a cut-off line.

    `mark`: a field that every line has, and no object inside a line.
    """
    found = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        starts = [at for at in range(len(line)) if line.startswith(b'{"', at)]
        items = (_object(line[at:]) for at in starts)
        found += [next((item for item in items if mark in item), {})]
    return [item for item in found if item]


def _object(text: bytes) -> dict[str, Any]:
    try:
        item = json.loads(text)
    except ValueError:
        return {}
    return item if isinstance(item, dict) else {}
