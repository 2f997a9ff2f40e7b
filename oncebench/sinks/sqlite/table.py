"""Checks whether the table `rows` takes the rows of a query without changing values.

SQLite converts a value to the type that a column prefers, its affinity. The declared type decides the affinity. So
'007' in a column that is declared STRING becomes the number 7, without an error.

Source: "Datatypes In SQLite", section 3.1 (https://sqlite.org/datatype3.html), and tests with SQLite 3.40.1.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# A declared type that contains the first text of a pair has the affinity behind it. The first match counts.
_AFFINITIES = (
    ("INT", "INTEGER"), ("CHAR", "TEXT"), ("CLOB", "TEXT"), ("TEXT", "TEXT"), ("BLOB", "BLOB"), ("REAL", "REAL"),
    ("FLOA", "REAL"), ("DOUB", "REAL"),
)  # fmt: skip
_FLOATS_AS_TEXT = (frozenset({"TEXT"}), "0.30000000000000004 as '0.3'", "REAL")
# Spark's type -> the affinities that change some of its values, an example, and the type to declare. Under all other
# affinities a value comes back equal, for example the number 2.0 as 2 or 5 as '5'. SQLite never converts binary.
_CHANGED = {
    "string": (frozenset({"INTEGER", "NUMERIC", "REAL"}), "'007' as 7", "TEXT"),
    "long": (frozenset({"REAL"}), "9007199254740993 as 9007199254740992.0", "INTEGER"),
    "float": _FLOATS_AS_TEXT,
    "double": _FLOATS_AS_TEXT,
}
# Names of the row number, which a table has without declaring it.
_ROWID = ("rowid", "oid", "_rowid_")
# Column kinds of `table_xinfo`: both kinds of generated columns.
_GENERATED = (2, 3)
# `NOT NULL ON CONFLICT REPLACE` puts the default in place of a null, and replaces no row.
_REPLACES = re.compile(r"(?<!NOT NULL )ON CONFLICT REPLACE")
# Texts and comments of a statement.
_QUOTED = re.compile(r"'[^']*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
# Usual declarations of columns that hold texts: dates, times and JSON change only if they look like a number.
_OF_TEXTS = ("DATE", "TIME", "JSON")
# What SQLite takes for a number.
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?\s*", re.IGNORECASE | re.ASCII)


def is_view(connection: sqlite3.Connection) -> bool:
    """Whether `rows` is a view, whose triggers decide what is stored."""
    return _made_by(connection)[0] == "view"


def difference(connection: sqlite3.Connection, wanted: Mapping[str, str]) -> str | None:
    """Describes why the table does not take rows with the `wanted` columns.

    `wanted` maps each name to Spark's type.

    Returns None if each value comes back equal, and for a view, which is not checked. The writer checks the texts in
    columns of dates (`text_as_number`).
    """
    kind, made = _made_by(connection)
    if kind == "view":
        return None
    statement = " ".join(_QUOTED.sub(" ", made).upper().split())
    strict = "STRICT" in statement.rpartition(")")[2]
    named = {name.lower(): (name, type_name) for name, type_name in wanted.items()}
    columns = connection.execute(
        "SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo('rows')"
    ).fetchall()
    for name in sorted(set(named) - {column[0].lower() for column in columns} - set(_ROWID)):
        return f"column {named[name][0]!r} is missing"
    for name, declared, takes_no_null, default, key, hidden in columns:
        if name.lower() in named:
            if hidden in _GENERATED:
                return f"column {name!r} is generated, and the query has a column of this name"
            wrong = _changed(declared, strict, named[name.lower()][1])
            if wrong is not None:
                return f"column {name!r} {wrong}"
        # SQLite numbers the rows of an INTEGER PRIMARY KEY by itself.
        elif takes_no_null and default is None and hidden == 0 and not (key and declared.upper() == "INTEGER"):
            return f"column {name!r} takes no null and has no default, and the query has no such column"
    if _REPLACES.search(statement):
        return "it has ON CONFLICT REPLACE, which removes a row that was delivered before"
    return None


def text_as_number(connection: sqlite3.Connection, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str | None:
    """Describes the first text that a column of dates or JSON would store as a number.

    `rows` have the values of the columns `names`. None: there is no such text.
    """
    declared = dict(connection.execute("SELECT lower(name), type FROM pragma_table_info('rows')"))
    of_texts = [
        (at, name, kind)
        for at, name in enumerate(names)
        if _takes_dates(kind := str(declared.get(name.lower(), "")).upper())
    ]
    for row in rows if of_texts else ():
        for at, name, kind in of_texts:
            if isinstance(row[at], str) and _NUMBER.fullmatch(row[at]):
                return f"column {name!r} is declared {kind}, which stores the text {row[at]!r} as a number"
    return None


def _takes_dates(declared: str) -> bool:
    return _affinity(declared, strict=False) == "NUMERIC" and any(word in declared for word in _OF_TEXTS)


def _made_by(connection: sqlite3.Connection) -> tuple[str, str]:
    """Returns whether `rows` is a table or a view, and the statement that made it."""
    kind, made = connection.execute(
        "SELECT type, sql FROM sqlite_master WHERE type IN ('table', 'view') AND name = 'rows' COLLATE NOCASE"
    ).fetchone()
    return str(kind), str(made)


def _changed(declared: str, strict: bool, kind: str) -> str | None:
    """Describes how a column of a declared type changes values of a Spark type.

    None: it changes none.
    """
    affinities, example, better = _CHANGED.get(kind, (frozenset(), "", ""))
    if _affinity(declared.upper(), strict) not in affinities or (kind == "string" and _takes_dates(declared.upper())):
        return None
    return f"is declared {declared}, which stores the {kind} {example}: it must be {better}"


def _affinity(declared: str, strict: bool) -> str:
    if not declared or (strict and declared == "ANY"):
        return "BLOB"  # stores every value as it is
    return next((affinity for part, affinity in _AFFINITIES if part in declared), "NUMERIC")
