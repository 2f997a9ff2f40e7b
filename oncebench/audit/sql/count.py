"""The SQL auditor's counts, made in an empty DuckDB that reads only registered tables.

Promise: `sql_audit` never raises and never writes into the run folder. It returns the counts, or the reason why there
are none. A count is named by an anomaly code, or by a code, `.` and a kind. The others begin with `rows.`, `sessions.`,
`events.` or `invalid.`.

What can go wrong: a run too large for its memory spills to the temporary folder, and takes longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa

from oncebench.audit.sql.files import OFFSETS, OPEN, Files, read_files, released
from oncebench.audit.sql.long_contents import hidden
from oncebench.audit.sql.statements import queries
from oncebench.audit.sql.tables import WORKLOADS, derive

# For DuckDB, which spills to disk above it. 12,000,000 rows then take 1.1 GB in all, and a small record spills
# nothing.
MEMORY_BYTES, MEMORY_BYTES_PER_ROW = 400_000_000, 30
COUNTS = queries("counts")
# Counts with two names.
SAME = {"rows.lost": "LOSS", "rows.duplicated": "DUP", "rows.pending": "PEND", "rows.corrupt": "CORR",
        "rows.phantom": "PHAN", "sessions.torn": "TORN"}  # fmt: skip


@dataclass(frozen=True)
class Counted:
    """The counts, or in `trouble` why there are none."""

    counts: Mapping[str, int] = field(default_factory=dict)
    trouble: str = ""


def sql_audit(folder: Path) -> Counted:
    """Counts the run in `folder`."""
    try:
        files = read_files(folder)
        with connection(files.input.num_rows + files.final.num_rows) as con, released(files):
            return Counted(count(con, files))
    except Exception as error:  # any error means that only one auditor counted, which the verdict must report
        return Counted(trouble=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


@contextmanager
def connection(rows: int = 0) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens an empty database in memory that reads no files and loads no extensions.

    It spills to a temporary folder. `rows`: the size of the record, from which its memory follows.
    """
    with TemporaryDirectory(prefix="oncebench-audit-") as spill:
        config: dict[str, str | bool | int | float | list[str]] = {
            "temp_directory": spill,
            "memory_limit": f"{max(MEMORY_BYTES, MEMORY_BYTES_PER_ROW * rows)}B",
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        }
        with duckdb.connect(":memory:", config=config) as con:
            con.execute("SET enable_progress_bar = false")  # interactive Python would get it on stdout
            con.execute("SET enable_external_access = false; SET lock_configuration = true")
            yield con


def count(con: duckdb.DuckDBPyConnection, files: Files) -> dict[str, int]:
    """Makes every count, in a fresh connection."""
    register(con, files)
    derive(con, files)
    of_workload = WORKLOADS[files.workload].counts
    found = {name: _one(con, query) for name, query in {**COUNTS, **of_workload}.items()}
    reasons = con.execute("SELECT reason, count(*) FROM invalid_events GROUP BY reason").fetchall()
    return {
        **found,
        **{f"invalid.{reason}": number for reason, number in reasons},
        **{name: found[code] for name, code in SAME.items()},
        "sessions.planned": files.planned,
        "ORPH": len(files.ends.get("leftovers", [])),
        **{name: found[name] if files.drained else 0 for name in found if name.split(".")[0] == "QUAR"},
        # In a run that timed out, pending rows are stalled; at least one, because the run stalled.
        "STALL": max(1, found["PEND"]) if files.drained is False else 0,
        "PEND": 0 if files.drained is False else found["PEND"],
    }


def register(con: duckdb.DuckDBPyConnection, files: Files) -> None:
    """Makes the files available as tables."""
    for name in ("log", "ledger", "batch_ranges", "batch_ends", "accepted_batches", "accepted_offsets"):
        con.register(name, getattr(files, name))
    for name in ("final", "observed"):
        con.register(name, hidden(getattr(files, name), files.release, with_sums=True))
    for name in ("input", "quarantine"):
        con.register(name, hidden(getattr(files, name), files.release, with_sums=False))
    ends, is_log = files.ends.get("output", {}), files.ends.get("output_is_log", True)
    columns = {"partition": map(int, ends), **{name: [end[name] for end in ends.values()] for name in ("lso", "hw")}}
    con.register("ends", pa.table({name: _ints(numbers) for name, numbers in columns.items()}))
    con.register("open_transactions", pa.Table.from_pylist(files.ends.get("open_transactions", []), OPEN))
    con.register("committed", _by_partition(files.committed))
    # A complete final read holds every row below these offsets; in a sink without a log, every row.
    read_to = {int(partition): end["lso"] for partition, end in ends.items()} if files.final_whole and is_log else {}
    con.register("read_to", _by_partition(read_to))
    everywhere = OFFSETS if files.final_whole and not is_log else 0
    run = {"prefix": [f"{files.seed:x}-"], "below": _ints([everywhere]), "log_whole": [files.log_whole]}
    run["is_log"] = [bool(is_log)]
    run["timeout_ms"], run["started_us"] = _ints([files.timeout_ms]), _ints([files.started_us])
    run["at_once"] = [bool(files.ends.get("batches_at_once"))]
    con.register("run", pa.table(run))


def _by_partition(ends: Mapping[int, int]) -> pa.Table:
    return pa.table({"partition": _ints(ends.keys()), "below": _ints(ends.values())})


def _ints(numbers: Iterable[int]) -> pa.Array:
    return pa.array(list(numbers), pa.int64())


def _one(con: duckdb.DuckDBPyConnection, sql: str) -> int:
    ((number,),) = con.execute(sql).fetchall()
    return int(number or 0)
