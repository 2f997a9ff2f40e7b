"""The table of the SQLite sink: it stores each row as it is, or the job ends with a message."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from oncebench.delivery.errors import PermanentFailure, RefusedStart
from oncebench.sinks.sqlite.sink import SUPPORTS, SqliteSink, connect
from tests.unit.sinks.test_files_sink import Task

BY_TYPE = {
    "string": (pa.string(), ["00123", "1e5", " 7 ", "12345678901234567890", "99999999999999999999.99", "abc"]),
    "binary": (pa.binary(), [b"123", b"\x00"]),
    "boolean": (pa.bool_(), [True, False]),
    "integer": (pa.int32(), [2**31 - 1, -(2**31), 0]),
    "long": (pa.int64(), [2**63 - 1, 2**53 + 1, -(2**63)]),
    "float": (pa.float32(), [0.5, 3.0, 2.0**-149]),
    "double": (pa.float64(), [0.1 + 0.2, 2.0, 2.0**60, 1.7976931348623157e308]),
}
DECLARED = (
    "", "TEXT", "VARCHAR(20)", "BLOB", "INTEGER", "BIGINT", "NUMERIC", "DECIMAL(10,2)", "REAL", "DOUBLE", "STRING",
    "DATETIME", "BOOLEAN", "ANY",
)  # fmt: skip


def schema(columns: str) -> StructType:
    made = StructType()
    for name, kind in map(str.split, columns.split(", ")):
        made.add(name, kind)
    return made


def started(path: Path, made: str, columns: str) -> SqliteSink:
    with closing(connect(str(path))) as connection:
        connection.executescript(made)
    sink = SqliteSink(str(path), "s", 1)
    sink.check_schema(schema(columns))
    sink.start(SUPPORTS[0], 1, [])
    return sink


def written(path: Path, sink: SqliteSink, rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    sink.idempotent_writer().write(Task(0, 0), iter([rows]))
    with closing(connect(str(path))) as connection:
        return connection.execute(f"SELECT {', '.join(rows.schema.names)} FROM rows").fetchall()


@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("kind", BY_TYPE)
def test_a_value_comes_back_equal_or_its_column_is_refused(tmp_path: Path, kind: str, declared: str) -> None:
    arrow, values = BY_TYPE[kind]
    rows = pa.RecordBatch.from_arrays([pa.array(values, arrow)], ["v"])
    path = tmp_path / "rows.sqlite"
    try:
        sink = started(path, f"CREATE TABLE rows (v {declared})", f"v {kind}")
    except RefusedStart as refused:
        assert f"column 'v' is declared {declared}, which stores the " in str(refused)
        stored = unchecked(path.with_name("unchecked"), declared, values)
        assert not all(same(*each) for each in stored), f"refused, and no value changed: {stored}"
        return
    if (kind, declared) == ("string", "DATETIME"):
        with pytest.raises(PermanentFailure, match=r"stores the text '00123' as a number, and nothing was committed"):
            written(path, sink, rows)
        return
    for value, (found,) in zip(values, written(path, sink, rows), strict=True):
        assert same(value, found)


@pytest.mark.parametrize("declared", ["DATETIME", "DATE", "timestamp", "JSON"])
def test_dates_and_json_stay_texts(tmp_path: Path, declared: str) -> None:
    values = ["2026-11-29", "2026-11-29T11:00:00Z", '{"a": 1}', "", "1_0", "nan", None]
    path = tmp_path / "rows.sqlite"
    sink = started(path, f"CREATE TABLE rows (v {declared})", "v string")
    assert [found for (found,) in written(path, sink, pa.RecordBatch.from_pydict({"v": values}))] == values
    for wrong in ("2026", " 1e3 ", "-.5", "7."):
        with pytest.raises(PermanentFailure, match=r"column 'v' is declared .*, which stores the text "):
            written(path, sink, pa.RecordBatch.from_pydict({"v": ["2026-11-29", wrong]}))


def test_the_words_on_conflict_replace_in_a_text_or_comment_are_none(tmp_path: Path) -> None:
    made = "CREATE TABLE rows (v TEXT DEFAULT 'ON CONFLICT REPLACE' /* ON CONFLICT REPLACE */) -- ON CONFLICT REPLACE"
    started(tmp_path / "rows.sqlite", made, "v string")


def same(value: Any, found: Any) -> bool:
    """Whether no digit of a value was lost; a number may come back as its text."""
    return bool(found == value or (isinstance(value, int | float) and str(value + 0) == found))


def unchecked(path: Path, declared: str, values: list[Any]) -> list[tuple[Any, Any]]:
    with closing(connect(str(path))) as connection:
        connection.execute(f"CREATE TABLE rows (v {declared})")
        return [
            (value, connection.execute("INSERT INTO rows VALUES (?) RETURNING v", (value,)).fetchone()[0])
            for value in values
        ]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("(id TEXT)", "column 'cents' is missing"),
        ("(id TEXT, cents INTEGER, at TEXT NOT NULL)", "column 'at' takes no null and has no default"),
        ("(id TEXT, cents INTEGER AS (1))", "column 'cents' is generated"),
        ("(id TEXT PRIMARY KEY ON CONFLICT\n replace, cents INTEGER)", "it has ON CONFLICT REPLACE, which removes"),
        ("(ID STRING, cents INTEGER)", "column 'ID' is declared STRING, which stores the string '007' as 7"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_at_the_start(tmp_path: Path, made: str, why: str) -> None:
    with pytest.raises(RefusedStart, match=f"table rows of .* does not fit the rows: {why}.*Nothing was written"):
        started(tmp_path / "rows.sqlite", f"CREATE TABLE rows {made}", "id string, cents long")


@pytest.mark.parametrize(
    "made",
    [
        "TABLE rows (number INTEGER PRIMARY KEY NOT NULL, id TEXT, cents INTEGER)",
        "TABLE Rows (ID TEXT UNIQUE, Cents BIGINT, at TEXT NOT NULL DEFAULT 'now', twice INTEGER AS (cents * 2))",
        "TABLE rows (id ANY, cents INT NOT NULL ON CONFLICT REPLACE DEFAULT 0) STRICT",
        "TABLE rows (id TEXT PRIMARY KEY, cents INTEGER) WITHOUT ROWID",
        "VIRTUAL TABLE rows USING fts5(id, cents)",
        "VIEW rows AS SELECT id, cents FROM base; CREATE TABLE base (id TEXT, cents INTEGER); "
        "CREATE TRIGGER stores INSTEAD OF INSERT ON rows BEGIN INSERT INTO base VALUES (NEW.id, NEW.cents); END",
        "TABLE rows (id TEXT, cents INTEGER); CREATE TABLE newest (id TEXT PRIMARY KEY, cents INTEGER); "
        "CREATE TRIGGER rows AFTER INSERT ON rows BEGIN INSERT OR REPLACE INTO newest VALUES ('a', NEW.cents); END",
    ],
)
def test_a_table_that_takes_the_rows_is_not_refused(tmp_path: Path, made: str) -> None:
    path = tmp_path / "rows.sqlite"
    rows = pa.RecordBatch.from_pydict({"id": ["007", "b"], "cents": [1, 2]})
    assert written(path, started(path, f"CREATE {made}", "id string, cents long"), rows) == [("007", 1), ("b", 2)]


@pytest.mark.parametrize(
    "made",
    [
        "TABLE rows (id TEXT PRIMARY KEY ON CONFLICT IGNORE)",
        "TABLE rows (id TEXT); CREATE TRIGGER t BEFORE INSERT ON rows WHEN NEW.id = 'a' "
        "BEGIN SELECT RAISE(IGNORE); END",
    ],
)
def test_a_table_that_keeps_rows_out_ends_the_job(tmp_path: Path, made: str) -> None:
    path = tmp_path / "rows.sqlite"
    sink = started(path, f"CREATE {made}", "id string")
    with pytest.raises(PermanentFailure, match=r"batch 0, partition 0: the table took \d of 3 rows and nothing was"):
        written(path, sink, pa.RecordBatch.from_pydict({"id": ["a", "b", "a"]}))
    with closing(connect(str(path))) as connection:
        assert connection.execute("SELECT (SELECT count(*) FROM rows) + (SELECT count(*) FROM ledger)").fetchone() == (
            0,
        )
