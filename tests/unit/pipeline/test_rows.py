"""What a row may consist of, and what becomes of one that holds a null."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from oncebench.delivery.batch import _Task
from oncebench.delivery.digest import digest
from oncebench.delivery.errors import NullInRow
from oncebench.delivery.failpoints import Failpoints
from oncebench.delivery.quarantine import Quarantine
from oncebench.sinks.postgres import tables
from pipeline import rows
from pipeline.rows import ID, LONG, ROW, STRING, TYPES, json_texts, wrong_with

ROWS = {"session_key": ["k", "é\u2028\"", "k"], "j": [0, 1, 2], "events": [5, 5, 5], "total": [2**60, -1, 7],
        "checksum": [1, 2, 3], "ended_at": [4, 5, 6]}  # fmt: skip
KINDS = {"string": pa.string(), "int": pa.int32(), "long": pa.int64()}


def batch(**changes: list[object]) -> pa.RecordBatch:
    made = {**ROWS, **changes}
    return pa.RecordBatch.from_pydict({name: pa.array(made[name], KINDS[kind]) for name, kind in TYPES.items()})


@pytest.mark.parametrize(
    ("types", "identity", "told"),
    [
        (TYPES, ID, None),
        ({"order_id": STRING, "cents": LONG}, ("order_id",), None),
        ({"order_id": STRING, "order": LONG}, ("order_id",), None),  # a reserved word: tables quote it
        ({"order_id": STRING, "at": "timestamp"}, ("order_id",), "is a timestamp"),
        ({"cents": LONG, "order_id": STRING}, ("order_id",), "first column"),
        ({}, (), "first column"),
        ({"order_id": STRING, "id": LONG}, ("order_id",), "is taken"),
        ({"order_id": STRING, "TX": LONG}, ("order_id",), "is taken"),
        ({"order_id": STRING, "reason": STRING}, ("order_id",), "is taken"),
        ({"order_id": STRING, "Order_Id": STRING}, ("order_id",), "is taken"),
        ({"order_id": STRING, 'a"b': LONG}, ("order_id",), "letters, digits"),
        ({"order_id": STRING, "cents": LONG}, (), "ID"),
        ({"order_id": STRING, "cents": LONG}, ("order_id", "cents"), "ID"),
        ({"order_id": STRING, "cents": LONG}, ("number",), "ID"),
    ],
)
def test_columns_that_cannot_be_a_rows_are_told(
    types: dict[str, str], identity: tuple[str, ...], told: str | None
) -> None:
    wrong = wrong_with(types, identity)
    assert wrong is None if told is None else told in str(wrong)


@pytest.mark.parametrize("name", ROW)
def test_a_null_in_a_row_ends_the_batch_and_names_its_column(name: str) -> None:
    task = _Task(7, 1, Failpoints((), None, None), Quarantine("bad", "in", {}))  # type: ignore[arg-type]
    made = batch(**{name: [ROWS[name][0], None, ROWS[name][2]]})
    with pytest.raises(NullInRow, match=f"batch 7, partition 1: column '{name}' of a row is null"):
        list(task.take(iter([made.append_column("reason", pa.nulls(3, pa.string()))])))


def test_a_null_in_what_is_set_aside_is_nobodys_row() -> None:
    copied: list[int] = []

    class Copies(Quarantine):
        def copy(self, aside: pa.RecordBatch) -> None:
            copied.append(aside.num_rows)

    task = _Task(7, 1, Failpoints((), None, None), Copies("bad", "in", {}))  # type: ignore[arg-type]
    made = batch(j=[0, None, 2]).append_column("reason", pa.array([None, "bad", None], pa.string()))
    assert [each.num_rows for each in task.take(iter([made]))] == [2]
    assert copied == [1]


def test_the_digest_of_a_row_never_changes_for_checkpoints_hold_it() -> None:
    assert f"{digest(batch()):016x}" == "0c03945020d8e34a"


def test_each_row_is_a_json_object_with_all_its_columns() -> None:
    assert [json.loads(text) for text in json_texts(batch()).to_pylist()] == batch().to_pylist()


def test_a_second_string_column_is_quoted_hashed_and_copied_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    types = {"order_id": STRING, "note": STRING, "cents": LONG}
    for module in (rows, digest.__globals__):
        if isinstance(module, dict):
            monkeypatch.setitem(module, "TYPES", types)
        else:
            monkeypatch.setattr(module, "TYPES", types)
    monkeypatch.setattr(tables, "ROW", tuple(types))
    monkeypatch.setattr(tables, "STRINGS", ("order_id", "note"))
    one, other = (
        pa.RecordBatch.from_pydict({"order_id": ["a"], "note": [note], "cents": [1]}) for note in ("x\ty", "z")
    )
    assert json.loads(json_texts(one)[0].as_py()) == {"order_id": "a", "note": "x\ty", "cents": 1}
    assert digest(one) != digest(other)
    assert bytes(tables.copy_text(one)) == b"a\tx\\ty\t1\n"


def test_postgresqls_table_and_row_id_come_from_the_columns() -> None:
    made = tables.definition("t").as_string(None)
    for name, kind in TYPES.items():
        assert f'"{name}" {({"string": "text", "int": "integer", "long": "bigint"})[kind]} NOT NULL' in made
    assert tables.ROW_ID.as_string(None) == (
        """sha256(decode(replace("session_key", E'\\\\', E'\\\\\\\\'), 'escape')), "j\""""
    )
