"""SQLite's errors by result code (`sqlite_errorname`), without a code's extension."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from oncebench.delivery.failures.cause import UNKNOWN, Cause, permanent, transient

_RIGHT = permanent(
    "this user may not write the file, a file that begins with its name (-wal, -shm, -journal) or its folder, or the "
    "disk is read-only",
    "Grant the rights on all of them with chmod or chown, or mount the disk for writing",
)
_LOCK = transient(
    "another program or task holds a lock of the file",
    "End that program, or its transaction; after PRAGMA journal_mode = WAL, readers do not block the job",
)
_RESTORE = "Restore the file with the checkpoint, from before the damage"
CODES: Mapping[str, Cause] = {
    "SQLITE_READONLY": _RIGHT,
    "SQLITE_PERM": _RIGHT,
    "SQLITE_CORRUPT": permanent(
        "the file is damaged", f"{_RESTORE} or, without such a copy, take a new checkpoint, sink_id and file"
    ),
    "SQLITE_NOTADB": permanent("the file is no SQLite file", f"{_RESTORE} or, in a new job, name an SQLite file"),
    "SQLITE_TOOBIG": permanent("a value exceeds a limit of SQLite", "Reject such rows in the query"),
    "SQLITE_CONSTRAINT": permanent(
        "a row breaks a constraint of the table", "Reject such rows in the query, or drop the constraint"
    ),
    "SQLITE_MISMATCH": permanent(
        "a column of the table does not take a value of a row", "Cast the column, or reject such rows in the query"
    ),
    "SQLITE_ERROR": permanent(
        "a table or column is missing, or a trigger failed",
        "Restore the table or column, or correct the trigger",
    ),
    "SQLITE_FULL": transient("the disk is full", "Make room on the disk"),
    "SQLITE_BUSY": _LOCK,
    "SQLITE_LOCKED": _LOCK,
    "SQLITE_IOERR": transient(
        "the disk failed, or a limit of this user",
        "Look for errors of the disk in dmesg, and check its quota and ulimit -f",
    ),
    "SQLITE_CANTOPEN": transient(
        "the file or its folder is gone, or this user may not read it", "Restore it, or correct path and rights"
    ),
    "SQLITE_NOMEM": transient("the machine is out of memory", "Give it more memory, or write smaller batches"),
}


# Python 3.11 has no names for the newer extended codes. This one: a value in a column of a STRICT table.
_DATATYPE = 3091
_BY_PRIMARY = {getattr(sqlite3, name): cause for name, cause in CODES.items()}


def of_error(error: sqlite3.Error) -> Cause:
    """Returns the entry for an error of Python's module.

    The low eight bits are the code without its extension.
    """
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return UNKNOWN
    return CODES["SQLITE_MISMATCH"] if code == _DATATYPE else _BY_PRIMARY.get(code & 0xFF, UNKNOWN)
