"""The run folder as one value: everything the audit needs, read once, never changed.

Promise: `Record.load` returns a record whose parts fit together, with every incomplete part marked as such. Otherwise
it raises `RecordError`, which says what is wrong, where, and what to do. It only reads, and repairs nothing.

What can go wrong: the run is still going on. Then it loads, and every file that is still being written is incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from oncebench.record import digests, schema
from oncebench.record.json_lines import Lines, read_lines
from oncebench.record.ledgers import Ledger, Plan, read_ledgers
from oncebench.record.numbered import numbered
from oncebench.record.objects import read_object
from oncebench.record.streams import Stream, joined, read_stream
from oncebench.record.validation import OBJECT, RecordError

WORK_FOLDER_FILE = "oncebench-work.json"
FACTS = "facts.json"  # topics, servers, resources; missing if the run ended by an error

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


@dataclass(frozen=True)
class Record:
    """One run, as recorded. Streams may be incomplete; see `Stream.complete`.

    Attributes:
        log: the stretches of the output's log (`sinks.reader.Stretches`); missing for a sink without such a log.
        cell, ends, facts and the lines: see `schema`. `ends` and `facts` are empty if the run ended before writing
            them.
        observed: the rows of all observers, one observer after the other.
        load_status: the status lines of each generator.
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
    load_status: tuple[Lines, ...] = ()
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
        read_object(work_folder_file, OBJECT)
        cell = read_object(path / "cell.json", schema.CellFile)
        generators, observers = (cell["cell"].get(name, 1) for name in ("generators", "observers"))
        plan, ledger = read_ledgers([path / name for name in numbered("ledger", generators)])
        facts = read_object(path / FACTS, schema.Facts) if (path / FACTS).exists() else {}
        observed = [read_stream(path / name, OBSERVED) for name in numbered("observed.arrow", observers)]
        return Record(
            path=path,
            cell=cell,
            plan=plan,
            ledger=ledger,
            input=read_stream(path / "input.arrow", INPUT),
            final=read_stream(path / "final.arrow", FINAL),
            observed=joined(observed),
            quarantine=read_stream(path / "quarantine.arrow", QUARANTINE),
            log=read_stream(path / "log.arrow", LOG),
            ends=read_object(path / "ends.json", schema.Ends) if (path / "ends.json").exists() else {},
            facts=facts,
            progress=read_lines(path / "progress.jsonl", schema.Progress),
            hits=read_lines(path / "hits.jsonl", schema.Hit),
            timeline=read_lines(path / "timeline.jsonl", schema.Timeline),
            load_status=tuple(read_lines(path / name, schema.Load) for name in numbered("load.jsonl", generators)),
            altered=digests.altered(path, bool(facts.get("digests"))),
        )
