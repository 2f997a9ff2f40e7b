"""SQLite's errors by result code (`sqlite_errorname`), without a code's extension."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from oncebench.delivery.failures.cause import UNKNOWN, Cause, permanent, transient

CODES: Mapping[str, Cause] = {
    "SQLITE_READONLY": permanent("this user may not write the file", "Grant the right with chmod or chown"),
    "SQLITE_PERM": permanent("this user may not write the file", "Grant the right with chmod or chown"),
    "SQLITE_CORRUPT": permanent("the file is damaged", "Restore file and checkpoint, from before the damage"),
    "SQLITE_NOTADB": permanent("the file is no SQLite file", "Name an SQLite file as the output"),
    "SQLITE_TOOBIG": permanent("a value exceeds a limit of SQLite", "Reject such rows in the query"),
    "SQLITE_CONSTRAINT": permanent("a row breaks a constraint of the table", "Reject such rows in the query"),
    "SQLITE_MISMATCH": permanent("the table does not take a value of a row", "Reject such rows in the query"),
    "SQLITE_ERROR": permanent("the table is not as it was at the start", "Restore the table"),
    "SQLITE_FULL": transient("the disk is full", "Make room on the disk"),
    "SQLITE_BUSY": transient("another program holds the file's write lock", "End that program"),
    "SQLITE_LOCKED": transient("another program holds the file's write lock", "End that program"),
    "SQLITE_IOERR": transient("the disk failed", "Look at the disk"),
    "SQLITE_CANTOPEN": transient("the file cannot be opened", "Look at the disk"),
    "SQLITE_NOMEM": transient("the machine is out of memory"),
}


def of_error(error: sqlite3.Error) -> Cause:
    """Returns the entry for an error of Python's module."""
    name = getattr(error, "sqlite_errorname", None) or ""
    return CODES.get("_".join(name.split("_")[:2]), UNKNOWN)
