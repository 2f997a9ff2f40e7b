"""Chooses the right answer by the workload that a record names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oncebench.audit.python.model import Expected, expected_of
from oncebench.audit.python.workloads.records import expected_records
from oncebench.audit.python.workloads.windows import expected_windows
from oncebench.record import Record, RecordError

EARLIER = "sessions"  # the workload of every run whose cell.json does not name one
ANSWERS: Mapping[str, Callable[[Record], Expected]] = {
    EARLIER: expected_of,
    "windows": expected_windows,
    "records": expected_records,
}


def answer_of(record: Record) -> Expected:
    """Returns the expected output of a record.

    Raises:
        RecordError: the workload is unknown.
    """
    name = record.cell.get("cell", {}).get("workload", EARLIER)
    if name not in ANSWERS:
        raise RecordError(
            f"the run is of the workload {name!r}, and this version has the right answers of {', '.join(ANSWERS)}. "
            "Judge the run with the version that made it"
        )
    return ANSWERS[name](record)
