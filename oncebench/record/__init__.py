"""The record of a run, as files and as one value. Audit and report need nothing else."""

from oncebench.record.ledgers import Ledger, Plan
from oncebench.record.run_folder import (
    FACTS,
    FINAL,
    INPUT,
    LOG,
    OBSERVED,
    QUARANTINE,
    WORK_FOLDER_FILE,
    Record,
)
from oncebench.record.validation import RecordError

__all__ = [
    "FACTS",
    "FINAL",
    "INPUT",
    "LOG",
    "OBSERVED",
    "QUARANTINE",
    "WORK_FOLDER_FILE",
    "Ledger",
    "Plan",
    "Record",
    "RecordError",
]
