"""Derives the tables that the counts read, step by step, from the files of a run.

Promise: the contract of load and pipeline, written a second time. An event is valid by itself if its fields are right.
Of the events of a session with one seq, the first one that the pipeline read counts: by batch, then by partition and
offset. The last of the 100 first events finishes the session; later events are after its end. A row is identified by
(session_key, j), and never by totals, so one loss and one duplicate are two counts.

What can go wrong: a file has one position twice. Then the first row counts, as in the Python auditor.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from oncebench.audit.sql.files import Files
from oncebench.audit.sql.long_contents import changed
from oncebench.audit.sql.nonstandard_json import parse_nonstandard, portions
from oncebench.audit.sql.statements import queries, statements

# Each file's first lines name the tables that it needs and makes.
SOURCE = ("first_events", "ledger", "quarantined")
COMPARISONS = ("row_ids", "quarantine", "reads", "transaction_log")


@dataclass(frozen=True)
class Form:
    """How the JSON values of a stream are read.

    Attributes:
        statements: the file that reads all values.
        nonstandard: the file that replaces the rows of nonstandard values.
        texts, numbers: the fields of a value.
    """

    statements: str
    nonstandard: str
    texts: tuple[str, ...]
    numbers: tuple[str, ...]

    def read(self, con: duckdb.DuckDBPyConnection, stream: pa.Table) -> None:
        """Reads the values of a stream."""
        con.execute(statements(self.statements))
        _parse(con, self.nonstandard, stream, self.texts, self.numbers)


EVENTS = Form("events", "nonstandard_events", ("session_key", "type"), ("seq", "value", "scheduled_at"))
_NUMBERS = ("j", "events", "total", "checksum", "ended_at")
ROWS = Form("visible_rows", "nonstandard_rows", ("session_key",), _NUMBERS)


@dataclass(frozen=True)
class Workload:
    """The right answer of a workload.

    Attributes:
        units: the files that find what is in place of sessions.
        expected: returns the expected rows.
        counts: further counts, by name.
        events, rows: the forms of input and output.
        keys: the files that make keys and events, if the form of the input does not.
    """

    units: tuple[str, ...]
    expected: Callable[[duckdb.DuckDBPyConnection], pa.Table]
    counts: Mapping[str, str] = field(default_factory=dict)
    events: Form = EVENTS
    rows: Form = ROWS
    keys: tuple[str, ...] = ()


def _of_sessions(con: duckdb.DuckDBPyConnection) -> pa.Table:
    return _with_checksums(con.sql(statements("expected_rows")).to_arrow_table())


def _of_windows(con: duckdb.DuckDBPyConnection) -> pa.Table:
    return con.sql(statements("expected_windows")).to_arrow_table()


def _of_records(con: duckdb.DuckDBPyConnection) -> pa.Table:
    return con.sql(statements("expected_records")).to_arrow_table()


WORKLOADS: Mapping[str, Workload] = {
    "sessions": Workload(("divided", "sessions"), _of_sessions),
    "windows": Workload(("windows",), _of_windows, queries("counts_of_windows")),
    "records": Workload(
        (),
        _of_records,
        events=Form("read_records", "nonstandard_records", ("id", "load", "record"), ("n", "scheduled_at")),
        rows=Form("visible_records", "nonstandard_visible_records", ("session_key", "record"), _NUMBERS),
        keys=("records",),
    ),
}


def derive(con: duckdb.DuckDBPyConnection, files: Files) -> None:
    """Makes all tables from those that `count.register` makes of the files."""
    con.execute(statements("positions"))
    workload = WORKLOADS[files.workload]
    workload.events.read(con, files.input)
    for name in (*workload.keys, *SOURCE, *workload.units):
        con.execute(statements(name))
    pairs = con.sql(statements("copies")).to_arrow_table()
    con.register("changed_copies", changed(files.input, files.quarantine, pairs, files.release))
    con.register("expected_rows", workload.expected(con))
    workload.rows.read(con, files.final)
    for name in COMPARISONS:
        con.execute(statements(name))


def _parse(
    con: duckdb.DuckDBPyConnection, name: str, stream: pa.Table, texts: Sequence[str], numbers: Sequence[str]
) -> None:
    """Replaces the rows of nonstandard values by what Python parses, portion by portion."""
    steps = queries(name)
    rows = con.sql(steps["rows"]).to_arrow_table()["nonstandard"]
    con.execute(steps["remove"])
    for portion in portions(stream, rows):
        con.register("parsed", parse_nonstandard(portion, texts, numbers))
        con.execute(steps["enter"])


def _with_checksums(rows: pa.Table) -> pa.Table:
    """Replaces `text` by `checksum`: SQL has no CRC-32."""
    at = rows.schema.get_field_index("text")
    sums = [pa.array([zlib.crc32(text) for text in chunk.to_pylist()], pa.int64()) for chunk in rows["text"].chunks]
    return rows.set_column(at, "checksum", pa.chunked_array(sums, pa.int64()))
