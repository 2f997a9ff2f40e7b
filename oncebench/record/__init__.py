"""The record of a run, as files and as one value. Audit and report need nothing else.

The modules that read a record are imported at their first use. The faults need `events` only, and `oncebench list`
imports the faults without the suite's packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncebench.record.ledgers import Ledger, Plan
    from oncebench.record.run_folder import FACTS, FINAL, INPUT, LOG, OBSERVED, QUARANTINE, WORK_FOLDER_FILE, Record
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
# The modules that define them; `run_folder` defines the others.
_MODULES = {"Ledger": "ledgers", "Plan": "ledgers", "RecordError": "validation"}


def __getattr__(name: str) -> Any:
    """Imports a name of `__all__` at its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'run_folder')}"), name)
