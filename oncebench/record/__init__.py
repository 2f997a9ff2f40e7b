"""What a run recorded, as files and as one value: everything the audit and the report need."""

from oncebench.record.run_folder import (
    FACTS,
    FINAL,
    INPUT,
    LOG,
    MARKER,
    OBSERVED,
    QUARANTINE,
    Ledger,
    Plan,
    Record,
)
from oncebench.record.validation import RecordError

__all__ = [
    "FACTS",
    "FINAL",
    "INPUT",
    "LOG",
    "MARKER",
    "OBSERVED",
    "QUARANTINE",
    "Ledger",
    "Plan",
    "Record",
    "RecordError",
]
