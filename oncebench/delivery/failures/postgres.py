"""PostgreSQL's errors by SQLSTATE: the code itself, then its class (two characters).

Source: PostgreSQL 18, appendix A, "PostgreSQL Error Codes".
"""

from __future__ import annotations

from collections.abc import Mapping

from oncebench.delivery.failures.cause import UNKNOWN, Cause, permanent, transient

_ROW = "Reject such rows in the query, or change the table's definition or its constraint"
_TIME_OUT = (
    "an operator or a pooler ended the session, not a time-out: the sink switches the time-outs of role, database and "
    "server off"
)
IDEMPOTENT = (
    "Remove NOTIFY, LISTEN and temporary tables from the table's triggers, or take the variant idempotent with a new "
    "checkpoint, sink_id and table"
)

CODES: Mapping[str, Cause] = {
    "0A000": permanent(
        "PostgreSQL does not have this feature here; a transaction that has notified or has used a temporary table "
        "cannot be prepared",
        IDEMPOTENT,
    ),
    "25006": transient("the server takes no writes: it is a standby, or was made read-only", "Name the primary"),
    "25P03": transient(_TIME_OUT),
    "25P04": transient(_TIME_OUT),
    "53100": transient("the server's disk is full", "Make room on that disk"),
    "53200": transient(
        "the server is out of memory, or all slots of max_prepared_transactions are taken",
        "Look at pg_prepared_xacts: the next start names who holds the slots",
    ),
    "53300": transient("the server has too many connections", "Raise max_connections, or close other sessions"),
    "55P03": transient("another transaction holds a lock", "Look at pg_stat_activity and pg_prepared_xacts"),
    "57014": transient(_TIME_OUT),
    "57P05": transient(_TIME_OUT),
    "54000": permanent("a row exceeds a limit of PostgreSQL", _ROW),
    "54001": permanent("a statement exceeds a limit of PostgreSQL", "Raise max_stack_depth, or simplify the trigger"),
    "54023": permanent("a function of the table has too many arguments", "Correct the function"),
    "P0001": permanent("a trigger or function of the table refuses the row", _ROW),
    "28P01": permanent("the password is wrong", "Correct the DSN"),
    "23503": transient("the row refers to a row of another table that is not there", _ROW),
}
CLASSES: Mapping[str, Cause] = {
    "08": transient("the connection broke"),
    "21": permanent("two rows of one upsert have the same id", "Give each row of a batch an id of its own"),
    "22": permanent("the table does not take a value of a row", _ROW),
    "23": permanent("a row breaks a constraint of the table", _ROW),
    "26": transient("a pooler mixed up sessions", "Connect to the server itself"),
    "28": permanent("the server refuses the login", "Correct the DSN, or pg_hba.conf"),
    "38": permanent("a function of the table failed", "Correct the function"),
    "39": permanent("a function of the table failed", "Correct the function"),
    "3D": permanent("there is no such database", "Correct the DSN"),
    "3F": permanent("there is no such schema", "Correct search_path of the role"),
    "40": transient("the server chose this transaction to break a conflict"),
    "42": permanent(
        "a table, column or right is missing", "Restore the table or column, or GRANT the missing right to this role"
    ),
    "44": permanent("a row breaks the check option of a view", _ROW),
    "53": transient("the server lacks a resource"),
    "54": permanent("a row exceeds a limit of PostgreSQL", _ROW),
    "55": transient("another session uses an object, or the server must be restarted first"),
    "57": transient("an operator ended the session, or the server restarts"),
    "58": transient("the server's disk or file system failed", "Look at the server's log"),
    "F0": transient("the server's configuration is damaged", "Look at the server's log"),
    "P0": permanent("a trigger or function of the table failed", "Correct the function"),
    "XX": transient("the server reports an internal error", "Look at the server's log"),
}


def of_sqlstate(sqlstate: str | None) -> Cause:
    """Returns the entry for a SQLSTATE; None (no answer of the server) is a broken connection."""
    if sqlstate is None:
        return CLASSES["08"]
    return CODES.get(sqlstate) or CLASSES.get(sqlstate[:2]) or UNKNOWN
