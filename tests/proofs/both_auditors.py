"""What both auditors count in a record that is in memory: SQL gets it as its files."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from oncebench.audit.agreement import Agreement, compare, counts_of
from oncebench.audit.python.audit import audit
from oncebench.audit.sql import count
from oncebench.audit.sql.files import (
    LEDGER,
    TIMEOUT_MS,
    Files,
    batch_ends,
    batch_ranges,
    committed,
    drained,
    placed,
    with_row_numbers,
)
from oncebench.audit.sql.gaps import accepted_batches, accepted_offsets
from oncebench.record import Record


def files_of(record: Record) -> Files:
    return Files(
        input=placed(record.input.table),
        final=placed(record.final.table),
        observed=placed(record.observed.table),
        quarantine=with_row_numbers(record.quarantine.table),
        log=placed(record.log.table),
        ledger=pa.table({name: getattr(record.ledger, name) for name in LEDGER}),
        final_whole=record.final.complete,
        log_whole=record.log.complete,
        seed=record.plan.seed,
        planned=record.plan.sessions,
        ends=record.ends,
        committed=committed(record.progress.items),
        batch_ranges=batch_ranges(record.progress.items),
        batch_ends=batch_ends(record.progress.items),
        accepted_batches=accepted_batches(record.progress.items),
        accepted_offsets=accepted_offsets(record.progress.items),
        timeout_ms=record.cell.get("session_timeout_ms", TIMEOUT_MS),
        drained=drained(record.timeline.items),
        started_us=record.plan.started_us,
        workload=record.cell.get("cell", {}).get("workload", "sessions"),
    )


def agreed(database: duckdb.DuckDBPyConnection, record: Record) -> dict[str, int]:
    """What both auditors count, without what is 0."""
    first = counts_of(audit(record))
    with database.cursor() as con:
        second = count.count(con, files_of(record))
    assert compare(first, second) == Agreement(len(first.keys() | second.keys()))
    return {name: number for name, number in second.items() if number}


def codes(counts: dict[str, int]) -> dict[str, int]:
    """The anomalies alone."""
    return {name: number for name, number in counts.items() if name.split(".")[0].isupper()}
