"""The run folder as one value: everything the audit needs, read once, never changed.

Promise: `Record.load` returns a record whose parts fit together, with every incomplete part marked as such. Otherwise
it raises `RecordError`, which says what is wrong, where, and what to do. It only reads, and repairs nothing.

What can go wrong: the run is still going on. Then it loads, and every file that is still being written is incomplete.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncebench.record import digests, schema
from oncebench.record.earlier import current_cell
from oncebench.record.json_lines import Lines, read_lines
from oncebench.record.streams import Stream, read_stream
from oncebench.record.validation import OBJECT, RecordError, refuse_newer, require

WORK_FOLDER_FILE = "oncebench-work.json"
FACTS = "facts.json"  # topics, servers, resources; missing if the run ended by an error
MAX_SEQS = 100  # a session has seq 0..99

_POSITION = [("partition", pa.int32()), ("offset", pa.int64())]
_BODY = [("key", pa.binary()), ("value", pa.binary())]
INPUT = pa.schema([*_POSITION, ("timestamp_ms", pa.int64()), *_BODY])
FINAL = INPUT
OBSERVED = pa.schema([*_POSITION, ("append_ms", pa.int64()), ("seen_us", pa.int64()), *_BODY])
QUARANTINE = pa.schema(
    [
        *_POSITION,
        ("timestamp_ms", pa.int64()),
        *_BODY,
        ("reason", pa.string()),
        ("source_partition", pa.int32()),
        ("source_offset", pa.int64()),
        # The lengths of the original's key and value, where the copy was cut.
        ("key_bytes", pa.int64()),
        ("value_bytes", pa.int64()),
    ]
)
LOG = pa.schema(
    [
        *_POSITION,
        ("last_offset", pa.int64()),
        ("records", pa.int32()),
        ("producer", pa.int64()),
        ("generation", pa.int64()),
        ("transactional", pa.bool_()),
        ("marker", pa.string()),
    ]
)

_LEDGER_TYPES: dict[str, type[np.generic]] = {
    "session": np.uint32,
    "seq": np.uint8,
    "scheduled_us": np.int64,
    "sent_us": np.int64,
    "acked_us": np.int64,
    "partition": np.int32,
    "offset": np.int64,
}


@dataclass(frozen=True)
class Plan:
    """The generator's plan (`ledger/plan.json`), read without the generator's code.

    `started_us` is the start of the load, in epoch µs.
    """

    seed: int
    sessions: int
    events: int
    topic: str
    started_us: int
    rate: float | str = "max"
    shape: str = "constant"


@dataclass(frozen=True)
class Ledger:
    """The generator's ledger, read without the generator's code: an entry per planned event.

    The entries are in schedule order, and all arrays have the length `Plan.events`.

    `sent_us` is 0 if the event was never attempted. `acked_us` is 0 if the outcome is unknown, negative if it failed.
    """

    session: npt.NDArray[np.uint32]
    seq: npt.NDArray[np.uint8]
    scheduled_us: npt.NDArray[np.int64]
    sent_us: npt.NDArray[np.int64]
    acked_us: npt.NDArray[np.int64]
    partition: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]

    def release(self) -> None:
        """Gives back the memory of the columns' files that were read; the values stay readable."""
        for column in vars(self).values():
            if isinstance(mapping := getattr(column, "_mmap", None), mmap.mmap):
                mapping.madvise(mmap.MADV_DONTNEED)

    @property
    def unanswered(self) -> int:
        """Number of events that were attempted, and that Kafka neither acknowledged nor refused."""
        return int(np.count_nonzero((self.sent_us > 0) & (self.acked_us == 0)))

    @property
    def sent_share(self) -> float:
        """Share of planned events that were attempted and did not fail; 1.0 without any."""
        return float(np.mean((self.sent_us > 0) & (self.acked_us >= 0))) if len(self.seq) else 1.0


@dataclass(frozen=True)
class Record:
    """One run, as recorded. Streams may be incomplete; see `Stream.complete`.

    Attributes:
        log: the stretches of the output's log (`sinks.reader.Stretches`); missing for a sink without such a log.
        cell, ends, facts and the lines: see `schema`. `ends` and `facts` are empty if the run ended before writing
            them.
        altered: a sentence for each file that is not as the run wrote it (`digests`).
    """

    path: Path
    cell: Mapping[str, Any]
    plan: Plan
    ledger: Ledger
    input: Stream
    final: Stream
    observed: Stream
    quarantine: Stream
    ends: Mapping[str, Any]
    log: Stream = field(default_factory=lambda: Stream(LOG.empty_table(), complete=False))
    facts: Mapping[str, Any] = field(default_factory=dict)
    progress: Lines = field(default_factory=lambda: Lines(()))
    hits: Lines = field(default_factory=lambda: Lines(()))
    timeline: Lines = field(default_factory=lambda: Lines(()))
    observer: Lines = field(default_factory=lambda: Lines(()))
    load_status: Lines = field(default_factory=lambda: Lines(()))
    altered: tuple[str, ...] = ()

    @staticmethod
    def load(path: Path) -> Record:
        """Reads the run folder `path`.

        Raises:
            RecordError: `path` is no run folder, is damaged, or is newer than this code.
        """
        work_folder_file = path / WORK_FOLDER_FILE
        if not work_folder_file.is_file():
            raise RecordError(
                f"{path} is no run folder ({WORK_FOLDER_FILE} is missing). Give the work folder of a run, such as "
                "results/local/work/run-20260101-120000-4242; `oncebench run` prints it in the line `files`."
            )
        _read_object(work_folder_file, OBJECT)
        plan = _read_plan(path / "ledger" / "plan.json")
        return Record(
            path=path,
            cell=_read_object(path / "cell.json", schema.CellFile),
            plan=plan,
            ledger=_read_ledger(path / "ledger", plan),
            input=read_stream(path / "input.arrow", INPUT),
            final=read_stream(path / "final.arrow", FINAL),
            observed=read_stream(path / "observed.arrow", OBSERVED),
            quarantine=read_stream(path / "quarantine.arrow", QUARANTINE),
            log=read_stream(path / "log.arrow", LOG),
            ends=_read_object(path / "ends.json", schema.Ends) if (path / "ends.json").exists() else {},
            facts=_read_object(path / FACTS, schema.Facts) if (path / FACTS).exists() else {},
            progress=read_lines(path / "progress.jsonl", schema.Progress),
            hits=read_lines(path / "hits.jsonl", schema.Hit),
            timeline=read_lines(path / "timeline.jsonl", schema.Timeline),
            observer=read_lines(path / "observer.jsonl", schema.Observer),
            load_status=read_lines(path / "load.jsonl", schema.Load),
            altered=digests.altered(path),
        )


def _read_object(path: Path, kind: Any) -> dict[str, Any]:
    try:
        item = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RecordError(
            f"{path} is missing. Either the run ended before writing it, or the folder was copied in part"
        ) from None
    except ValueError as error:
        raise RecordError(f"{path} is no JSON ({error}); take the folder from a sound copy") from error
    except OSError as error:
        raise RecordError(f"{path} cannot be read ({error.strerror}); take the folder from a sound copy") from error
    require(item, OBJECT, path)
    refuse_newer(item.get("schema", 1), path)
    if "cell" in item:
        item["cell"] = current_cell(item["cell"])
    require(item, kind, path)
    return dict(item)


def _read_plan(path: Path) -> Plan:
    item = _read_object(path, schema.Plan)
    known = {each.name for each in fields(Plan)}
    return Plan(**{"topic": "", **{name: item[name] for name in known & item.keys()}})


def _read_ledger(folder: Path, plan: Plan) -> Ledger:
    events = plan.events
    columns: dict[str, npt.NDArray[Any]] = {}
    for name, kind in _LEDGER_TYPES.items():
        path = folder / f"{name}.npy"
        try:
            column = np.load(path, mmap_mode="r" if events else None, allow_pickle=False)
        except FileNotFoundError:
            raise RecordError(f"{path} is missing. Losses are counted against the whole ledger: run again") from None
        except (ValueError, OSError, EOFError) as error:
            raise RecordError(f"{path} is damaged ({error}); take the folder from a sound copy") from error
        if column.dtype != kind or column.shape != (events,):
            raise RecordError(
                f"{path} holds {column.dtype} {column.shape}, expected {np.dtype(kind)} ({events},) by plan.json; "
                "the ledger belongs to another run or another version"
            )
        columns[name] = column
    if events and (int(columns["session"].max()) >= plan.sessions or int(columns["seq"].max()) >= MAX_SEQS):
        raise RecordError(
            f"{folder} holds a session or seq beyond plan.json ({plan.sessions} sessions). The ledger belongs to "
            "another run, or is damaged: run the load again"
        )
    ledger = Ledger(**columns)
    ledger.release()
    return ledger
