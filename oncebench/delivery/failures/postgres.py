"""PostgreSQL's errors by SQLSTATE: the code itself, then its class (two characters).

Source: PostgreSQL 18, appendix A, "PostgreSQL Error Codes".
"""

from __future__ import annotations

from collections.abc import Mapping

from oncebench.delivery.failures.cause import UNKNOWN, Cause, permanent, transient

_ROW = "Reject such rows in the query, or change the table's definition or its constraint"
_TIME_OUT = (
    "an operator or a pooler ended the session or statement, not a time-out: the sink switches the time-outs of role, "
    "database and server off"
)
_DSN = "Correct the DSN in ONCEBENCH_POSTGRES"
_FUNCTION = "Correct the function"
NEW_JOB = "with a new checkpoint, sink_id and table"
# Prepared transactions of this library. Only their job's journal shows which of them must be committed.
OF_JOBS = "for names SINK_ID:BATCH:PARTITION:HEX, use only `oncebench transactions`"
IDEMPOTENT = f"Remove that from the table's triggers or partitions, or take the variant idempotent {NEW_JOB}"
LOGIN = f"{_DSN}, or the role (LOGIN, password), or pg_hba.conf"
READ_ONLY = (
    "Name the primary in ONCEBENCH_POSTGRES (with several hosts: target_session_attrs=read-write), or set "
    "default_transaction_read_only = off"
)


CODES: Mapping[str, Cause] = {
    "0A000": permanent(
        "PostgreSQL cannot do this here; it prepares no transaction that has used NOTIFY, LISTEN, a temporary or a "
        "foreign table",
        IDEMPOTENT,
    ),
    "25006": transient("the server takes no writes: it is a standby, or was made read-only", READ_ONLY),
    "25P03": transient(_TIME_OUT),
    "25P04": transient(_TIME_OUT),
    "53100": transient("the server's disk is full", "Make room on that disk"),
    "53200": transient(
        "the server is out of memory or locks, or all slots of max_prepared_transactions are taken",
        f"End the holders in pg_prepared_xacts whose job is dead ({OF_JOBS}), or raise what the server's log names",
    ),
    "53300": transient(
        "server, database or role has too many connections",
        "Raise max_connections or that CONNECTION LIMIT, or close other sessions",
    ),
    "55P03": transient(
        "another transaction holds a lock",
        f"Find it in pg_stat_activity or pg_prepared_xacts and, if its job is dead, end it ({OF_JOBS})",
    ),
    "57014": transient(_TIME_OUT),
    "57P05": transient(_TIME_OUT),
    "54000": permanent("a row exceeds a limit of PostgreSQL", _ROW),
    "54001": permanent("a statement exceeds a limit of PostgreSQL", "Raise max_stack_depth, or simplify the trigger"),
    "42P10": transient("the table lacks the unique index that upsert needs", "The next start makes it"),
    "54023": permanent("a function of the table has too many arguments", _FUNCTION),
    "P0001": permanent("a trigger or function of the table refuses the row", _ROW),
    "28P01": permanent("the user or the password is wrong", f"{_DSN}, PGPASSWORD or PGPASSFILE"),
    "23503": transient(
        "the row refers to a row of another table that is not there",
        "Add that row, drop the constraint, or reject such rows in the query",
    ),
}
CLASSES: Mapping[str, Cause] = {
    "08": transient("the connection broke"),
    "21": permanent(
        "two rows of one upsert have the same id, or a query in a trigger gives several rows",
        "Give each row of a batch an id of its own, or correct the trigger",
    ),
    "22": permanent("the table does not take a value of a row", _ROW),
    "23": permanent("a row breaks a constraint of the table", _ROW),
    "26": transient("a pooler mixed up sessions", "Connect to the server itself"),
    "28": permanent("the server refuses the login", LOGIN),
    "2D": permanent("a function of the table ends the transaction", "Remove COMMIT and ROLLBACK from it"),
    "38": permanent("a function of the table failed", _FUNCTION),
    "39": permanent("a function of the table failed", _FUNCTION),
    "3D": permanent("there is no such database", _DSN),
    "3F": permanent("there is no such schema", "Make it, or correct search_path of the role"),
    "40": transient("the server chose this transaction to break a conflict"),
    "42": permanent(
        "a table, column, function or right is missing, or has another form",
        "Restore what the error names, or GRANT the missing right to this role",
    ),
    "44": permanent("a row breaks the check option of a view", _ROW),
    "53": transient("the server lacks a resource", "Read which one in the server's log, and raise its limit"),
    "54": permanent("a row exceeds a limit of PostgreSQL", _ROW),
    "55": transient(
        "another session uses an object, or a setting needs a restart of the server",
        "Read the server's log; end that session, or restart the server",
    ),
    "57": transient("an operator ended the session, or the server restarts"),
    "58": transient("the server's disk or file system failed", "Look at the server's log"),
    "F0": transient("the server's configuration is damaged", "Look at the server's log"),
    "P0": permanent("a trigger or function of the table failed", _FUNCTION),
    "XX": transient("the server reports an internal error", "Look at the server's log"),
}


def of_sqlstate(sqlstate: str | None) -> Cause:
    """Returns the entry for a SQLSTATE; None (no answer of the server) is a broken connection."""
    if sqlstate is None:
        return CLASSES["08"]
    return CODES.get(sqlstate) or CLASSES.get(sqlstate[:2]) or UNKNOWN
