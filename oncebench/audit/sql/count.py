"""The second auditor's counts of a run, made in an empty DuckDB that can read nothing but what it is given.

Promise: `second_audit` never raises and never writes into the run folder: it gives the counts, or says what kept it
from counting. Its names are those of the anomaly codes, with `.` and a kind where the kinds of one are told apart, and
`rows.`, `sessions.`, `events.` and `invalid.` with a word.

What can go wrong: a run too large for `MEMORY` is spilled to the temporary folder, and takes longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa

from oncebench.audit.sql import inputs_and_ledger, outputs, source, transaction_log
from oncebench.audit.sql.files import OFFSETS, OPEN, Files, read_files

MEMORY = "2GB"  # of DuckDB; 1,000,000 rows and the 5,000,000 events behind them take 1.5 in all


@dataclass(frozen=True)
class Counted:
    """The counts, or why there are none."""

    counts: Mapping[str, int] = field(default_factory=dict)
    trouble: str = ""


def second_audit(folder: Path) -> Counted:
    """The counts of the run in `folder`."""
    try:
        with connection() as con:
            return Counted(count(con, read_files(folder)))
    except Exception as error:  # whatever it is, the run can't be told by two auditors, and is to be said so
        return Counted(trouble=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


@contextmanager
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database in memory that reads no files, loads no extensions and spills to a temporary folder."""
    with TemporaryDirectory(prefix="oncebench-audit-") as spill:
        config: dict[str, str | bool | int | float | list[str]] = {
            "temp_directory": spill,
            "memory_limit": MEMORY,
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        }
        with duckdb.connect(":memory:", config=config) as con:
            con.execute("SET enable_external_access = false; SET lock_configuration = true")
            yield con


def count(con: duckdb.DuckDBPyConnection, files: Files) -> dict[str, int]:
    """Everything that there is to count, in a fresh connection."""
    for name in ("input", "final", "observed", "quarantine", "log", "ledger", "spans"):
        con.register(name, getattr(files, name))
    ends, is_log = files.ends.get("output", {}), files.ends.get("output_is_log", True)
    columns = {"partition": map(int, ends), **{name: [end[name] for end in ends.values()] for name in ("lso", "hw")}}
    con.register("ends", pa.table({name: _ints(numbers) for name, numbers in columns.items()}))
    con.register("open_transactions", pa.Table.from_pylist(files.ends.get("open_transactions", []), OPEN))
    con.register("committed", _by_partition(files.committed))
    # Below these offsets a complete final read shows whatever there is; of a sink that is no log it shows all.
    read_to = {int(partition): end["lso"] for partition, end in ends.items()} if files.final_whole and is_log else {}
    con.register("read_to", _by_partition(read_to))
    everywhere = OFFSETS if files.final_whole and not is_log else 0
    run = {"prefix": [f"{files.seed:x}-"], "below": _ints([everywhere]), "log_whole": [files.log_whole]}
    run["is_log"] = [bool(is_log)]
    run["at_once"] = [bool(files.ends.get("batches_at_once"))]
    con.register("run", pa.table(run))
    source.derive(con)
    outputs.compare(con)
    for sql in (
        inputs_and_ledger.LEDGER,
        inputs_and_ledger.QUARANTINE,
        inputs_and_ledger.READS,
        inputs_and_ledger.STUCK,
        transaction_log.LOG,
    ):
        con.execute(sql)
    found = {
        name: _one(con, sql)
        for name, sql in {**outputs.COUNTS, **inputs_and_ledger.COUNTS, **transaction_log.COUNTS}.items()
    }
    reasons = con.execute("SELECT reason, count(*) FROM invalid GROUP BY reason").fetchall()
    rows = {"lost": "LOSS", "duplicated": "DUP", "pending": "PEND", "corrupt": "CORR", "phantom": "PHAN"}
    return {
        **found,
        **{f"invalid.{reason}": number for reason, number in reasons},
        **{f"rows.{word}": found[code] for word, code in rows.items()},
        "sessions.planned": files.planned,
        "sessions.torn": found["TORN"],
        "ORPH": len(files.ends.get("leftovers", [])),
        **{name: found[name] if files.drained else 0 for name in found if name.split(".")[0] == "QUAR"},
        # What is pending when the run's patience ended is stalled; at least one, since the run did stall.
        "STALL": max(1, found["PEND"]) if files.drained is False else 0,
        "PEND": 0 if files.drained is False else found["PEND"],
    }


def _by_partition(ends: Mapping[int, int]) -> pa.Table:
    return pa.table({"partition": _ints(ends.keys()), "below": _ints(ends.values())})


def _ints(numbers: Iterable[int]) -> pa.Array:
    return pa.array(list(numbers), pa.int64())


def _one(con: duckdb.DuckDBPyConnection, sql: str) -> int:
    ((number,),) = con.execute(sql).fetchall()
    return int(number or 0)
